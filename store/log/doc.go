// Package log is the log of a node: what makes a write durable before anybody can see it.
// One log carries the records of many streams (a keyspace, a replicated group), in one
// order, and gives room back once a checkpoint has what stands in it.
//
// # What stands where
//
// A log is a directory of segments, files of a fixed size that are used again and again;
// package format draws their bytes. Each opening of the log is a life, with a number that
// is never used twice:
//
//	life 3              life 3              life 4
//	+--------------+    +--------------+    +--------------+    +---------+    +---------+
//	| 00000007.seg |    | 00000008.seg |    | 00000009.seg |    | 1.free  |    | 2.free  |
//	+--------------+    +------+-------+    +--------------+    +---------+    +---------+
//	                           ^ cut: here life 4 found the end
//
//	LIFE   the newest life, and the newest that had a segment when this one began
//
// # How a frame is written
//
// The records that one write carries are a frame: after a crash all of them are there, or
// none. Its way is
//
//	Begin   the caller fills a frame; several callers may do so at once
//	Seal    the frame gets its position: this is its place in the one order of the log
//	Write   its bytes go to the disk. Frames may be written at the same time, and end in
//	        any order
//	Turn    returns when this frame and all before it are durable (as far as the policy
//	        goes), and all before it have passed: the caller now publishes and answers
//	Pass    the next frame's turn begins
//
// # The rules, and what happens without them
//
//   - A block with acknowledged records is never written again, because a torn write would
//     take them with it. So a frame begins in a block that holds nothing durable.
//   - A segment is in force once it has its number for a name. It gets the name when its
//     header is durable. So a named segment with a bad header is damage; if it could be a
//     file that was never used, damage would pass for the end of the log.
//   - Checksums are seeded with a random salt of this use of the file. Otherwise bytes of an
//     earlier use, or bytes that a client put into a value, pass for frames.
//   - A life begins a segment, which says where the log before it ends. It never writes
//     behind the end that it found: a frame that an earlier start has declared void could
//     become good again.
//   - The number of a life is durable in LIFE and in a header before anything is told. If
//     the two differ by more than a start that was cut short, one of them is older than
//     the other says, and the log is damaged.
//   - A frame says up to where everything was durable when it was made. What does not
//     verify is damage if a good frame behind it says that it was durable, and else the
//     end. Nobody writes further ahead of a byte that is not durable than the header says;
//     otherwise what frames say of durable would be old without bound, and damage would
//     pass for the end. For the same reason a log with nothing to do gets an empty frame.
//   - Read is not durable. A start syncs everything before it reads, reads past the page
//     cache, and where that cannot be had, writes again what was not known to be durable.
//   - After the first write or sync that fails or is short nothing is written any more. A
//     second sync may succeed although the disk has nothing.
//   - Frames are published in their order, empty ones too. An acknowledged frame whose
//     predecessor is lost would be cut off together with it.
//   - Facts (a term, a vote, an epoch) are written again before the segment that holds them
//     is freed, and that is durable before the segment goes.
package log
