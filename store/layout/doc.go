// Package layout is the bytes that a remote reader sees, and the rules by which
// it may believe them: region header, beat, root table, directory, bucket,
// slot, item, reclaim ring. The server writes through this package and the
// client reads through it; no other code decides what a valid read is.
//
// # The ground it stands on
//
// A client's NIC READs the server's registered memory while the server writes
// it. Everything here follows from what such a READ promises, which is little:
//
//   - one aligned 8-byte word is fetched whole;
//   - the words of one READ, and the READs of one batch, are fetched in any
//     order and at any time between the post and the completion;
//   - a READ posted after another's completion sees nothing older.
//
// So every structure is built of little-endian 8-byte words, places and lengths
// are multiples of 8, and each word that matters alone (state, slot, bucket
// header, root, directory entry) is written by one atomic store. Anything
// longer than a word carries a checksum over all of itself.
//
// # The parts, in reading order
//
//	place.go      Place, Version, State, Region: the vocabulary
//	words…        how server memory is written, and why that is enough
//	region.go     the header page of each region
//	beat.go       the words that a lease is made of
//	reclaim.go    the ring of retired pages
//	hash.go       key → fingerprint, directory bits, two groups
//	bucket.go     segments, bucket header, slot
//	directory.go  root words and directory entries
//	classes.go    size classes of items
//	item*.go      the item: sizes, write, parse, chunk sums
//	view.go       the region table as a client holds it
//	dir.go        a client's cache of directories
//	lookup*.go    one key's get, as a pure state machine
//
// docs/layout.md draws the bytes, docs/correctness.md gives the reasons.
//
// Parsers take hostile bytes: they compare every length with what is there
// before they use it, never panic, and do not allocate. Writers take values
// that the server made itself; a value out of range there is a broken invariant
// and panics with its numbers.
package layout

// FormatVersion stands in every region header. A reader that knows another
// number refuses the region (ErrFormatVersion).
const FormatVersion = 2

const (
	// PageSize is the unit in which index memory is allotted and retired, and
	// the size of a region's header page and of one directory READ, in bytes.
	PageSize = 4096
	// MaxKeyLen and MaxValueLen bound a key (at least 1 byte) and a value (at
	// least 0), in bytes.
	MaxKeyLen   = 4096
	MaxValueLen = 64 << 20
	// ChunkSize is the piece of a large value that has a checksum of its own.
	// A value longer than this is a chunked one.
	ChunkSize = 64 << 10
	// RegionGranule divides the base and the length of every region, in bytes.
	RegionGranule = 1 << 20
	// MaxShards is the number of shards that a bucket header can name.
	MaxShards = 1 << 12
	// MaxDepth bounds a directory to 2^MaxDepth entries.
	MaxDepth = 20
)

// wordSize is the unit of everything: what a READ fetches whole.
const wordSize = 8
