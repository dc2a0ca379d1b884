package layout

import "testing"

// Items larger than one READ: a chunked one is found by its head, another
// cannot be.
func TestLookupLargeItems(t *testing.T) {
	g := newRig(t)
	var l Lookup
	k := g.keys[2]
	value := randBytes(newRand(t, 5), 3*ChunkSize+100)
	p := g.raw(k, 64<<10, Item{Version: 7, Key: k.name, Value: value}, Live)
	for _, maxRead := range []uint32{MinMaxRead, 64 << 10, 1 << 20} {
		if a := g.get(&l, k, Loc{}, maxRead); a != ActionFound {
			t.Fatalf("%v %v", a, l.Reason)
		}
		v, loc := l.Found()
		if v.Chunks != 4 || loc.Size != uint32(v.Size) || loc.Place != p {
			t.Fatalf("%+v at %+v", v, loc)
		}
		for i := range v.Chunks {
			off, n := v.ChunkRange(i)
			at := int(loc.Place.Byte()) + v.ValueOffset() + off
			if !v.VerifyChunk(i, g.mem[at:][:n]) {
				t.Errorf("chunk %d", i)
			}
			if _, ok := v.Chunk(i); ok != (maxRead == 1<<20) {
				t.Errorf("chunk %d in a READ of at most %d: %v", i, maxRead, ok)
			}
		}
		if a := g.get(&l, k, loc, maxRead); a != ActionFound || g.reads != 1 {
			t.Errorf("from the cached place: %v, %d READs", a, g.reads)
		}
	}
	g = newRig(t)
	g.raw(k, 64<<10, Item{Version: 7, Key: k.name, Value: value[:ChunkSize]}, Live)
	if a := g.get(&l, k, Loc{}, MinMaxRead); a != ActionAsk || l.Reason != ReasonTooLarge {
		t.Errorf("a whole item that maxRead cannot hold: %v %v", a, l.Reason)
	}
	if a := g.get(&l, k, Loc{}, 1<<20); a != ActionFound {
		t.Errorf("%v %v", a, l.Reason)
	}
}

func TestLookupWrongBuffer(t *testing.T) {
	g := newRig(t)
	var l Lookup
	l.Start(&g.view, g.dir, 0, g.keys[0].name, Loc{}, 1<<20)
	l.Step()
	mustPanic(t, "no buffer", func() { l.Step() })
}

// fill answers a batch into buffers of its own, without allocating.
func (g *rig) fill(l *Lookup, bufs *[MaxCandidates][PageSize]byte) {
	for i := range l.Reads {
		r := &l.Reads[i]
		r.Buf = bufs[i][:r.Len]
		copy(r.Buf, g.mem[r.Place.Byte():])
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	g := newRig(t)
	k := g.keys[2]
	g.put(k)
	var l Lookup
	var bufs [MaxCandidates][PageSize]byte
	run := func(cached Loc) {
		l.Start(&g.view, g.dir, 0, k.name, cached, 1<<20)
		for l.Step() == ActionRead {
			g.fill(&l, &bufs)
		}
	}
	run(Loc{})
	_, loc := l.Found()
	for what, cached := range map[string]Loc{"cached": loc, "through the index": {}} {
		if n := testing.AllocsPerRun(100, func() { run(cached) }); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// The cost of the steps alone: the READs are copies.
func BenchmarkLookup(b *testing.B) {
	g := newRig(b)
	k, absent := g.keys[2], g.keys[3]
	g.put(k)
	var l Lookup
	var bufs [MaxCandidates][PageSize]byte
	run := func(k *mkey, cached Loc) {
		l.Start(&g.view, g.dir, 0, k.name, cached, 1<<20)
		for l.Step() == ActionRead {
			g.fill(&l, &bufs)
		}
	}
	run(k, Loc{})
	_, loc := l.Found()
	for _, c := range []struct {
		name   string
		key    *mkey
		cached Loc
	}{{"cached", k, loc}, {"index", k, Loc{}}, {"absent", absent, Loc{}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run(c.key, c.cached)
			}
		})
	}
}
