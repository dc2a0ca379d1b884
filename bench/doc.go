// Package bench measures rdmakv against the layers below it: a get against a
// plain TCP ping-pong of the same sizes, durable puts against bare Pebble with
// as many writers. Each ratio is of two measurements made in the same run, in
// alternating slices, so that a noisy machine disturbs both alike.
//
//	go test ./bench -run '^$' -bench .
//
// The package has no code but benchmarks. bench/compare measures rdmakv beside
// other stores.
package bench
