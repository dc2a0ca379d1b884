package read

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// inShort is inBubble with a server that takes prepared READs, and a client that remembers
// where key is and has made a get by one of them.
func inShort(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	inBubble(t, func(r *rig) { r.Sinks.On = true }, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.byShort(1, "one")
		r.reset()
		f(t, r)
	})
}

// byShort gets key n times, whose value must be want, each time by one READ into a sink.
// The background poller may lead, because time has passed since a call waited: a get
// beside it is posted, and it gives the lead back when it has delivered its completion.
func (r *rig) byShort(n int, want string) {
	r.t.Helper()
	before := r.Sinks.Reads.Load()
	for range 3 {
		synctest.Wait() // the background poller has taken the lead, or has given it back
		r.must(want, base.PathOneRead)
		if r.Sinks.Reads.Load() != before {
			break
		}
	}
	for range n - 1 {
		r.must(want, base.PathOneRead)
	}
	if got := r.Sinks.Reads.Load() - before; got != int64(n) {
		r.t.Fatalf("%d READs into sinks, want %d", got, n)
	}
}

// A get of a remembered place is one READ into a sink: no batch, nothing that is waited
// for, and it is counted as any other. What the place does not answer is looked for by
// posting.
func TestReadsOfAShortGet(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		before, finished := r.counters(), r.s.Usage().Finished
		r.byShort(50, "one")
		k := r.counters()
		if k.Gets-before.Gets != 50 || k.OneReadHits-before.OneReadHits != 50 || k.Reads-before.Reads != 50 || k.SendGets != 0 {
			t.Errorf("%+v, then %+v", before, k)
		}
		if n := r.s.Usage().Finished - finished; n != 0 {
			t.Errorf("%d completions were waited for", n)
		}
		r.reset()
		w := &Query{InfoOnly: true, N: -1}
		if err := Get(t.Context(), r.router, "stat", key, w); err != nil || len(w.Dst) != 0 || w.Info.Size != 3 || w.Info.Version != 1 {
			t.Errorf("%+v, %v", w, err)
		}
		w = &Query{Off: 1, N: 1}
		if err := Get(t.Context(), r.router, "get-range", key, w); err != nil || string(w.Dst) != "n" {
			t.Errorf("%q, %v", w.Dst, err)
		}
		r.expect("a a")
		r.move(itemA, itemB, "two", 1, 2)
		r.must("two", base.PathMoreReads)
		r.expect("a a buckets buckets b") // quick says only yes; the lookup begins at the remembered place again
		r.byShort(1, "two")
		if n := r.s.Short.Out(); n != 0 {
			t.Errorf("%d sinks are out", n)
		}
	})
}

// An item that is larger than a sink is READ by posting, the largest that is not by the
// short way.
func TestShortGetsBySize(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		most := device.SinkBytes
		for layout.ItemSize(len(key), most, false) > device.SinkBytes {
			most--
		}
		version := layout.Version(1)
		for _, n := range []int{0, 1, 4096, most, most + 1, 60_000} {
			want := value(n, 7)
			r.move(itemA, itemA, want, version, version+1)
			version++
			r.s.Cache.Drop(layout.HashKey(42, key))
			r.must(want, base.PathTwoReads+1)
			before := r.Sinks.Reads.Load()
			r.must(want, base.PathOneRead)
			if short := r.Sinks.Reads.Load() > before; short != (n <= most) {
				t.Errorf("%d bytes by the short way: %v", n, short)
			}
		}
	})
}

// A READ that has not ended within its time is left, and the get answered by posting. Until
// its completion has come its sink is out and its view in use, and gets are posted: the
// READs of a connection end in order.
func TestLateShortReads(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		old := r.s.View()
		r.Sinks.Late.Store(true)
		begun := time.Now()
		r.must("one", base.PathOneRead)
		if took := time.Since(begun); took < shortSpin || took > 3*shortSpin {
			t.Errorf("it was polled for %v, %v is meant", took, shortSpin)
		}
		newer := &session.View{View: *old.View.Clone(), Remote: old.Remote}
		newer.Version++
		r.s.TakeView(newer)
		posted := r.Sinks.Reads.Load()
		for range 3 {
			r.must("one", base.PathOneRead)
			if late, out := r.LastQP().LateReads(), r.s.Short.Out(); late != 1 || out != 1 || r.Sinks.Reads.Load() != posted {
				t.Fatalf("%d late READs, %d sinks out, %d READs into sinks beside it", late, out, r.Sinks.Reads.Load()-posted)
			}
			if used := r.s.UsedView(); used != old.Version {
				t.Errorf("view %d is used, a late READ goes by %d", used, old.Version)
			}
		}
		r.Sinks.Late.Store(false)
		r.LastQP().LandReads(1)
		r.must("one", base.PathOneRead) // who polls next finds its completion
		if out, used := r.s.Short.Out(), r.s.UsedView(); out != 0 || used != newer.Version {
			t.Errorf("%d sinks are out, view %d is used; no READ is late", out, used)
		}
		r.byShort(2*device.SinkCount, "one")
	})
}

