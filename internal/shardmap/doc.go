// Package shardmap keeps a node's share of hard state: who it is, and the shard
// map that it has promised or committed. It is the cluster.Authority of a
// cluster whose map is agreed once, at its birth; a consensus group can stand
// in its place later without anybody above noticing.
//
// The map is agreed in two phases, driven from outside over sessions to all
// nodes. A node that has prepared a map has promised, durably, to commit this
// map and no other; only when all have promised is it committed anywhere. So no
// two nodes ever commit different maps, whoever crashes when:
//
//	none ── Prepare(m) ──▶ promised m ── Commit(m) ──▶ committed m, for ever
//	          ▲                │
//	          └── Abandon(m) ──┘
//
// Every step is durable before it is answered: the file MAP is written beside
// the old one, synced, renamed over it, and the directory synced. A crash in
// between leaves the state before the step or after it, never a mixture; the
// step can simply be asked for again. What is read back is checked to the last
// bit (package format).
package shardmap
