// Package simcluster runs a cluster with replicas in one bubble of testing/synctest, so that minutes of virtual time cost a fraction of a
// second, and judges what its clients saw.
//
//	five nodes   package internal/server as it is: groups, consensus, transport, gossip, store, log and Pebble, each on a file system in
//	             memory that loses what was not synced (test/crashfs)
//	clients      package client as it is: gets by READ that words vouch for, by SEND, MultiGet, scans, puts, deletes, increments,
//	             conditional writes, batches, keys that expire
//	network      the adversarial fabric (rdma/sim): words of a READ in any order and at any time, delays, connections that die, set-ups
//	             that are lost and doubled; replicas and clients use the same one. Gossip has streams and packets of its own, which the
//	             same cuts separate
//
// Whole nodes were chosen over bare stores with a network of functions: a run takes a third of a second, because virtual time is
// free, and what replication promises rests on parts that stores do not have (the client's rules for believing a READ, leases of sessions, the
// frozen memory of a paused node, retries under names at the next leader, the wait of a restarted node). Store and consensus have storms of their own
// (store TestGroupStorm, internal/consensus/consensustest).
//
// A run is a seed and a scenario; the seed says, too, whether a key is on three of the nodes or on all five. What happens to nodes (faults.go): power
// cuts with what was not synced gone while their memory stays readable for a while, of one or of all; stops as an operator does; pauses, in which a node's
// memory answers READs; cuts both ways and one way, of nodes and of clients; disks that are slow and that hang; clocks that run apart and are set;
// connections that end; so much written that a node which was away needs a snapshot.
//
// What must hold:
//
//   - the history of each key, or of the keys of a batch, is linearizable (test/linear; an unfinished search is a failure). It ends with a get of each key
//     when all is healed, so that an acknowledged write which is gone does not pass, and one that took effect twice does not either;
//   - a minute of virtual time after the last fault each group has one leader, and all its replicas have published the same entries;
//   - these replicas have the same keys with the same values, versions and deadlines;
//   - the cells that readers go by, looked at every few milliseconds and at each power cut, keep R10, R11 and R12 (watcher.go);
//   - where nothing goes wrong (scenario calm) most gets are answered by READs: a simulation in which the quick way is never taken judges nothing;
//   - every call ends, and so does each node.
//
// A failure prints the command that plays the run again:
//
//	go test ./test/simcluster -run TestSeeds -scenario kill -seed 17 -times 20 -v
//
// Package rdma/sim says how far a replay goes. A rule that is broken on purpose is looked for by
//
//	go run ./internal/teeth/mutants -with words-others -- test ./test/simcluster -run TestSeeds -seconds 60
//
// In a bubble time stands still while a goroutine waits for a mutex. So only syncs of the log take time here, and a run whose time stands still for ever ends with
// the test's own limit, after a line that names its seed.
package simcluster
