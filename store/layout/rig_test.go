package layout

import (
	"bytes"
	"testing"
)

// A rig is a small store without writers, and gets against it into whose READs a test
// can interfere.
type rig struct {
	*world
	t   testing.TB
	dir *Dir
	// before is called with each READ just before it is answered.
	before func(r *Read)
	reads  int // READs answered
	rounds int // batches
}

func newRig(t testing.TB) *rig {
	w := newWorld(1, modelHashSeed, twinKeys(), 8, false)
	w.clock = 1
	return &rig{world: w, t: t, dir: NewDir(&w.view)}
}

// do makes the writer do one thing, wholly.
func (g *rig) do(f func()) {
	f()
	for g.busy() {
		g.tickWriter()
	}
}

func (g *rig) put(k *mkey)    { g.do(func() { g.world.put(k) }) }
func (g *rig) delete(k *mkey) { g.do(func() { g.world.delete(k) }) }
func (g *rig) grow()          { g.do(g.world.grow) }

// raw writes any item into free memory and any slot for it.
func (g *rig) raw(k *mkey, off int, it Item, s State) Place {
	p := PlaceOfByte(uint64(worldItemBase + off))
	WriteItem(g.mem[worldItemBase+off:], g.view.Incarnation, p, it, Pending)
	SetState(g.mem[worldItemBase+off:], it.Version, s)
	class, _ := ClassFor(ItemSize(len(it.Key), len(it.Value), it.Expiry != 0))
	g.slot(k, class, p)
	return p
}

// slot puts a slot with the key's fingerprint into an empty place.
func (g *rig) slot(k *mkey, class uint8, p Place) int {
	off := g.emptySlot(k)
	StoreWord(g.mem, off, uint64(MakeSlot(k.hash.Fingerprint(), class, p)))
	return off
}

func (g *rig) get(l *Lookup, k *mkey, cached Loc, maxRead uint32) Action {
	g.reads, g.rounds = 0, 0
	l.Start(&g.view, g.dir, 0, k.name, cached, maxRead)
	for steps := 0; ; steps++ {
		a := l.Step()
		if a != ActionRead {
			if again := l.Step(); again != a {
				g.t.Fatalf("%v, and then %v", a, again)
			}
			return a
		}
		if steps > MaxSteps {
			g.t.Fatalf("more than %d steps", MaxSteps)
		}
		g.rounds++
		for i := range l.Reads {
			r := &l.Reads[i]
			if g.before != nil {
				g.before(r)
			}
			g.reads++
			r.Buf = bytes.Clone(g.mem[r.Place.Byte():][:r.Len])
		}
	}
}

func (g *rig) want(l *Lookup, k *mkey, cached Loc, a Action, reason Reason, batches int) {
	g.t.Helper()
	if got := g.get(l, k, cached, 1<<20); got != a || l.Reason != reason || batches > 0 && g.rounds != batches {
		g.t.Fatalf("got %v (%v) after %d batches, want %v (%v) after %d; %+v", got, l.Reason, g.rounds, a, reason, batches, l.Counts)
	}
}
