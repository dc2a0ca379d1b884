package journal

import "github.com/rdmakv/rdmakv/store/log"

// The gate sets room in the log aside for a write before it is ordered (package admit). What
// log.Cost says of a record is right if the record travels alone: with what is left of its
// last block, 4 KiB for a put of 10 bytes. But writes that are in flight together share
// frames: all that are queued go into the next commit, as far as it takes them, so what they
// leave of blocks is that of a few frames, however many they are. If each were counted with a
// block of its own, a segment of 32 MiB would have room for some 5,000 writes in flight.
//
// A write that has more than was counted is no harm: its frame waits for a free file, not for
// a checkpoint.

// recordHead bounds what the log adds to the body of a record, with its share of a frame's
// head.
const recordHead = 96

// Cost is what the record of a write takes of the log, in company.
func (j *Journal) Cost(body int) int64 { return int64(body) + recordHead }

// Reserve sets room aside, or fails with log.ErrFull. Return gives it back: Append does.
func (j *Journal) Reserve(n int64, use log.Use) error { return j.log.Reserve(n, use) }

// Unreserve gives room back for a write that was not ordered.
func (j *Journal) Unreserve(n int64) { j.log.Unreserve(n) }

// Room returns how many bytes can be set aside now, and a channel that is closed when that
// may have become more.
func (j *Journal) Room(use log.Use) (int64, <-chan struct{}) { return j.log.Room(use) }

// Bytes is what the segments in force have, of the log's bound.
func (j *Journal) Bytes() int64 { return j.log.Stats().Bytes }

// Stats are the numbers of the log.
func (j *Journal) Stats() log.Stats { return j.log.Stats() }
