// Package disk is all that a store has on the disk beside its log: a locked directory, the
// base (a Pebble without a log), the facts about the store, and the ledger of the base's
// files. No other package reaches Pebble, but package tables, which changes a base.
//
// There are two ways into it. A checkpoint changes the base by one ingest of tables
// (base.go); it is there whole after a crash, or not at all. And the store notes facts about
// itself (facts.go): the bound of the clock, what is to be told of results, how the life
// ended. They go into the log, and with a checkpoint into the base (factlog.go).
//
// There are three ways out. Read returns the record of one key, Records and what is built
// on it walk over many (records.go), both with values that stand apart (values.go), and the
// facts are read when the disk is opened (meta.go). Of a stopped store Inspect and Adopt count
// what the log says behind the base, too (tail.go). Nothing of it knows what was published:
// what may be told is the store's business.
//
// New, Open, Join, Begin, MarkClean and Close are the life of a Disk (factlog.go). The log is
// opened and closed by the caller in between.
//
// A store of format 1 or 2 is a Pebble with a log. Open upgrades it (convert.go), Inspect and
// Adopt take it as it is, and nothing else knows of it.
//
// Every error of an opening is
// a *base.OpenError, which says what is wrong with the directory and what to do. Damage is
// a *base.CorruptError: Pebble's checksums find it in blocks, those of records on the
// whole way from the caller (format.go), the ledger in what Pebble takes for the end of a
// file (ledger.go), and the list of blob files in files that are gone (blobs.go). A disk on
// which Pebble cannot write fences the store (events.go, stopfs.go).
package disk
