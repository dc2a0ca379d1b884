// Package cluster decides where a key lives, and holds the words in which the
// nodes of a cluster speak of each other. Everything in it is a pure function
// of its arguments: no clock, no socket, no state, so that every process that
// is given the same facts comes to the same answer.
//
// It has two kinds of fact, and never mixes them:
//
//	hints    a View (which nodes are alive, where each listens) and the Tables
//	         (which regions a node has registered, under which rkeys). Gossip
//	         carries them; they may be stale or wrong, and cost at most a retry.
//	law      a Map (which node owns which shard). It is agreed once, kept
//	         durably by every node, and changed through an Authority only.
//
// A key leads to its node in two steps: ShardOf, key -> shard, is part of the
// storage format and never changes; Map.OwnerOf, shard -> node, is law.
//
// Each type has a codec (Append..., Parse...) whose bytes are drawn beside it.
// A parser takes bytes that any process may have sent: it checks every length
// before it uses one, allocates no more than a small multiple of what it was
// given, and accepts exactly what its encoder writes, so that equal values have
// equal bytes and equal digests. Integers are little-endian; a text is one
// length byte and that many bytes.
//
// Read shard.go and map.go first, then propose.go (the first map) and
// authority.go; then member.go, view.go and table.go (the hints). fields.go is
// what the codecs share.
package cluster
