package index

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/region"
)

const (
	mib   = 1 << 20
	lease = 2 * time.Second
	seed  = 0x5eed
)

// world is one index with everything around it and a clock. Its keys are
// numbers; the place in a key's slot is its number, so no item is needed.
type world struct {
	t     testing.TB
	table *region.Table
	rec   *reclaim.Reclaimer
	ix    *Index
	now   time.Time
}

func newTable(t testing.TB, shards int, limit uint64) *region.Table {
	t.Helper()
	tab, err := region.NewTable(region.Config{Memory: new(region.HeapMemory), Incarnation: 3, Seed: seed,
		Shards: shards, RegionSize: mib, IndexRegionSize: mib, Limit: limit, ReclaimEntries: 64})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

func newWorld(t testing.TB, limit uint64) *world {
	t.Helper()
	w := &world{t: t, table: newTable(t, 4, limit), now: time.Unix(1000, 0)}
	w.rec = reclaim.New(w.table, lease)
	var err error
	if w.ix, err = New(w.table, w.rec, 2, hashOfSlot); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(reclaim.BeatMargin)
		w.rec.Tick(w.now)
	}
}

func hashOf(key uint64) layout.Hash {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], key)
	return layout.HashKey(seed, b[:])
}

func slotOf(key uint64) layout.Slot {
	return layout.MakeSlot(hashOf(key).Fingerprint(), 18, layout.Place(key))
}

func hashOfSlot(s layout.Slot) (layout.Hash, bool) { return hashOf(uint64(s.Place())), true }

func is(key uint64) func(layout.Slot) bool {
	return func(s layout.Slot) bool { return uint64(s.Place()) == key }
}

// insert puts a key that is not there; false: Room said no.
func (w *world) insert(key uint64) bool {
	r, ok := w.ix.Room(w.now, hashOf(key))
	if !ok {
		return false
	}
	if r.Slot() != 0 {
		w.t.Fatalf("Room for key %d returned the slot %v", key, r.Slot())
	}
	w.ix.Set(r, slotOf(key))
	return true
}

// check compares the registered memory with what it must say.
func (w *world) check() {
	w.t.Helper()
	ix := w.ix
	p, depth, ok := layout.ParseRoot(layout.LoadWord(w.table.Root(), int(layout.RootSlot(w.table.Header().RootOffset, ix.shard))))
	if !ok || depth != ix.depth {
		w.t.Fatalf("root word: place %v depth %d (%v), want depth %d", p, depth, ok, ix.depth)
	}
	dir := w.table.Bytes(p, layout.DirBytes(depth))
	keys := 0
	for i := range 1 << depth {
		sp, sd, step, ok := layout.ParseDirEntry(layout.LoadWord(dir, i*8))
		seg := ix.dir[i]
		if !ok || sp != seg.place || sd != seg.depth || step != seg.step {
			w.t.Fatalf("directory entry %d: %v depth %d step %d, want %v %d %d", i, sp, sd, step, seg.place, seg.depth, seg.step)
		}
		if uint32(i)>>(depth-sd) != seg.prefix {
			w.t.Fatalf("directory entry %d leads to prefix %b/%d", i, seg.prefix, sd)
		}
		if i > 0 && ix.dir[i-1] == seg {
			continue
		}
		mem := w.table.Bytes(sp, layout.SegmentBytes(step))
		in := 0
		for b := range layout.SegmentBuckets(step) {
			h := layout.BucketHeader(layout.LoadWord(mem, b*layout.BucketSize))
			if b >= 3*seg.groups {
				if h != 0 {
					w.t.Fatalf("bucket %d behind the last group has the header %v", b, h)
				}
				continue
			}
			count := uint8(layout.SlotlessMany)
			if ix.shown.Load() {
				count = seg.slotlessAt(b)
			}
			if want := layout.MakeBucketHeader(step, sd, b, count, ix.shard, seg.prefix); h != want {
				w.t.Fatalf("header of bucket %d: %v, want %v", b, h, want)
			}
			for o := 8; o < layout.BucketSize; o += 8 {
				s := layout.Slot(layout.LoadWord(mem, b*layout.BucketSize+o))
				if s.Class() == 0 {
					continue
				}
				in++
				kh, ok := s.PebbleHash()
				if !ok {
					kh, _ = ix.hashOf(s)
				}
				x, y := kh.Mains(seg.groups)
				if b != x.MainBucket() && b != x.OverflowBucket() && b != y.MainBucket() && b != y.OverflowBucket() ||
					!h.Fits(ix.shard, kh, b, step) || s.Fingerprint() != kh.Fingerprint() {
					w.t.Fatalf("slot %v in bucket %d of segment %b/%d does not belong there", s, b, seg.prefix, sd)
				}
			}
		}
		if in != seg.keys {
			w.t.Fatalf("segment %b/%d holds %d keys and counts %d", seg.prefix, sd, in, seg.keys)
		}
		keys += in
	}
	st := ix.Stats()
	if st.Keys != keys {
		w.t.Fatalf("Stats says %d keys, the segments hold %d", st.Keys, keys)
	}
	if mem := w.table.Index().Stats(); mem.InUse != st.Bytes || mem.Retired != st.Retired {
		w.t.Fatalf("index memory %+v, the index says %d in use and %d retired", mem, st.Bytes, st.Retired)
	}
}

