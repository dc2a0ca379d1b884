// Package disk is all that a store has on the disk: a locked directory, Pebble, the facts
// about the store, and the ledger of Pebble's files. No other package reaches Pebble.
//
// There are two ways into it. A Change is what a commit becomes (change.go): keys, the
// list of what expires, results of requests. It is there whole after a crash, or not at
// all; Append puts it into the log, Wait returns when it is durable. And the store notes
// facts about itself (facts.go), each by a batch of its own: the epoch, the heartbeat, the
// bound of the clock, how the life ended.
//
// There are three ways out. Read returns the record of one key, Records and what is built
// on it walk over many (records.go), both with values that stand apart (values.go), and the
// facts are read when the disk is opened (meta.go). Of a stopped store that has a log of its
// own, Inspect and Adopt count what the log says behind the base, too (tail.go, overlay.go). Nothing of it knows what was published: what may be told is the store's
// business.
//
// New, Open, Begin and Close are the life of a Disk (open.go).
//
// Of a store of format 3 it is the base alone (base.go): a Pebble without a log, which
// checkpoints change, and the facts, which go into the store's own log (factlog.go). Then
// Join comes between Open and Begin, and MarkClean before Close (join.go); a store of an
// older format is upgraded by Open (convert.go).
//
// Every error of an opening is
// a *base.OpenError, which says what is wrong with the directory and what to do. Damage is
// a *base.CorruptError: Pebble's checksums find it in blocks, those of records on the
// whole way from the caller (format.go), the ledger in what Pebble takes for the end of a
// file (ledger.go), and the list of blob files in files that are gone (blobs.go). A disk on
// which the log cannot be written fences the store (events.go, stopfs.go).
package disk
