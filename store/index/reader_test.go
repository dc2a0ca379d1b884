package index

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
	"github.com/rdmakv/rdmakv/store/slab"
)

// An interleaving test of growth against one-sided readers. The writer puts
// and deletes real items in the order of the design; after each single store
// of it, of growth or of a put, readers fetch a few more words of their READs,
// in random order. So a READ is spread over many stores, as a NIC may do it,
// and each answer is compared with what was true during the whole get.

// rig is a store in miniature: one shard, items in slabs, and the readers.
type rig struct {
	*world
	slabs   *slab.Slabs
	rng     *rand.Rand
	view    layout.View
	keys    map[uint64]*keyState
	version layout.Version
	readers []*reader
	stats   struct{ found, absent, asked, late, marked, misfit, stale int }
}

// keyState is what the model knows of a key.
type keyState struct {
	present bool
	version layout.Version // published last; of a delete, too
	changes int            // times that present changed
}

func newRig(t testing.TB, run uint64, readers int) *rig {
	g := &rig{world: newWorld(t, 64*mib), rng: rand.New(rand.NewPCG(run, 11)), keys: map[uint64]*keyState{}}
	g.slabs = slab.New(g.table, g.rec)
	g.ix.hashOf = func(s layout.Slot) (layout.Hash, bool) {
		item, err := layout.ParseItem(g.slabs.Bytes(s.Place(), s.Class()), 3, s.Place())
		if err != nil {
			t.Fatalf("slot %v leads to no item: %v", s, err)
		}
		return layout.HashKey(seed, item.Key()), true
	}
	g.ix.SetFilled() // a new store: counts are true from the start
	g.view = g.table.View()
	speeds := []int{-4, -1, 1, 8, 64, 600}
	for i := range readers {
		g.readers = append(g.readers, &reader{g: g, dir: layout.NewDir(&g.view), cache: map[uint64]layout.Loc{}, speed: speeds[i%len(speeds)]})
	}
	g.ix.onStore = func(string) { g.step() }
	return g
}

// step lets some of the readers go on.
func (g *rig) step() {
	if len(g.readers) == 0 {
		return
	}
	for range 3 {
		g.readers[g.rng.IntN(len(g.readers))].advance()
	}
}

func keyBytes(k uint64) []byte { return binary.LittleEndian.AppendUint64(nil, k) }

func (g *rig) find(k uint64) (Ref, bool) {
	return g.ix.Find(hashOf(k), func(s layout.Slot) bool {
		return layout.LoadWord(g.slabs.Bytes(s.Place(), s.Class()), layout.ItemHeaderSize) == k
	})
}

// put is the put of the design, a reader step after every store.
func (g *rig) put(k uint64) {
	g.version++
	h := hashOf(k)
	p, class, err := g.slabs.Alloc(layout.ItemSize(8, 8, false))
	if err != nil {
		g.t.Fatal(err)
	}
	g.view = g.table.View()
	mem := g.slabs.Bytes(p, class)
	layout.WriteItem(mem, 3, p, layout.Item{Version: g.version, Key: keyBytes(k), Value: keyBytes(uint64(g.version))}, layout.Pending)
	g.step()
	ref, existed := g.find(k)
	var old layout.Slot
	if existed {
		old = ref.Slot()
		g.kill(old)
	} else {
		var ok bool
		if ref, ok = g.ix.Room(g.now, h); !ok {
			g.t.Fatalf("no room for key %d", k)
		}
	}
	g.ix.Set(ref, layout.MakeSlot(h.Fingerprint(), class, p))
	g.step()
	layout.SetState(mem, g.version, layout.Live)
	st := g.keys[k]
	if st == nil {
		st = new(keyState)
		g.keys[k] = st
	}
	if !st.present {
		st.present = true
		st.changes++
	}
	st.version = g.version
	g.step()
	if existed {
		g.slabs.Free(old.Place(), old.Class())
	}
}

func (g *rig) kill(s layout.Slot) {
	mem := g.slabs.Bytes(s.Place(), s.Class())
	v, _ := layout.LoadState(mem)
	layout.SetState(mem, v, layout.Dead)
	g.step()
}

func (g *rig) delete(k uint64) {
	ref, ok := g.find(k)
	if !ok {
		g.t.Fatalf("key %d is lost", k)
	}
	g.version++
	old := ref.Slot()
	st := g.keys[k]
	st.present = false
	st.changes++
	g.kill(old)
	g.ix.Clear(ref)
	g.step()
	g.slabs.Free(old.Place(), old.Class())
}

// reader makes one get after the other.
type reader struct {
	g     *rig
	dir   *layout.Dir
	cache map[uint64]layout.Loc
	seen  uint64 // reclaim version whose list was heeded

	l     layout.Lookup
	busy  bool
	key   uint64
	began time.Time
	at    keyState // the key when the get began
	todo  []word   // of the READs in flight, in the order of fetching
	speed int      // words an advance; below 0: one now and then
	buf   []byte
}