// Random inserts, finds, updates and removals against a map, from empty over
// many growths: everything is found once and where its hash says, headers and
// directory say the truth, and no key moves while its segment lives.
func TestModel(t *testing.T) {
	for run := range uint64(max(1, 6/scale)) {
		t.Run(fmt.Sprintf("seed %d", run), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(run, 3))
			w := newWorld(t, 64*mib)
			type where struct {
				seg *segment
				off int32
			}
			at := map[uint64]where{}
			var keys []uint64
			next := uint64(1)
			for op := range 60_000 / min(scale, 2) {
				insertBelow := 95 // phases of growth and of coming and going
				if op/15_000%2 == 1 {
					insertBelow = 55
				}
				switch x := rng.IntN(100); {
				case x < 10 && len(keys) > 0: // find, and see that it has not moved
					k := keys[rng.IntN(len(keys))]
					r, ok := w.ix.Find(hashOf(k), is(k))
					if !ok {
						t.Fatalf("op %d: key %d is lost", op, k)
					}
					if old := at[k]; old.seg == r.seg && old.off != r.off {
						t.Fatalf("op %d: key %d moved from %d to %d within its segment", op, k, old.off, r.off)
					}
					at[k] = where(r)
				case x < 15: // not there
					k := next + uint64(rng.IntN(1000))
					if _, ok := w.ix.Find(hashOf(k), is(k)); ok {
						t.Fatalf("op %d: key %d was never inserted", op, k)
					}
				case x < insertBelow || len(keys) == 0:
					if !w.insert(next) {
						t.Fatalf("op %d: no room with %d keys", op, len(keys))
					}
					r, ok := w.ix.Find(hashOf(next), is(next))
					if !ok {
						t.Fatalf("op %d: key %d was just inserted", op, next)
					}
					at[next] = where(r)
					keys = append(keys, next)
					next++
				default:
					i := rng.IntN(len(keys))
					k := keys[i]
					keys[i] = keys[len(keys)-1]
					keys = keys[:len(keys)-1]
					r, ok := w.ix.Find(hashOf(k), is(k))
					if !ok {
						t.Fatalf("op %d: key %d is lost", op, k)
					}
					w.ix.Clear(r)
					delete(at, k)
				}
				if op%500 == 0 {
					w.pass(reclaim.BeatMargin)
				}
				if op%7_500 == 0 {
					w.check()
				}
			}
			w.check()
			seen := map[uint64]bool{}
			for r := range w.ix.All {
				k := uint64(r.Slot().Place())
				if _, ok := at[k]; !ok || seen[k] {
					t.Fatalf("All met key %d (twice: %v)", k, seen[k])
				}
				seen[k] = true
			}
			if len(seen) != len(at) {
				t.Fatalf("All met %d keys of %d", len(seen), len(at))
			}
			t.Logf("%+v", w.ix.Stats())
		})
	}
}
