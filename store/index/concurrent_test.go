package index

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/reclaim"
)

// Readers on goroutines of their own, as a software responder serves them:
// with the race detector this shows that every shared word is stored and
// loaded atomically, and without it that no key is ever missed.
func TestConcurrentReaders(t *testing.T) {
	g := newRig(t, 1, 0)
	g.ix.onStore = nil // no scheduled readers here
	const permanent = 500
	for k := uint64(1); k <= permanent; k++ {
		g.put(k)
	}
	var done atomic.Bool
	var view atomic.Pointer[layout.View]
	first := g.view // a copy: g.view changes with every put
	view.Store(&first)
	var gets, asked, late atomic.Int64
	var clock atomic.Int64 // never behind the time that Tick has been told
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			dir := layout.NewDir(view.Load())
			var l layout.Lookup
			buf := make([]byte, 1<<16)
			for !done.Load() {
				k := 1 + rng.Uint64N(permanent+50)
				present := k <= permanent
				if !present {
					k += 1 << 40
				}
				began := clock.Load()
				l.Start(view.Load(), dir, g.ix.shard, keyBytes(k), layout.Loc{}, 1<<14)
				a := l.Step()
				for ; a == layout.ActionRead; a = l.Step() {
					rest := buf
					for j := range l.Reads {
						rd := &l.Reads[j]
						rd.Buf, rest = rest[:rd.Len:rd.Len], rest[rd.Len:]
						src := g.table.Bytes(rd.Place, int(rd.Len))
						for off := 0; off < len(src); off += 8 {
							binary.LittleEndian.PutUint64(rd.Buf[off:], layout.LoadWord(src, off))
						}
					}
				}
				gets.Add(1)
				switch {
				case clock.Load()-began >= int64(lease):
					late.Add(1) // nothing is believed
				case a == layout.ActionAsk:
					asked.Add(1)
				case (a == layout.ActionFound) != present:
					t.Errorf("key %d: %v", k, a)
					return
				}
			}
		})
	}
	for k := uint64(permanent + 1); k < 12_000; k++ {
		g.put(k)
		if k%64 == 0 {
			g.put(1 + g.rng.Uint64N(permanent))
			v := g.table.View()
			view.Store(&v)
			clock.Store(int64(k/64) * int64(reclaim.BeatMargin))
			g.pass(reclaim.BeatMargin)
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d gets, %d asked, %d late", gets.Load(), asked.Load(), late.Load())
}