// READs by a view that has been replaced are counted until they are done.
func TestShortReadsHoldTheirView(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		old := r.s.View()
		newer := &session.View{View: *old.View.Clone(), Remote: old.Remote}
		newer.Version++
		r.hook(func(layout.Place, []byte) {
			r.hook(nil)
			r.s.TakeView(newer)
			if used := r.s.UsedView(); used != old.Version {
				t.Errorf("view %d is used, a READ by %d is under way", used, old.Version)
			}
		})
		r.byShort(1, "one")
		if used := r.s.UsedView(); used != newer.Version {
			t.Errorf("view %d is used, no READ is under way", used)
		}
	})
}

// A late READ that lands while the place holds something else by now changes no answer.
func TestLateShortReadChangesNothing(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		r.Sinks.Late.Store(true)
		r.must("one", base.PathOneRead)
		r.Sinks.Late.Store(false)
		r.Change(func(mem []byte) {
			writeItem(r, mem, itemA, layout.Item{Version: 9, Key: []byte("her key"), Value: []byte("her value")})
			r.PutItem(mem, seg, itemB, key, []byte("two"), 2)
		})
		r.LastQP().LandReads(1)
		r.must("two", base.PathMoreReads)
		r.byShort(3*device.SinkCount, "two")
	})
}

// A call that waits polls for all, so a get beside it does not try the short way.
func TestNoShortReadBesideAWait(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		r.on(wire.TypeGet, func(wire.Header, []byte) []byte { return []byte{} }) // no answer, for now
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- BySend(r.s, ptr(r.c.Begin(ctx)), key, &Query{N: -1}) }()
		synctest.Wait()
		posted := r.Sinks.Reads.Load()
		r.must("one", base.PathOneRead)
		if r.Sinks.Reads.Load() != posted {
			t.Error("a READ into a sink beside a call that waits")
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("an answer that nobody gave")
		}
		time.Sleep(20 * time.Millisecond)
	})
}

func ptr[T any](v T) *T { return &v }

// The session's end waits for late READs and for those that look at a sink.
func TestShortReadsAtTheEnd(t *testing.T) {
	inShort(t, func(t *testing.T, r *rig) {
		r.Sinks.Late.Store(true)
		r.must("one", base.PathOneRead)
		k := r.s.Short.Take()
		r.s.Fail(base.ErrLost)
		time.Sleep(20 * time.Millisecond)
		select {
		case <-r.s.Gone:
			t.Error("the session is gone, and a sink is being looked at")
		default:
		}
		if r.s.Short.Take() != nil {
			t.Error("a sink of a session that has ended")
		}
		r.s.Short.End(k)
		time.Sleep(20 * time.Millisecond)
		select {
		case <-r.s.Gone:
		default:
			t.Error("the session does not end")
		}
	})
}

// Event says that calls sleep: there is no short way, and no memory for it.
func TestNoShortWayInModeEvent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.must("one", base.PathOneRead)
		if r.s.Short.IsWorth() || r.Sinks.Reads.Load() != 0 {
			t.Error("a short way in mode event")
		}
	})
}

// Many goroutines get keys of different values; a value is never another key's.
func TestShortGetsTogether(t *testing.T) {
	f := clienttest.NewServer(77)
	f.Sinks.On = true
	f.Change(func(mem []byte) { f.BuildIndex(mem, seg) })
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) { return nil, false }
	const keys = 6
	name := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	f.Change(func(mem []byte) {
		for i := range keys {
			at := itemA + layout.PlaceOfByte(uint64(i)*4096)
			f.PutItem(mem, seg, at, name(i), []byte(value(100, byte(i))), 1)
		}
	})
	cfg := newConfig(f)
	cfg.Wait, cfg.Spin = wait.Adaptive, shortSpin
	router := dial(t, cfg, clienttest.NewClock())
	defer router.Close()
	s := router.Only().Current()
	for i := range keys { // remembered, wherever their slots are
		at := itemA + layout.PlaceOfByte(uint64(i)*4096)
		size := layout.ItemSize(len(name(i)), 100, false)
		class, _ := layout.ClassFor(size)
		s.Cache.Put(layout.HashKey(42, name(i)), layout.Loc{Place: at, Size: uint32(layout.ClassSize(class))}, s.Lease.Grant().Retired)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			dst := make([]byte, 0, 128)
			for n := range 3000 {
				i := (g + n) % keys
				w := &Query{N: -1, Dst: dst[:0]}
				if err := Get(t.Context(), router, "get", name(i), w); err != nil || string(w.Dst) != value(100, byte(i)) {
					t.Errorf("%q of %q, %v", w.Dst, name(i), err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d of 12000 gets by READs into sinks", f.Sinks.Reads.Load())
}
