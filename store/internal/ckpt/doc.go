// Package ckpt says when a checkpoint runs, and does what follows from it in the shards and
// in the log.
//
// # One round
//
//	checkpoint.Run       the base has the range           (the log is held by Run)
//	Leave, Relist        shard by shard: the keys leave the sets of what is newer
//	the place is raised  readers hold the log from there on
//	log.Release          what stands before it may go
//
// The order is the rule. If keys left a set before the base shows them, a reader would be told
// an older value in between. If the place rose, or the log were released, before the last
// shard is through, a reader that has found a key in a set would not find its record. If a shard
// were told of the expiries before the base lists them, the expirer would look, find nothing,
// and never look there again.
//
// # One version says what is in the base
//
// Leave is told a version, and not a position: Place.Newest, the newest of all writes that the
// base has. That is enough because versions rise in the order of the log, over all shards: the
// queue of the pipeline gives a write its version under the same hold of its lock under
// which it appends the write, one worker at a time takes writes off in that order and seals their
// frames in it, and each life begins with an epoch, so with versions, above all that were
// given out before. So every write of the range has a version up to Newest, every one behind it
// a higher one. If versions and positions came from different orders, a key of a later range
// could leave its set with this one, and a get would be told what the base has of it: an
// older value.
//
// Replicated groups number their writes each for itself; groups.go says what holds there.
package ckpt
