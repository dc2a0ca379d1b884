package entry

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The bytes of an entry (little endian). All of it is in the checksum of the log's record, on
// each replica's disk and on the way between nodes:
//
//	 0        1      2       4        8        16
//	+--------+------+-------+--------+--------+--------------------------
//	| format | kind | 0     | count  | reign  | by kind
//	| 8: 1   | 8    | 16    | 32     | 64     |
//	+--------+------+-------+--------+--------+--------------------------
//
// A marker has reign 0 and count 0; it begins one:
//
//	 16       24
//	+--------+--------+
//	| life   | term   |   life: of the process that proposes it, at random, so that a leader
//	| 64     | 64     |   knows its own
//	+--------+--------+
//
// A check has reign 0 and count 0, too. It changes nothing: all replicas compare what they have
// when they have applied it:
//
//	 16
//	+--------+
//	| id     |   at random, so that a leader knows its own
//	| 64     |
//	+--------+
//
// Writes:
//
//	 16       24        32
//	+--------+---------+------+---------------------------------+------+---
//	| first  | numbers | size | body (package logged), to the   | size | ...
//	| 64     | 64      | 64   | next multiple of 8 with zeros   | 64   |
//	+--------+---------+------+---------------------------------+------+---
//
//	first    the first number of the entry
//	numbers  how many it has. A write without a body, a refusal that is only told behind
//	         what it was judged on, has a number, too
//	count    how many bodies there are; their numbers rise
const (
	// Format stands in front. A program that meets another one must not go on, because it
	// would part from the others.
	Format = 1

	offFormat = 0
	offKind   = offFormat + 1
	offZero   = offKind + 1
	offCount  = offZero + 2
	offReign  = offCount + 4
	headLen   = offReign + 8

	offLife   = headLen
	offTerm   = offLife + 8
	markerLen = offTerm + 8

	offID    = headLen
	checkLen = offID + 8

	offFirst   = headLen
	offNumbers = offFirst + 8
	writesHead = offNumbers + 8
	sizeLen    = 8
)

// A Kind says what an entry is.
type Kind uint8

const (
	Marker Kind = 1
	Writes Kind = 2
	Check  Kind = 3
)

// MostNumbers bounds the numbers of an entry: those that fit when each is one of the smallest.
const MostNumbers = 1 << 20

var (
	// ErrNewer: the entry has what this program does not know. A replica that meets it stops,
	// because the others apply it.
	ErrNewer = errors.New("entry: written by a newer version of this program: use that one")
	// ErrMalformed: the entry contradicts itself. Its bytes were verified, so a program wrote it
	// like that.
	ErrMalformed = errors.New("entry: the program that wrote it has an error: keep the log and report it")
)

// An Entry is a parsed entry. It aliases the bytes that were parsed.
type Entry struct {
	Kind  Kind
	Reign uint64 // of writes

	Life, Term uint64 // of a marker
	ID         uint64 // of a check

	First, Numbers uint64 // of writes
	Writes         []logged.Write
}

// Parse reads an entry. It takes any bytes, and what it takes is whole: all its writes were
// parsed. The list of writes is made in spare.
//
// Errors: ErrNewer, ErrMalformed, those of logged.Parse.
func Parse(b []byte, spare []logged.Write) (Entry, error) {
	le := binary.LittleEndian
	switch {
	case len(b) > 0 && b[offFormat] != Format:
		return Entry{}, fmt.Errorf("format %d, expected %d: %w", b[offFormat], Format, ErrNewer)
	case len(b) < headLen:
		return Entry{}, malformed("%d bytes are no head", len(b))
	}
	e := Entry{Kind: Kind(b[offKind]), Reign: le.Uint64(b[offReign:])}
	count := le.Uint32(b[offCount:])
	if le.Uint16(b[offZero:]) != 0 {
		return Entry{}, fmt.Errorf("flags %#x: %w", le.Uint16(b[offZero:]), ErrNewer)
	}
	switch e.Kind {
	case Marker:
		if len(b) != markerLen || count != 0 || e.Reign != 0 {
			return Entry{}, malformed("a marker of %d bytes with %d writes in reign %d", len(b), count, e.Reign)
		}
		e.Life, e.Term = le.Uint64(b[offLife:]), le.Uint64(b[offTerm:])
		if e.Life == 0 || e.Term == 0 {
			return Entry{}, malformed("a marker of life %d in term %d", e.Life, e.Term)
		}
		return e, nil
	case Check:
		if len(b) != checkLen || count != 0 || e.Reign != 0 {
			return Entry{}, malformed("a check of %d bytes with %d writes in reign %d", len(b), count, e.Reign)
		}
		if e.ID = le.Uint64(b[offID:]); e.ID == 0 {
			return Entry{}, malformed("a check without an id")
		}
		return e, nil
	case Writes:
		return e, e.parseWrites(b, count, spare)
	}
	return Entry{}, fmt.Errorf("kind %d: %w", b[offKind], ErrNewer)
}

