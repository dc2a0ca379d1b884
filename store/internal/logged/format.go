// Package logged is a write as it stands in the log: one body for each write, that is
// whole or not there. It says what becomes of each key, what a retry of the request is
// told, and which results of requests are forgotten, so whoever reads the log asks nothing
// of memory or of the base. There is no I/O here, no lock and no state.
//
// What a write was asked is not in its body, but what it came to: an increment has the
// number, a touch has the value that it left alone. The newest body of a key is therefore
// all there is to know of it, and older ones may be dropped unread. If a touch named only
// its expiry, the value would go with the segment of the put before it.
package logged

import (
	"errors"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
)

// The body of a write (little endian; it begins at 8 bytes, as bodies in the log do):
//
//	 0        1         8       9       10      12        14        16
//	+--------+---------+-------+-------+-------+---------+---------+--------+---------+-------+-------+
//	| format | version | flags | words | shard | effects | forgets | result | effects | keys, | slots |
//	| 8      | 56      | 0     | 8     | 16    | 16      | 16      | words  | heads   | values|       |
//	+--------+---------+-------+-------+-------+---------+---------+--------+---------+-------+-------+
//
//	version  the last that the write took; its parts have the versions up to it
//	effects  how many there are: keys that change, and keys that the expirer takes off its list
//	result   the record of the request's result (dedup.Result), without its words that are
//	         zero: bit i of words says whether word i is there. No bits: no result. Word 0,
//	         with the request's number, is never zero
//	keys,    of the effects, one behind the other: key, value, key, value
//	values
//	slots    of 18 bytes (base.SlotKey): that of the result, if there is one, then those
//	         whose results are forgotten
//
// The head of an effect:
//
//	 0       1          2         4           8
//	+-------+----------+---------+-----------+--------+--------+-----+---------+
//	| flags | more     | key     | value     | expiry | unlist | due | version |
//	| 8     | flags: 8 | 16: its | 32: its   | 64     | 64     | 64  | 64      |
//	|       |          | length  | length    |        |        |     |         |
//	+-------+----------+---------+-----------+--------+--------+-----+---------+
//
// Each of the last four is there if its flag is set. An effect has the version behind that
// of the effect before it, and the first one is so far before the write's that the last
// one meets it; where parts of a batch had no effect there are gaps, and the effect behind
// a gap names its version. All words of 64 bits stand at multiples of 8, because the heads
// stand in front of the keys and values.
//
// A write has one encoding: what Parse takes is the same bytes when it is put again.
const (
	// Format stands in front. A program that knows another number refuses the body.
	Format = 1

	offFormat  = 0 // one word with the version
	offFlags   = offFormat + 8
	offWords   = offFlags + 1
	offShard   = offWords + 1
	offEffects = offShard + 2
	offForgets = offEffects + 2
	headLen    = offForgets + 2

	formatBits  = 8
	resultWords = dedup.ValueLen / 8

	offEffectFlags = 0
	offEffectMore  = offEffectFlags + 1
	offKeyLen      = offEffectMore + 1
	offValueLen    = offKeyLen + 2
	effectLen      = offValueLen + 4 // without the words that flags stand for
)

// The flags of an effect. The low bits are its kind.
const (
	kindMask = 1<<2 - 1

	flagKeeps   = 1 << 2 // the key stays as it is: only its entry, due, leaves the list
	flagExpiry  = 1 << 3
	flagUnlist  = 1 << 4
	flagDue     = 1 << 5
	flagVersion = 1 << 6
	// flagApart says that the value stands in pieces elsewhere in the log, and that its
	// description stands in its place (apart.go).
	flagApart = 1 << 7

	// moreBytes, of the second byte of flags, says that the value stands in a table of values,
	// and that in its place is where (bytes.go). A program that does not know it refuses the
	// body as one of a newer version.
	moreBytes = 1 << 0

	flagsOfWords = flagExpiry | flagUnlist | flagDue | flagVersion
)

// The kinds of effects are numbered on the disk as in memory. If base gives them other
// numbers this does not compile, and the numbers here have to be told from those.
var _ = [1]struct{}{}[base.OpPut-0]
var _ = [1]struct{}{}[base.OpDelete-1]
var _ = [1]struct{}{}[base.OpIncrement-2]
var _ = [1]struct{}{}[base.OpTouch-kindMask]

var (
	// ErrNewer says that a body has what this program does not know. It was not damaged:
	// the log verifies records before they come here.
	ErrNewer = errors.New("written by a newer version of this program: use that one")
	// ErrMalformed says that a body contradicts itself. The log has verified its bytes, so
	// it was written like that.
	ErrMalformed = errors.New("the program that wrote it has an error: keep the log and report it")
)
