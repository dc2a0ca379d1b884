// Package cluster decides where a key lives, and holds the words in which the
// nodes of a cluster speak of each other. Everything in it is a pure function
// of its arguments: no clock, no socket, no state, so that every process that
// is handed the same facts comes to the same answer.
//
// Two kinds of fact meet here, and are never mixed:
//
//	hints    a View (who is alive, where it listens) and the Tables (which
//	         regions a node has registered, under which rkeys). Gossip carries
//	         them; they may be stale or wrong, and cost at most a retry.
//	law      a Map (which node owns which shard). It is agreed once, kept
//	         durably by every node, and changed through an Authority only.
//
// A key leads to its node in two steps: ShardOf, key -> shard, is part of the
// storage format and never changes; Map.OwnerOf, shard -> node, is law.
//
// Each type has a codec (Append..., Parse...) whose bytes are drawn beside it.
// A parser takes bytes from anybody: it checks every length before it uses
// one, allocates no more than a small multiple of what it was given, and
// accepts exactly what its encoder writes, so that equal values have equal
// bytes and equal digests. Integers are little-endian; a text is one length
// byte and that many bytes.
package cluster
