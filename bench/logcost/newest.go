package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Of a range of the log a checkpoint needs the newest record of each key, sorted by
// the keys of Pebble; a replay needs the newest, in no order. Two ways are measured.

// An entry is one record while it is sorted: sixteen bytes that decide nearly every comparison,
// and where the rest stands.
type entry struct {
	head uint64 // shard, and the first bytes of the key
	next uint64 // the eight bytes of the key behind these
	at   uint32 // in the list of records: later ones are newer
}

// headOf packs the shard and the first six bytes of the key, in Pebble's order.
func headOf(r *record) (head, next uint64) {
	var b [14]byte
	copy(b[:], r.key)
	return uint64(r.shard)<<48 | binary.BigEndian.Uint64(b[:])>>16, binary.BigEndian.Uint64(b[6:])
}

// bySort sorts all records and drops all but the newest of each key.
func bySort(records []record) []entry {
	list := make([]entry, len(records))
	for i := range records {
		h, n := headOf(&records[i])
		list[i] = entry{h, n, uint32(i)}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if c := compareEntries(records, a, b); c != 0 {
			return c
		}
		return cmp.Compare(b.at, a.at) // the newest first
	})
	return slices.CompactFunc(list, func(a, b entry) bool { return compareEntries(records, a, b) == 0 })
}

// compareEntries compares by the keys of Pebble.
func compareEntries(records []record, a, b entry) int {
	if c := cmp.Compare(a.head, b.head); c != 0 {
		return c
	}
	if c := cmp.Compare(a.next, b.next); c != 0 {
		return c
	}
	return bytes.Compare(records[a.at].key, records[b.at].key)
}

// A newestTable finds the newest record of a key by its hash: open addressing, one word of
// four bytes a place, made once for a range of the log.
type newestTable struct {
	places []uint32 // 1 + index of the record
	hashes []uint32 // upper half of the hash of each record
	mask   uint64
}

// newTable makes a table for at most so many records.
func newTable(records int) *newestTable {
	size := 16
	for size < records*3/2 {
		size *= 2
	}
	return &newestTable{places: make([]uint32, size), hashes: make([]uint32, records), mask: uint64(size - 1)}
}

// hash is of a record's shard and key.
func (r *record) hash() uint64 { return xxh3.HashSeed(r.key, uint64(r.shard)) }

// add notes that records[i], whose hash is h, is the newest of its key.
func (t *newestTable) add(records []record, i int, h uint64) {
	r := &records[i]
	t.hashes[i] = uint32(h >> 32)
	for p := h & t.mask; ; p = (p + 1) & t.mask {
		at := t.places[p]
		if at == 0 {
			t.places[p] = uint32(i + 1)
			return
		}
		old := &records[at-1]
		if t.hashes[at-1] == t.hashes[i] && old.shard == r.shard && bytes.Equal(old.key, r.key) {
			t.places[p] = uint32(i + 1)
			return
		}
	}
}

// list returns the records that are left, in no order.
func (t *newestTable) list() (out []uint32) {
	for _, at := range t.places {
		if at != 0 {
			out = append(out, at-1)
		}
	}
	return out
}

// byTable drops all but the newest of each key, and sorts what is left.
func byTable(records []record) []entry {
	t := newTable(len(records))
	for i := range records {
		t.add(records, i, records[i].hash())
	}
	newest := t.list()
	list := make([]entry, len(newest))
	for i, at := range newest {
		h, n := headOf(&records[at])
		list[i] = entry{h, n, at}
	}
	slices.SortFunc(list, func(a, b entry) int { return compareEntries(records, a, b) })
	return list
}
