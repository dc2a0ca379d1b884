// Package index keeps one shard's index: extendible hashing in registered
// memory, laid out by package layout so that a client finds a key with two
// READs and no help.
//
//	root word      directory, 2^depth entries      segments, 16 to 28 KiB
//	┌─────────┐    ┌───────────────┐               ┌──────┬──────┬──────┬─ … ─┐
//	│ place,  │───▶│ 00 place,step │──────────────▶│ main │ over │ main │     │
//	│ depth   │    │ 01 place,step │──┐            └──────┴──────┴──────┴─ … ─┘
//	└─────────┘    │ 10 place,step │──┼─▶ …          group 0, three buckets of
//	               │ 11 place,step │──┘              64 bytes: header, 7 slots
//	               └───────────────┘
//
// A key has two groups in the one segment that its directory bits name, and in
// each a main bucket with the overflow bucket that the group's two mains share.
// It may stand in any slot of these four buckets, and while the segment lives
// it stays in the one it got. Nothing ever moves between slots, because else a
// reader that sees a slot empty and another one later could miss a key on its
// way.
//
// A segment whose buckets are full for a key grows into new memory: by a
// quarter of 16 KiB while it is at the same depth, then by a split into two.
// Growth is planned in private memory until it is certain to succeed, and then
// written in this order: every old header is marked; the new segments are
// written; their directory entries are swung, one word each; the old memory
// rests for a lease. A reader meets the old segment unmarked (and then its
// slots are true), or marked (and asks the directory again), or the new one.
//
// A segment's identity, shard and prefix and depth and step, is used once in an
// incarnation, because steps and depths only rise. So a header can never be
// mistaken for that of another segment that lay in the same memory before.
//
// # Keys without slot
//
// A key that finds no slot is counted at its first main bucket, and its hash is
// remembered in private memory, up to a bound. A count is never lowered in
// place. Growth counts anew, without the keys that got a slot since; where the
// bound was passed it gives the whole count to every bucket that such a key
// could belong to: it can say too much, never too little. Until SetFilled every
// header shows 255: while a shard is being filled, a miss proves nothing.
//
// # How to read it
//
// index.go has the type and the calls of a shard; directory.go publishes,
// grow.go plans and replaces; the other files are about slots: inserts and
// look-ups, slots that say "on disk alone", and keys without a slot.
//
// The package starts no goroutine and reads no clock. An Index is not safe for
// concurrent use: its shard's lock stands around every call. Remote readers
// need no lock, because every change is one aligned 8-byte store.
package index
