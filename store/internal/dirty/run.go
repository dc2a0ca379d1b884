package dirty

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"sync"
)

// A run is a sequence of records that can be gone through in key order. It is sorted when
// somebody scans for the first time, not under the shard's lock, and kept for all views.
//
// Runs are of four sizes: the tail of fewer than step records, which every view sorts for
// itself if it is of a new moment; step records of the newest chunk; a chunk; groupOf chunks.
// So a view has 2*groupOf runs at the front and the end, beside one for every 65,536 records,
// and a page need not go through hundreds. Larger groups would need references of more than
// 16 bits, and save nothing below a million keys of a shard.
type run struct {
	pieces []piece
	once   sync.Once
	// order has a reference to the newest record of each key: the number of its piece in the
	// upper bits, its index there in the lower 12.
	order []uint16
}

const (
	step    = 256
	groupOf = 1 << (16 - chunkBits) // chunks of a group, so that references have 16 bits
)

func newRun(pieces ...piece) *run { return &run{pieces: pieces} }

// at returns the record of a reference, and its key.
func (r *run) at(ref uint16) (*record, []byte) {
	p := &r.pieces[ref>>chunkBits]
	rec := &p.records[ref&(perChunk-1)]
	return rec, p.keyOf(rec)
}

// sorted returns the run's order, and makes it if nobody has yet.
func (r *run) sorted() []uint16 {
	r.once.Do(func() {
		total := 0
		for i := range r.pieces {
			total += len(r.pieces[i].records)
		}
		list := make([]sortable, 0, total)
		skip := r.common()
		for i := len(r.pieces) - 1; i >= 0; i-- {
			for j := len(r.pieces[i].records) - 1; j >= 0; j-- { // the newest first
				ref := uint16(i<<chunkBits | j)
				_, key := r.at(ref)
				list = append(list, sortable{prefixOf(key[skip:]), ref})
			}
		}
		list = byPrefix(list)
		for from, to := 0, 0; from < len(list); from = to {
			for to = from + 1; to < len(list) && list[to].prefix == list[from].prefix; to++ {
			}
			slices.SortFunc(list[from:to], func(a, b sortable) int { return r.compare(a.ref, b.ref) })
		}
		list = slices.CompactFunc(list, r.same) // keeps the first of each key
		r.order = make([]uint16, len(list))
		for i := range list {
			r.order[i] = list[i].ref
		}
	})
	return r.order
}

// compare orders by key, and the newest record of a key first.
func (r *run) compare(a, b uint16) int {
	_, x := r.at(a)
	_, y := r.at(b)
	if d := bytes.Compare(x, y); d != 0 {
		return d
	}
	return cmp.Compare(b, a)
}

func (r *run) same(a, b sortable) bool {
	if a.prefix != b.prefix {
		return false
	}
	_, x := r.at(a.ref)
	_, y := r.at(b.ref)
	return bytes.Equal(x, y)
}

// common is how many bytes all keys of the run begin with.
func (r *run) common() int {
	_, first := r.at(0)
	n := len(first)
	for i := range r.pieces {
		p := &r.pieces[i]
		for j := range p.records {
			key := p.keyOf(&p.records[j])
			n = min(n, len(key))
			for k := range n {
				if key[k] != first[k] {
					n = k
					break
				}
			}
		}
	}
	return n
}

// search returns the index in the order of the first key that is not below one.
func (r *run) search(key []byte) int {
	order := r.sorted()
	return sort.Search(len(order), func(i int) bool {
		_, k := r.at(order[i])
		return bytes.Compare(k, key) >= 0
	})
}
