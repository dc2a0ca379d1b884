// Package streams is what a log knows of its streams: which records of each still count,
// where they stand, and what the oldest is that anybody needs. It is a table in memory. It
// does no I/O, has no clock and no goroutine, and is not safe for concurrent use: the log's
// lock guards it. The table is made from the records alone, so a replay of the segments in
// force leads to the same table.
//
// # What counts
//
//	write   until the stream releases it: a checkpoint has it
//	entry   until another entry at its index or below takes its place, or it is trimmed
//	fact    until another fact of its name takes its place, an empty one removes it, or
//	        the stream is dropped
//
// What counts keeps its segment in force, facts apart: they are written again (FactsIn)
// before their segment goes.
//
// # The rules, and what happens without them
//
//   - An entry takes the place of all entries from its index on. If those behind it stayed,
//     entries that a new leader has replaced would come back.
//   - An entry follows the one before it, and its term is not below that one's; the first
//     entry of a stream may have any index. Otherwise the log has holes that nobody sees
//     before somebody asks for them.
//   - No entry comes again at or below the trim point: a checkpoint has what stood there.
//   - The trim point is a fact, with its term, because the one who asks what follows it must
//     be told the term of what was before. A snapshot that takes the place of all entries says
//     so (FactBegin). If it only told a trim point that the entries contradict, a replay that
//     begins between them would not see the contradiction, and keep the last of them.
//   - A dropped stream needs nothing, and no record of it comes behind the fact that it was
//     dropped. Otherwise a start would find a stream that nobody will ever trim, and keep its
//     segments for ever. The table remembers it as long as a record of it can be replayed.
//   - Segments go from the oldest. So what takes something away (an empty fact, a drop) need
//     not be written again: what it took away stands before it, and goes first.
//   - The log lets a segment go only when everything noted so far is durable. If a trim, a
//     removal or a drop could be lost after the segment has gone, a start would find a stream
//     without its beginning.
//   - FactsIn, and the seal of the frame that carries what it has found, are under one hold
//     of the log's lock. Otherwise a newer fact can be sealed in between, and the carried one
//     would take its place.
//
// # A replay begins in the middle
//
// The segments in force are the end of the log, and segments go from the oldest. So a
// replay sees every record behind some position, and none before, and the first record of a
// stream can be any of them. An entry that comes first sets where the stream begins, but
// that is only what the replay has seen: an entry below it may follow, which took its place
// in the part that is still there. So Note, unlike Check, refuses an entry below the first
// only if a trim point was told. A fact that is carried stands behind records that are newer
// than it; this is no harm, because it is the newest of its name.
package streams
