// Package format is the bytes of the log: what stands in a log segment, and how a reader
// knows that it was written there, by this store, in this use of the file. It does no I/O
// and keeps no state, so that writer, reader and tools agree, and so that every byte can be
// tested alone. Numbers are little endian.
//
// A log segment is a file of a fixed size. It begins with a header of one block; behind it
// stand frames, each of which one write carried. A frame is a head and records:
//
//	segment   | header | frame | frame | . . . | frame | bytes of an earlier use, or zeros |
//	frame     | head | record | record | . . . | zeros up to where the next frame may begin |
//
// # What verifies was written here, now
//
// Files are used again, and what stands behind the newest frame is an older use of the
// same file: whole frames, with good checksums, at the same offsets. Clients also write
// values that look like frames, at offsets that they can guess. A reader takes neither for
// a frame because every checksum is seeded with the salt of this use of the file: a random
// number of 64 bits that stands in the header alone and never leaves the server. The head
// of a frame also names its position and its life, and the checksum of a record is bound
// to the record's position. If a checksum had only the store's id and the position in it,
// a start that cut the log behind a torn frame would later find the rest of that frame
// behind its own shorter one, and take it for the log's.
package format