// parseWrites reads the rest of an entry of writes.
func (e *Entry) parseWrites(b []byte, count uint32, spare []logged.Write) error {
	le := binary.LittleEndian
	if len(b) < writesHead {
		return malformed("writes in %d bytes", len(b))
	}
	e.First, e.Numbers = le.Uint64(b[offFirst:]), le.Uint64(b[offNumbers:])
	switch {
	case e.Reign == 0:
		return malformed("writes of no reign")
	case e.Numbers == 0 || e.Numbers > MostNumbers || uint64(count) > e.Numbers:
		return malformed("%d writes with %d numbers, of at most %d", count, e.Numbers, MostNumbers)
	case e.First == 0 || e.First > layout.MaxNumber || e.Numbers-1 > layout.MaxNumber-e.First:
		return malformed("%d numbers from %d on, of at most %d", e.Numbers, e.First, layout.MaxNumber)
	}
	e.Writes = spare[:0]
	at, next := writesHead, e.First
	for i := range count {
		if len(b)-at < sizeLen {
			return malformed("write %d of %d is not there", i, count)
		}
		size := le.Uint64(b[at:])
		at += sizeLen
		if size > uint64(len(b)-at) || padded(size) > uint64(len(b)-at) {
			return malformed("write %d of %d has %d bytes, and %d are left", i, count, size, len(b)-at)
		}
		body := b[at : at+int(size)]
		for _, c := range b[at+int(size) : at+int(padded(size))] {
			if c != 0 {
				return malformed("write %d of %d is followed by %#x, expected zeros", i, count, c)
			}
		}
		at += int(padded(size))
		w, err := logged.Parse(body)
		if err != nil {
			return fmt.Errorf("write %d of %d: %w", i, count, err)
		}
		if next, err = e.check(&w, next); err != nil {
			return fmt.Errorf("write %d of %d: %w", i, count, err)
		}
		e.Writes = append(e.Writes, w)
	}
	if at != len(b) {
		return malformed("%d bytes behind the last write", len(b)-at)
	}
	return nil
}

// check holds a write to what a leader numbers: next is the first number that it may have.
// It returns the next behind the write.
func (e *Entry) check(w *logged.Write, next uint64) (uint64, error) {
	last, part := w.Version.Number(), next
	if w.Version.NumberedShard() != w.Shard || last < next || last-e.First >= e.Numbers {
		return 0, malformed("a write of version %v in shard %d, among %d numbers from %d on, of which %d is next", w.Version, w.Shard, e.Numbers, e.First, next)
	}
	var one []byte          // the first key
	var all map[string]bool // all keys, of a write with more than one
	for x := range w.Effects {
		switch {
		case one == nil:
			one = x.Key
		case all == nil:
			all = map[string]bool{string(one): true}
			fallthrough
		default:
			if all[string(x.Key)] {
				return 0, malformed("a key twice in one write")
			}
			all[string(x.Key)] = true
		}
		switch {
		case x.Apart || x.Bytes != nil:
			return 0, malformed("a key whose value stands elsewhere")
		case x.Noop:
			continue // it has the version of the write
		case x.Version.NumberedShard() != w.Shard || x.Version.Number() < part:
			return 0, malformed("a key of version %v in shard %d, number %d is next", x.Version, w.Shard, part)
		}
		part = x.Version.Number() + 1
	}
	return last + 1, nil
}

// padded is a size at the next multiple of 8.
func padded(n uint64) uint64 { return (n + 7) &^ 7 }

func malformed(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrMalformed)
}
