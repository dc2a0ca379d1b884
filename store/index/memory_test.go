package index

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
	"github.com/rdmakv/rdmakv/store/slab"
)

// sizing is a store of synthetic keys, of which only the memory is real: each
// item's place is taken from the slabs, and its key number is kept aside.
type sizing struct {
	table  *region.Table
	rec    *reclaim.Reclaimer
	slabs  *slab.Slabs
	shards []*Index
	number []uint32 // key number by place, in steps of 128 bytes
	now    time.Time
	// patient: wait where waiting makes room, as a fill does.
	patient bool
}

const (
	sizingKey, sizingValue = 16, 100
	sizingShards           = 32
)

func newSizing(t testing.TB, keys int) *sizing {
	tab, err := region.NewTable(region.Config{Memory: new(region.HeapMemory), Incarnation: 3, Seed: seed, Shards: sizingShards})
	if err != nil {
		t.Fatal(err)
	}
	s := &sizing{table: tab, rec: reclaim.New(tab, lease), now: time.Unix(1000, 0), number: make([]uint32, keys*2)}
	s.slabs = slab.New(tab, s.rec)
	for i := range sizingShards {
		ix, err := New(tab, s.rec, uint16(i), func(sl layout.Slot) (layout.Hash, bool) {
			return s.hash(s.number[sl.Place().Byte()/128]), true
		})
		if err != nil {
			t.Fatal(err)
		}
		s.shards = append(s.shards, ix)
	}
	return s
}

func (s *sizing) hash(n uint32) layout.Hash {
	var k [sizingKey]byte
	binary.LittleEndian.PutUint32(k[:], n)
	return layout.HashKey(seed, k[:])
}

// shardOf spreads the keys as any hash does.
func shardOf(n uint32) int { return int(n * 0x9e3779b1 >> 27) }

func (s *sizing) put(t testing.TB, n uint32) bool {
	h := s.hash(n)
	ix := s.shards[shardOf(n)]
	p, class, err := s.slabs.Alloc(layout.ItemSize(sizingKey, sizingValue, false))
	if err != nil {
		t.Fatal(err)
	}
	for int(p.Byte()/128) >= len(s.number) {
		s.number = append(s.number, make([]uint32, len(s.number))...)
	}
	s.number[p.Byte()/128] = n
	r, ok := ix.Room(s.now, h)
	for s.patient && !ok && ix.Refusal() == Waiting {
		s.tick()
		r, ok = ix.Room(s.now, h)
	}
	if !ok {
		ix.AddSlotless(h)
		return false
	}
	ix.Set(r, layout.MakeSlot(h.Fingerprint(), class, p))
	return true
}

func (s *sizing) tick() {
	s.now = s.now.Add(reclaim.BeatMargin)
	s.rec.Tick(s.now)
}

// overhead is what the store holds in memory for a key beyond its payload:
// slab pages and index segments in use, retired ones included, not free pages.
func (s *sizing) overhead(keys int) (total, items, index, retired float64) {
	st, im := s.slabs.Stats(), s.table.Index().Stats()
	n := float64(keys)
	items = float64(st.InUse+st.Retired)/n - sizingKey - sizingValue
	index, retired = float64(im.InUse)/n, float64(im.Retired)/n
	return items + index + retired, items, index, retired
}

// Memory per key over the payload, while 100,000 keys a second are put. It is
// a count and not a timing: the same on every machine. The goal of 40 B holds
// for 2 million keys a lease later (28 of them are header and size class); on the
// way there the index is denser and sparser in turn.
func TestMemoryPerKey(t *testing.T) {
	const perBeat = 20_000 // keys in 200 ms
	keys := 2_000_000
	if scale > 1 {
		keys = 200_000
	}
	s := newSizing(t, keys)
	worst, slotless := 0.0, 0
	for n := range keys {
		if !s.put(t, uint32(n)) {
			slotless++
		}
		if n%perBeat == perBeat-1 {
			s.tick()
			if total, _, _, _ := s.overhead(n + 1); n > 400_000 {
				worst = max(worst, total)
			}
		}
	}
	total, items, index, retired := s.overhead(keys)
	t.Logf("%d keys right after the last: %.1f B a key over the payload (items %.1f, index %.1f, retired index %.1f); worst on the way %.1f; %d without slot",
		keys, total, items, index, retired, worst, slotless)
	for range 30 {
		s.tick()
	}
	after, items, index, retired := s.overhead(keys)
	t.Logf("%d keys a lease later: %.1f B a key over the payload (items %.1f, index %.1f, retired index %.1f)", keys, after, items, index, retired)
	if keys == 2_000_000 && (total > 42 || after > 40) {
		t.Errorf("%.1f B a key, %.1f a lease later; the goals are 42 and 40", total, after)
	}
	if slotless > 0 {
		t.Errorf("%d keys without slot though memory is plentiful", slotless)
	}
}

// A fill of unknown size is faster than leases end; with patience every key
// gets its slot, and the index needs no more memory than by slow puts.
func TestPatientFill(t *testing.T) {
	const keys = 600_000 / scale
	s := newSizing(t, keys)
	s.patient = true
	start := s.now
	for n := range keys { // in no time but for the waiting
		if !s.put(t, uint32(n)) {
			t.Fatalf("no slot for key %d: %v", n, s.shards[shardOf(uint32(n))].Refusal())
		}
	}
	for range 30 {
		s.tick()
	}
	total, _, index, _ := s.overhead(keys)
	t.Logf("%d keys after %v of waiting: %.1f B a key over the payload, of it index %.1f", keys, s.now.Sub(start), total, index)
}
