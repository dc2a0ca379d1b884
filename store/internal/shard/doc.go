// Package shard is what a store knows of the keys of one shard under one lock: what is
// in flight (Order) and what is in registered memory (Items). It has no disk: where
// only the disk knows, the caller reads it, with no lock held, and comes back.
//
// A write comes by three times:
//
//	LockEffects  judges its keys on their ordered state, and leaves the shard locked;
//	             what the disk must be asked for is read under a probe, which learns of
//	             the writes ordered meanwhile
//	NoteOrdered  the write is queued: from here on it is part of the ordered state
//	Publish      it is durable: its items become what readers see
//
// A read takes Locate: the item in memory, or the news that only the disk knows; then
// WaitFlight, so that nothing is told that is not published.
//
// Items come into memory by Publish, LinkFilled, LinkPromoted and LinkRepaired, which
// never win over a newer write, and leave it by Publish, Evict, DropNear and Orphan.
// One-sided readers look on without any lock: link.go, publishbatch.go and pressure.go
// say which store comes after which, and what they may conclude in between.
package shard
