// Package sim runs a whole node (server, store, Pebble on a file system in
// memory that can crash) and its clients through the adversarial fabric of
// package rdma/sim, in one bubble of testing/synctest, so that hours of virtual
// time cost seconds, and judges the clients' histories with test/linear.
//
// A run is a seed and a scenario. The seed decides the adversity of the network,
// what the workers do, when the server is paused, killed or cut off, how much of
// what was not synced a crash loses, and how wrong each client's clock of leases
// is. Any failure prints the command that plays the run again:
//
//	go run ./internal/teeth/mutants -with points -- test ./test/sim -run TestSeeds -scenario kill -seed 17 -v
//
// With the points of internal/teeth/points.patch in the program the run is far
// more adversarial: at each of them, between two stores to shared memory, the
// loads that the fabric has put off may happen, and other goroutines may do whole
// operations (Steps). Without them a publish is one instant for all.
//
// Package rdma/sim says how far a replay goes: GOMAXPROCS(1), one bubble,
// decisions hashed from the seed, so that a failure mostly comes back at once
// and nearly always within a few tries (-times).
package sim
