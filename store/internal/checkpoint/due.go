package checkpoint

import (
	"cmp"
	"slices"

	"github.com/rdmakv/rdmakv/store/internal/disk"
)

// What is left of a range when the base has it: the expiries that it lists.

// A due is the earliest second under which a range lists a key of a shard.
type due struct {
	shard  uint16
	second uint64
}

// Due returns the earliest second under which the range lists a key of a shard; ok says
// whether there is one. The mark of the expirer is lowered to it when the base has the
// entry: the expirer looks at no second before its mark, so the key would stay for ever.
func (r *Range) Due(shard uint16) (second uint64, ok bool) {
	dues := r.earliest()
	i, ok := slices.BinarySearchFunc(dues, shard, func(d due, shard uint16) int { return cmp.Compare(d.shard, shard) })
	if !ok {
		return 0, false
	}
	return dues[i].second, true
}

// Dues yields Due of every shard that has one, by their numbers: for shard, second := range
// r.Dues.
func (r *Range) Dues(yield func(shard uint16, second uint64) bool) {
	for _, d := range r.earliest() {
		if !yield(d.shard, d.second) {
			return
		}
	}
}

// earliest returns what is due, by shards. While the range grows it is looked for each
// time, in one pass over the entries.
func (r *Range) earliest() []due {
	if r.given {
		return r.dues
	}
	var dues []due
	at := map[uint16]int{}
	for i := range uint32(r.list.n) {
		e := r.list.at(i)
		if e.gone || disk.Kind(e.head>>40) != disk.KindExpiry {
			continue
		}
		shard := uint16(e.head >> 48)
		second, _, ok := disk.ParseExpiryKey(r.keyOf(e)[keyHead:])
		if !ok {
			continue
		}
		n, known := at[shard]
		if !known {
			at[shard], dues = len(dues), append(dues, due{shard, second})
		} else {
			dues[n].second = min(dues[n].second, second)
		}
	}
	slices.SortFunc(dues, func(a, b due) int { return cmp.Compare(a.shard, b.shard) })
	return dues
}

// keyHead is the length of what stands before a user's key or a second in a key of Pebble:
// the shard and the kind.
var keyHead = len(disk.AppendKey(nil, 0, disk.KindExpiry, nil))

// giveBack gives back all memory but what Due tells. Nothing is added or written after it.
func (r *Range) giveBack() {
	r.dues, r.given = r.earliest(), true
	r.memory, r.list, r.places, r.sorted, r.waiting, r.key = arena{}, entries{}, nil, nil, pieces{}, nil
	r.dropped = nil
}
