// Package residents looks after the items in memory: what comes in, what goes, and whether
// it is whole. All of it works beside readers and writers, by the steps of package shard, each
// of which is one hold of a shard's lock; nothing here orders a write.
//
// Fill brings the keys of the log and of the disk in after a start (filllog.go, fill.go,
// fillbatch.go), and has the misses
// of a shard believed when all of its keys are there (filled.go). Evictor decides what stays
// when memory is full: what goes for a put, and ahead of it (evict.go, evictor.go), and
// whether a key that a get read from the disk comes back (promote.go). Scrub looks for
// damaged items (scrub.go) and puts good copies from the disk in their places (repair.go).
// Sweep clears the slots of keys that are gone and had been in Pebble only (sweep.go).
//
// A value that was read from the disk a while ago must never win over a write that was
// ordered since. So each of them reads under something that is told of such writes: Fill under
// the chunk of its shard, promotion and repair under a probe, Sweep under a pass.
//
// Each type has its own goroutines, which end with the Life of its Env. What a type knows is
// its goroutine's alone, or atomic, or under a lock of its own, under which no shard's is taken.
package residents
