package checkpoint

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Bound is how much a Range takes at most, but for the record by which it is reached.
// Beside its bytes each key of Pebble takes about 100 more.
type Bound struct {
	Bytes int // of keys and values; 128 MiB
	Keys  int // of Pebble; a million
}

const (
	defaultBytes = 128 << 20
	defaultKeys  = 1 << 20
	maxKeys      = math.MaxInt32
)

// withDefaults fills in what is zero.
func (b Bound) withDefaults() Bound {
	if b.Bytes <= 0 {
		b.Bytes = defaultBytes
	}
	if b.Keys <= 0 {
		b.Keys = defaultKeys
	}
	b.Keys = min(b.Keys, maxKeys)
	return b
}

// A Range is what a range of the log says: the newest of each key of Pebble. It is pure
// memory, and it is used by one goroutine.
type Range struct {
	bound  Bound
	stream uint64
	facts  map[uint16]string

	memory arena
	list   entries
	places []uint32 // a table of hashes: 1 + index in list
	sorted []place  // the list in the order of Pebble's keys; nil: to be made

	waiting   pieces
	mark      disk.ValuesMark // of the base, and then of what the base will be
	dropped   []base.Bytes    // in tables of values: to them leads no record any more
	bytes     int64           // of values in tables
	source    Bytes
	taken     []tables.Sealed // tables that come in with the range
	marked    disk.ValuesMark // what the base has said
	first     uint64          // the number of the first of them
	gone      []base.Bytes    // of dropped, those that are deleted with the range
	deadBytes int64
	orphans   [][2][]byte // keys of the base that are deleted, each from the first up to the second
	dues      []due       // of a range that has been given back
	given     bool

	key     []byte // of the entry that is added
	newest  layout.Version
	records uint64
}

// An entry is what becomes of one key of Pebble. It has no pointers, so a collection of
// garbage does not look at a million of them.
type entry struct {
	head, next uint64 // the first 16 bytes of the key, as numbers that compare like it
	version    layout.Version
	expiry     uint64
	hash       uint32 // the upper half of the hash of the key
	at         ref    // the key, and the value behind it
	key        uint32 // bytes
	value      uint32 // bytes
	room       uint32 // bytes there are for the value
	gone       bool   // the key is deleted
	inTable    bool   // what stands in the place of the value is where it stands (bytes.go)
}

// entries are the entries of a range, in chunks: a slice that grows leaves its older selves as
// garbage, as much again as it has, and moves what is in it.
type entries struct {
	chunks [][]entry // of chunkEntries each, the last one perhaps less full
	n      int
}

const chunkEntries = 1 << 12 // 256 KiB

// at is the entry of an index below n.
func (l *entries) at(i uint32) *entry { return &l.chunks[i/chunkEntries][i%chunkEntries] }

// add adds an entry, and returns where it stands until the next one is added.
func (l *entries) add(e entry) *entry {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last]) == chunkEntries {
		room := chunkEntries
		if last < 0 {
			room = 16 // most ranges of a store at rest are this small
		}
		l.chunks = append(l.chunks, make([]entry, 0, room))
		last++
	}
	c := append(l.chunks[last], e)
	l.chunks[last] = c
	l.n++
	return &c[len(c)-1]
}

// A place says where an entry stands in the list, while the list is sorted.
type place struct {
	head, next uint64
	index      uint32
}

// An arena has the bytes of keys and values, in chunks that are never moved and never
// given back before all of it is. What refers to it are numbers, and not pointers that a
// collection of garbage would follow.
type arena struct {
	chunks [][]byte
	used   int // bytes that were taken
}

// chunkSize is the size of a chunk, unless what stands in it is larger.
const chunkSize = 1 << 20

// A ref is a place in an arena.
type ref struct{ chunk, offset uint32 }

// take returns room for n bytes.
func (a *arena) take(n int) (ref, []byte) {
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < n {
		a.chunks = append(a.chunks, make([]byte, 0, max(n, chunkSize)))
		last++
	}
	c := a.chunks[last]
	at := ref{uint32(last), uint32(len(c))}
	a.chunks[last] = c[:len(c)+n]
	a.used += n
	return at, a.chunks[last][at.offset:]
}

// bytes returns the n bytes that stand so far behind a place.
func (a *arena) bytes(at ref, skip, n int) []byte {
	from := int(at.offset) + skip
	return a.chunks[at.chunk][from : from+n : from+n]
}

// NewRange returns an empty Range of a stream's records. facts says under which name
// of kind meta each fact of the stream stands in the base; one whose name is empty is
// the log's alone.
func NewRange(stream uint64, facts map[uint16]string, bound Bound) *Range {
	return &Range{bound: bound.withDefaults(), stream: stream, facts: facts, places: make([]uint32, 1<<10)}
}

