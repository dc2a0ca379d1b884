// Package bench measures rdmakv against what it stands on: a get against a
// plain TCP ping-pong of the same sizes, durable puts against bare Pebble with
// as many writers. Each ratio is of two measurements made in the same run, in
// alternating slices, so that a noisy machine disturbs both alike.
//
//	go test ./bench -run '^$' -bench .
//
// There is no code here but benchmarks.
package bench
