// Package checkpoint takes what a range of the log says into the base.
//
// The log has every write in its order; the base (Pebble) is what stands behind it: at
// every moment, and after every crash, it is exactly the state at one position of the
// log. A checkpoint moves it from one position to a later one. It reads the records in
// between from the segments (Run), keeps of each key of Pebble what the log says of it
// last (Range), and has that written in the order of the keys, together with the new
// position, by one ingest (Ingest):
//
//	log   ... | from                                 to | ...
//	              record  record  record  ...  record
//	                 \       \       |          /
//	                  Range: the newest of each Pebble key
//	                          | sorted
//	                   data, results, expiry entries, values, facts, position
//	                          | one ingest
//	base  state at from  ------------------------------->  state at to
//
// "Newest" is the last in the order of the log, and it is taken for each key of Pebble,
// not of the user. A write that a later one of the same key supersedes leaves its result
// and the deletes of its expiry entries all the same: a retry of it is still told what
// became of it, and no entry stays listed that nobody deletes later.
//
// Nothing is asked of memory: an item there may be of a write behind the range, and then
// the base would have a part of what it may not have yet.
//
// The base never stands ahead of what the log has durably, because Run syncs the log
// before it reads, in every policy. If it did not, a power cut could leave a base with
// writes that the log has not, and the log would give their positions out again.
package checkpoint