// Full says that the memory is at its bound, with the pieces of values that wait for their
// write. What is added all the same is taken.
func (r *Range) Full() bool {
	return r.memory.used+r.waiting.used >= r.bound.Bytes || r.bytes >= bytesShare*int64(r.bound.Bytes) || r.list.n >= r.bound.Keys
}

// half says that half of what the range takes is there.
func (r *Range) half() bool {
	return r.memory.used >= r.bound.Bytes/2 && r.memory.used > 0 || 2*r.list.n >= r.bound.Keys && r.list.n > 0
}

// Keys is how many keys of Pebble the range says something of.
func (r *Range) Keys() int { return r.list.n }

// Newest is the newest version of any write in the range.
func (r *Range) Newest() layout.Version { return r.newest }

// set notes that a key of Pebble, which stands in r.key, has a value from now on.
func (r *Range) set(v layout.Version, expiry uint64, value []byte) {
	e := r.find(len(value))
	r.drop(e)
	e.version, e.expiry, e.gone = v, expiry, false
	if len(value) > int(e.room) {
		// The older value is lost memory until the range is written. What is written
		// again and again mostly keeps its size.
		at, b := r.memory.take(len(r.key) + len(value))
		copy(b, r.key)
		e.at, e.room = at, uint32(len(value))
	}
	e.value = uint32(len(value))
	copy(r.memory.bytes(e.at, int(e.key), len(value)), value)
}

// take is set for a value that is in the memory of the range already, behind its key.
func (r *Range) take(v layout.Version, expiry uint64, value *placed) {
	e := r.find(0)
	r.drop(e)
	e.version, e.expiry, e.gone = v, expiry, false
	e.at, e.room, e.value = value.at, uint32(value.size), uint32(value.size)
}

// remove notes that a key of Pebble, which stands in r.key, is gone from now on.
func (r *Range) remove() {
	e := r.find(0)
	r.drop(e)
	e.gone, e.value, e.version, e.expiry = true, 0, 0, 0
}

// find returns the entry of r.key, and makes it if there is none.
func (r *Range) find(room int) *entry {
	h := xxh3.Hash(r.key)
	if 2*r.list.n >= len(r.places) {
		r.grow()
	}
	mask := uint64(len(r.places) - 1)
	for p := h & mask; ; p = (p + 1) & mask {
		at := r.places[p]
		if at == 0 {
			r.places[p] = uint32(r.list.n + 1)
			break
		}
		e := r.list.at(at - 1)
		if e.hash == uint32(h>>32) && string(r.keyOf(e)) == string(r.key) {
			return e
		}
	}
	r.sorted = nil
	at, b := r.memory.take(len(r.key) + room)
	copy(b, r.key)
	var first [16]byte
	copy(first[:], r.key)
	return r.list.add(entry{
		head: binary.BigEndian.Uint64(first[:]), next: binary.BigEndian.Uint64(first[8:]),
		hash: uint32(h >> 32), at: at, key: uint32(len(r.key)), room: uint32(room),
	})
}

// grow doubles the table of hashes.
func (r *Range) grow() {
	r.places = make([]uint32, 2*len(r.places))
	mask := uint64(len(r.places) - 1)
	for i := range uint32(r.list.n) {
		p := xxh3.Hash(r.keyOf(r.list.at(i))) & mask
		for r.places[p] != 0 {
			p = (p + 1) & mask
		}
		r.places[p] = i + 1
	}
}

func (r *Range) keyOf(e *entry) []byte { return r.memory.bytes(e.at, 0, int(e.key)) }

func (r *Range) valueOf(e *entry) []byte { return r.memory.bytes(e.at, int(e.key), int(e.value)) }

// order returns the list in the order of Pebble's keys.
func (r *Range) order() []place {
	if r.sorted != nil || r.list.n == 0 {
		return r.sorted
	}
	r.sorted = make([]place, r.list.n)
	for i := range uint32(r.list.n) {
		e := r.list.at(i)
		r.sorted[i] = place{e.head, e.next, i}
	}
	slices.SortFunc(r.sorted, r.compare)
	return r.sorted
}

// compare orders two entries by their keys, which are never the same. Two keys that
// differ only in zeros at their ends have the same 16 bytes at the front.
func (r *Range) compare(a, b place) int {
	switch {
	case a.head < b.head || a.head == b.head && a.next < b.next:
		return -1
	case a.head != b.head || a.next != b.next:
		return 1
	}
	return bytes.Compare(r.keyOf(r.list.at(a.index)), r.keyOf(r.list.at(b.index)))
}