type word struct {
	place layout.Place
	to    []byte
}

func (r *reader) advance() {
	if !r.busy {
		r.start()
		return
	}
	n := r.speed
	if n <= 0 {
		// So slow that memory may be reused under the READ.
		n = 0
		if r.g.rng.IntN(-8*r.speed) == 0 {
			n = 1
		}
	}
	for range min(n, len(r.todo)) {
		w := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		binary.LittleEndian.PutUint64(w.to, layout.LoadWord(r.g.table.Bytes(w.place, 8), 0))
	}
	if len(r.todo) == 0 {
		r.next(r.l.Step())
	}
}

// start begins a get of a key that is there, was there, or never was.
func (r *reader) start() {
	g := r.g
	if g.rng.IntN(50) == 0 {
		r.dir.ForgetAll()
	}
	if v := g.rec.Version(); v != r.seen {
		clear(r.cache) // a coarse way to heed the list
		r.seen = v
	}
	r.busy, r.began = true, g.now
	r.key = 1 + g.rng.Uint64N(uint64(len(g.keys))+20)
	r.at = keyState{}
	if st := g.keys[r.key]; st != nil {
		r.at = *st
	}
	view := g.view
	r.l.Start(&view, r.dir, g.ix.shard, keyBytes(r.key), r.cache[r.key], 1<<16)
	r.next(r.l.Step())
}

// next posts what the lookup asks for, or judges its answer.
func (r *reader) next(a layout.Action) {
	if a == layout.ActionRead {
		n := 0
		for _, rd := range r.l.Reads {
			n += int(rd.Len)
		}
		r.buf = make([]byte, n) // a fresh one: Found shows the old
		rest := r.buf
		for i := range r.l.Reads {
			rd := &r.l.Reads[i]
			rd.Buf, rest = rest[:rd.Len:rd.Len], rest[rd.Len:]
			for off := 0; off < int(rd.Len); off += 8 {
				r.todo = append(r.todo, word{rd.Place + layout.Place(off/8), rd.Buf[off : off+8]})
			}
		}
		r.g.rng.Shuffle(len(r.todo), func(i, j int) { r.todo[i], r.todo[j] = r.todo[j], r.todo[i] })
		return
	}
	r.busy = false
	r.judge(a)
}

// judge compares an answer with what was true from the begin of the get to now.
func (r *reader) judge(a layout.Action) {
	g := r.g
	g.stats.marked += int(r.l.Counts.Marked)
	g.stats.misfit += int(r.l.Counts.Misfit)
	g.stats.stale += int(r.l.Counts.Stale)
	if !g.now.Before(r.began.Add(lease)) {
		g.stats.late++ // the lease is over: nothing is believed
		return
	}
	var is keyState
	if st := g.keys[r.key]; st != nil {
		is = *st
	}
	still := is.changes == r.at.changes
	switch a {
	case layout.ActionFound:
		g.stats.found++
		item, loc := r.l.Found()
		r.cache[r.key] = loc
		v := layout.Version(binary.LittleEndian.Uint64(item.Value()))
		if still && !is.present || v != item.Version || v < r.at.version || v > g.version {
			g.t.Fatalf("key %d: found version %v (value of %v); at the begin %+v, now %+v", r.key, item.Version, v, r.at, is)
		}
	case layout.ActionAbsent:
		g.stats.absent++
		if still && is.present {
			g.t.Fatalf("key %d: absent, but it was there all the time: at the begin %+v, now %+v, %+v", r.key, r.at, is, r.l.Counts)
		}
	case layout.ActionAsk:
		g.stats.asked++
		if r.l.Reason != layout.ReasonRetries && r.l.Reason != layout.ReasonUnknownRegion {
			g.t.Fatalf("key %d: asks because of %v", r.key, r.l.Reason)
		}
	}
}

// work grows the index from empty to keys keys, with overwrites and deletes.
func (g *rig) work(keys int) {
	for next := uint64(1); next <= uint64(keys); {
		switch x := g.rng.IntN(20); {
		case x < 14 || len(g.keys) == 0:
			g.put(next)
			next++
		case x < 17:
			g.put(1 + g.rng.Uint64N(next-1))
		default:
			if k := 1 + g.rng.Uint64N(next-1); g.keys[k].present {
				g.delete(k)
			}
		}
		if g.rng.IntN(100) == 0 {
			g.pass(reclaim.BeatMargin)
		}
	}
}

func TestReadersDuringGrowth(t *testing.T) {
	keys := 25_000 / min(scale, 3) // what is asked of the run below needs this many
	for run := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", run), func(t *testing.T) {
			g := newRig(t, run, 24)
			g.work(keys)
			g.check()
			t.Logf("%+v; %+v", g.stats, g.ix.Stats())
			s := g.stats
			if s.found < 1000 || s.absent < 100 || s.marked < 100 || s.misfit == 0 && scale == 1 || s.stale < 10 {
				t.Error("the readers met too little: the run proves nothing")
			}
		})
	}
}
