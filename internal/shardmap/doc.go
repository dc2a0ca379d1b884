// Package shardmap keeps a node's share of hard state: its identity, the
// shard map that it has promised or committed, and which lives of other nodes it has seen. It is the cluster.Authority of a
// cluster.
//
// The first map is agreed in two phases, driven from outside over sessions to all
// nodes. A node that has prepared a map has promised, durably, to commit this
// map and no other; only when all have promised is it committed anywhere. So no
// two nodes ever commit different maps, whichever nodes crash, and whenever:
//
//	none ── Prepare(m) ──▶ promised m ── Commit(m) ──▶ committed m
//	          ▲                │
//	          └── Abandon(m) ──┘
//
// The map by which the nodes of one without replicas get groups, with what they have, is agreed in the same two phases: the one before it stays in force until
// the commit, and MAP has both.
//
// Later maps, of a cluster with replicas, are agreed elsewhere, and followed in one step (follow.go).
//
// Every step is durable before it is answered: the file MAP is written beside
// the old one, synced, renamed over it, and the directory synced. A crash in
// between leaves the state before the step or after it, never a mixture; the
// step can simply be asked for again. A file that is read back is checked to
// the last bit (package format).
//
// book.go has the steps of the first map, follow.go those of later ones, identity.go the file by which a directory
// belongs to a node, lives.go by what a directory that was set back is known.
package shardmap
