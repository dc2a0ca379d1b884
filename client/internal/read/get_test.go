package read

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What is READ for a key, in which order: of a remembered place the item alone, of any other
// key the index, from as far up as the client has not seen it, and then the item.
func TestReadsOfAGet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.expect("root directory buckets buckets a")
		r.must("one", base.PathOneRead)
		r.expect("a")

		// An absent key: both pairs of buckets, in one batch, prove it.
		batches := r.counters().ReadBatches
		w := &Query{N: -1}
		if err := Get(t.Context(), r.router, "get", []byte("absent"), w); !errors.Is(err, base.ErrNotFound) || w.Path != base.PathTwoReads {
			t.Errorf("%v by %v", err, w.Path)
		}
		r.expect("buckets buckets")
		if n := r.counters().ReadBatches - batches; n != 1 {
			t.Errorf("%d batches", n)
		}

		// What is no longer at its remembered place is looked for by the index, and
		// remembered anew.
		r.move(itemA, itemB, "two", 1, 2)
		r.must("two", base.PathMoreReads)
		r.expect("a buckets buckets b")
		r.must("two", base.PathOneRead)
		r.expect("b")

		// A call that asks for the facts alone READs no less, and gets no bytes.
		w = &Query{InfoOnly: true, N: -1}
		if err := Get(t.Context(), r.router, "stat", key, w); err != nil || len(w.Dst) != 0 || w.Info.Size != 3 || w.Info.Version != 2 {
			t.Errorf("%+v, %v", w, err)
		}
		r.expect("b")

		// A key that is gone: its place, then the index, whose slot leads nowhere.
		r.Change(func(mem []byte) {
			layout.SetState(mem[itemB.Byte():], 2, layout.Dead)
			clear(mem[clienttest.SlotAt(seg, key):][:8])
		})
		if _, _, err := r.get(); !errors.Is(err, base.ErrNotFound) {
			t.Error(err)
		}
		r.expect("b buckets buckets")
		if _, _, err := r.get(); !errors.Is(err, base.ErrNotFound) {
			t.Error(err)
		}
		r.expect("buckets buckets") // its place is forgotten
		if k := r.counters(); k.CacheStale != 2 || k.OneSidedMisses != 3 || k.OneSidedHits != 5 || k.OneReadHits != 3 || k.SendGets != 0 {
			t.Errorf("%+v", k)
		}
	})
}

// Where READs are copies a remembered place is one copy, and buckets are looked at pair by
// pair, because a second pair costs no less than a second batch.
func TestReadsOfADirectGet(t *testing.T) {
	inBubble(t, func(r *rig) { r.Direct = true }, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.expect("root directory buckets a")
		r.must("one", base.PathOneRead)
		r.expect("a")
		quick := uint64(0)
		for i := range r.c.Counts().Quick {
			quick += r.c.Counts().Quick[i].Hits.Load()
		}
		if quick != 1 {
			t.Errorf("%d quick gets", quick)
		}
		if err := Get(t.Context(), r.router, "get", []byte("absent"), &Query{N: -1}); !errors.Is(err, base.ErrNotFound) {
			t.Error(err)
		}
		r.expect("buckets buckets buckets") // the first pair cannot prove it: both are READ together
		r.move(itemA, itemB, "two", 1, 2)
		r.must("two", base.PathMoreReads)
		r.expect("a a buckets b") // quick says only yes; the lookup begins at the remembered place again
		if k := r.counters(); k.OneSidedHits != 3 || k.SendGets != 0 {
			t.Errorf("%+v", k)
		}
	})
}

// quickWays are the fabrics on which a get can be one READ that nothing is waited for.
var quickWays = map[string]func(*rig){
	"copy":  func(r *rig) { r.Direct = true },
	"short": func(r *rig) { r.Sinks.On = true },
}

// quick answers with a value that is the key's, whole, alive and under the lease, and leaves
// everything else to the lookup.
func TestQuickSaysOnlyYes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		want   bool
	}{
		"as it was":         {func(*rig) {}, true},
		"a beat is due":     {func(r *rig) { r.s.Lease.MarkDue() }, false},
		"no lease":          {func(r *rig) { r.s.Lease.Lapse(r.s.Lease.Grant()) }, false},
		"the lease is over": {func(r *rig) { r.clock.Advance(10 * time.Second) }, false},
		"it ends under the READ": {func(r *rig) {
			r.hook(func(layout.Place, []byte) { r.clock.Advance(10 * time.Second) })
		}, false},
		"it is renewed under the READ": {func(r *rig) {
			r.hook(func(layout.Place, []byte) {
				r.clock.Advance(10 * time.Second)
				for n := range uint64(2) {
					r.s.Lease.Observe(layout.Beat{Counter: 100 + n, Incarnation: r.Incarnation}, r.clock.Now())
				}
			})
		}, false},
		"its page is retired": {func(r *rig) {
			r.Retire(itemA, 1)
			for n := range uint64(2) {
				r.clock.Advance(500 * time.Millisecond)
				r.Beat(100 + n)
				r.s.Renew(r.t.Context())
			}
		}, false},
		"torn": {func(r *rig) { r.Change(func(mem []byte) { mem[itemA.Byte()+layout.ItemHeaderSize] ^= 1 }) }, false},
		"torn in the value": {func(r *rig) {
			r.Change(func(mem []byte) { mem[itemA.Byte()+layout.ItemHeaderSize+uint64(len(key))] ^= 1 })
		}, false},
		"pending": {func(r *rig) { r.Change(func(mem []byte) { layout.SetState(mem[itemA.Byte():], 1, layout.Pending) }) }, false},
		"another key": {func(r *rig) {
			r.Change(func(mem []byte) {
				writeItem(r, mem, itemA, layout.Item{Version: 2, Key: []byte("her key"), Value: []byte("two")})
			})
		}, false},
		"in chunks": {func(r *rig) {
			r.Change(func(mem []byte) {
				writeItem(r, mem, itemA, layout.Item{Version: 2, Key: key, Value: []byte(value(100_000, 1))})
			})
		}, false},
		"expires, and no time is known": {func(r *rig) {
			r.Change(func(mem []byte) { writeItem(r, mem, itemA, layout.Item{Version: 2, Key: key, Expiry: 1000}) })
		}, false},
		"the connection has ended": {func(r *rig) { r.LastQP().Die(rdma.ErrPeerGone) }, false},
	} {
		for way, prepare := range quickWays {
			t.Run(way+"/"+name, func(t *testing.T) {
				inBubble(t, prepare, func(t *testing.T, r *rig) {
					r.must("one", base.PathMoreReads)
					c.change(r)
					w := &Query{N: -1}
					if got := getQuickly(t.Context(), r.s, key, w); got != c.want {
						t.Errorf("quick says %v", got)
					}
					if !c.want && len(w.Dst) != 0 {
						t.Errorf("it said no, and left %q", w.Dst)
					}
				})
			})
		}
	}
}

// writeItem writes a live item, and the slot of one of key.
func writeItem(r *rig, mem []byte, at layout.Place, it layout.Item) {
	size := layout.ItemSize(len(it.Key), len(it.Value), it.Expiry != 0)
	bytes := mem[at.Byte() : at.Byte()+uint64(size)]
	layout.WriteItem(bytes, r.Incarnation, at, it, layout.Pending)
	layout.SetState(bytes, it.Version, layout.Live)
	if string(it.Key) == string(key) {
		class, _ := layout.ClassFor(size)
		slot := layout.MakeSlot(layout.HashKey(42, key).Fingerprint(), class, at)
		binary.LittleEndian.PutUint64(mem[clienttest.SlotAt(seg, key):], uint64(slot))
	}
}

// A key that is moved while it is looked for is looked for again: the slot that was READ
// leads to an item that is dead by then.
func TestKeyMovesUnderTheRead(t *testing.T) {
	for _, direct := range []bool{false, true} {
		inBubble(t, func(r *rig) { r.Direct = direct }, func(t *testing.T, r *rig) {
			r.must("one", base.PathMoreReads)
			r.s.Cache.Drop(layout.HashKey(42, key))
			r.reset()
			r.hook(func(place layout.Place, dst []byte) { // Mem is locked
				if place == itemA {
					r.moveLocked(r.Mem, itemA, itemB, "two", 1, 2)
					copy(dst, r.Mem[place.Byte():])
				}
			})
			r.must("two", base.PathMoreReads)
			pairs := " buckets buckets"
			if direct {
				pairs = " buckets"
			}
			r.expect(strings.TrimSpace(pairs + " a buckets buckets b"))
			if k := r.counters(); k.Retries.Dead != 1 || k.SendGets != 0 {
				t.Errorf("%+v", k.Retries)
			}
		})
	}
}

// An item whose checksum does not hold is never believed: it is READ again, and when it goes
// on so the server is asked.
func TestTornItem(t *testing.T) {
	for _, c := range []struct {
		name  string
		times int
		want  string
		path  base.Path
		sent  []wire.Type
	}{
		{"twice", 2, "one", base.PathMoreReads, nil},
		{"for ever", 1000, "by SEND", base.PathSend, []wire.Type{wire.TypeGet}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				r.on(wire.TypeGet, saying("by SEND"))
				r.must("one", base.PathMoreReads)
				r.reset()
				var torn atomic.Int64 // the keeper READs too, also while this goroutine looks
				r.hook(func(place layout.Place, dst []byte) {
					if place == itemA && torn.Load() < int64(c.times) {
						dst[len(dst)-8] ^= byte(torn.Add(1)) // other bytes each time: it is being written
					}
				})
				r.must(c.want, c.path)
				r.mu.Lock()
				sent := r.sent
				r.mu.Unlock()
				if len(sent) != len(c.sent) {
					t.Errorf("asked by SEND %v", sent)
				}
				k := r.counters()
				// The keeper may have looked at the damaged item, too, before the get is answered.
				if n := int(k.Retries.Torn); n < min(c.times, layout.MaxRounds) || n > layout.MaxRounds+1 || n > int(torn.Load()) {
					t.Errorf("%d of %d torn items are counted", n, torn.Load())
				}
				if want := uint64(len(c.sent)); k.Fallbacks.Rounds != want || k.SendGets != want {
					t.Errorf("%+v", k)
				}
			})
		})
	}
}

// An item that does not verify and does not change is damaged: the get asks the server, and
// the keeper of the session looks again and reports where it is.
func TestDamagedItemIsReported(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		var told []wire.Damage
		r.on(wire.TypeGet, saying("by SEND"))
		r.on(wire.TypeReport, func(h wire.Header, body []byte) []byte {
			m, err := wire.ParseReport(body)
			if err != nil {
				t.Error(err)
			}
			for d := range m.Damages {
				told = append(told, d)
			}
			return wire.AppendReportReply(nil, h.ID)
		})
		r.Change(func(mem []byte) { mem[itemA.Byte()+layout.ItemHeaderSize+8] ^= 4 })
		r.must("by SEND", base.PathSend)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(told) != 1 || layout.Place(told[0].Place) != itemA || string(told[0].Key) != string(key) {
			t.Errorf("%+v", told)
		}
	})
}

// The lease that was in force before the first READ decides, whatever was learned meanwhile;
// without one nothing is READ and the server is asked.
func TestLeaseEndsUnderTheGet(t *testing.T) {
	for _, direct := range []bool{false, true} {
		inBubble(t, func(r *rig) { r.Direct = direct }, func(t *testing.T, r *rig) {
			r.on(wire.TypeGet, saying("by SEND"))
			r.must("one", base.PathMoreReads)
			r.must("one", base.PathOneRead)
			r.reset()
			counter := uint64(100)
			r.hook(func(place layout.Place, _ []byte) {
				if place != itemA {
					return
				}
				// The lease ends, and two beats are seen before the READ is handled: the
				// grant in force is a good one by then, and not the one that counts.
				r.clock.Advance(10 * time.Second)
				for range 2 {
					counter++
					r.s.Lease.Observe(layout.Beat{Counter: counter, Incarnation: 77}, r.clock.Now())
				}
			})
			r.must("by SEND", base.PathSend)
			reads := "a a" // it is tried twice
			if direct {
				reads = "a a a" // quick, and then twice
			}
			r.expectBeside(reads, wire.TypeGet)
			if k := r.counters(); k.LeaseExpired != leaseTries || k.Retries.Lease != leaseTries || k.Fallbacks.NoLease != 1 {
				t.Errorf("%+v", k)
			}
			r.hook(nil)
			// A lease that is known to be over: no READ would count, so there is none.
			r.s.Lease.Lapse(r.s.Lease.Grant())
			r.must("by SEND", base.PathSend)
			r.expectBeside("", wire.TypeGet)
		})
	}
}

// A beat that is due travels with the READs of the next get, and renews the lease.
func TestBeatTravelsWithTheGet(t *testing.T) {
	for _, direct := range []bool{false, true} {
		inBubble(t, func(r *rig) { r.Direct = direct }, func(t *testing.T, r *rig) {
			r.must("one", base.PathMoreReads)
			r.reset()
			for i := range uint64(2) {
				r.clock.Advance(500 * time.Millisecond)
				r.Beat(5 + i)
				r.s.Lease.MarkDue()
				batches := r.counters().ReadBatches
				r.must("one", base.PathOneRead)
				r.expect("a beat")
				if n := r.counters().ReadBatches - batches; n != 1 {
					t.Errorf("%d batches", n)
				}
			}
			if n := r.counters().LeaseRenewals; n != 1 || r.s.Lease.IsDue() {
				t.Errorf("%d renewals", n)
			}
		})
	}
}

// Why READs alone give no answer, and that the server then gives it.
func TestFallbacks(t *testing.T) {
	slots := func(r *rig, fill func(i int) layout.Slot, n int) {
		r.Change(func(mem []byte) {
			for i := range n {
				binary.LittleEndian.PutUint64(mem[clienttest.SlotAt(seg, key)+uint64(8*i):], uint64(fill(i)))
			}
		})
	}
	class, _ := layout.ClassFor(40)
	hash := layout.HashKey(42, key)
	for name, c := range map[string]struct {
		change func(*rig)
		count  func(base.FallbackCounters) uint64
		sent   []wire.Type
	}{
		"keys without a slot": {func(r *rig) {
			slots(r, func(int) layout.Slot { return 0 }, 1)
			r.Change(func(mem []byte) {
				for b := range layout.SegmentBuckets(0) {
					h := layout.MakeBucketHeader(0, 0, b, 1, 0, 0)
					binary.LittleEndian.PutUint64(mem[seg.Byte()+uint64(b)*layout.BucketSize:], uint64(h))
				}
			})
		}, func(f base.FallbackCounters) uint64 { return f.Slotless }, []wire.Type{wire.TypeGet}},
		"in Pebble": {func(r *rig) { slots(r, func(int) layout.Slot { return layout.PebbleSlot(hash) }, 1) },
			func(f base.FallbackCounters) uint64 { return f.Pebble }, []wire.Type{wire.TypeGet}},
		"too many candidates": {func(r *rig) {
			slots(r, func(i int) layout.Slot {
				return layout.MakeSlot(hash.Fingerprint(), class, itemB+layout.PlaceOfByte(uint64(i)<<10))
			}, layout.MaxCandidates+1)
		}, func(f base.FallbackCounters) uint64 { return f.NoRoom }, []wire.Type{wire.TypeGet}},
		"an unknown region": {func(r *rig) {
			slots(r, func(int) layout.Slot {
				return layout.MakeSlot(hash.Fingerprint(), class, layout.PlaceOfByte(clienttest.IndexBytes+clienttest.ItemBytes))
			}, 1)
		}, func(f base.FallbackCounters) uint64 { return f.NoRegion }, []wire.Type{wire.TypeView, wire.TypeGet}},
		"an expiry too close to tell": {func(r *rig) {
			r.Change(func(mem []byte) {
				writeItem(r, mem, itemA, layout.Item{Version: 1, Key: key, Value: []byte("one"), Expiry: 5_000_000})
			})
		}, func(f base.FallbackCounters) uint64 { return f.Expiry }, []wire.Type{wire.TypeGet}},
		"no lease": {func(r *rig) { r.s.Lease.Lapse(r.s.Lease.Grant()) },
			func(f base.FallbackCounters) uint64 { return f.NoLease }, []wire.Type{wire.TypeGet}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				r.on(wire.TypeGet, saying("by SEND"))
				c.change(r)
				r.must("by SEND", base.PathSend)
				k := r.counters()
				if n := c.count(k.Fallbacks); n != 1 || k.SendGets != 1 || k.OneSidedHits+k.OneSidedMisses != 0 {
					t.Errorf("%+v", k)
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				if len(r.sent) != len(c.sent) || r.sent[len(r.sent)-1] != wire.TypeGet {
					t.Errorf("asked by SEND %v, want %v", r.sent, c.sent)
				}
			})
		})
	}
}

// A place in a region that the client does not know: one get fetches the new table and READs
// on, without a question for the value.
func TestUnknownRegionIsLearned(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		view := r.s.View().View.Clone() // as it was before the last region grew
		view.Version++
		view.Regions[1].Length = itemB.Byte() - view.Regions[1].Base.Byte()
		r.Server.View = view.Version + 1
		r.s.TakeView(&session.View{View: *view, Remote: r.s.View().Remote})
		r.move(itemA, itemB, "two", 1, 2)
		r.must("two", base.PathMoreReads)
		r.expect("root directory buckets buckets buckets buckets b", wire.TypeView)
		if n := r.counters().Fallbacks.NoRegion; n != 1 {
			t.Errorf("%d unknown regions met", n)
		}
	})
}

// A value that is expired by the server's time is absent; one that has time left is not.
func TestExpiry(t *testing.T) {
	for _, direct := range []bool{false, true} {
		inBubble(t, func(r *rig) { r.Direct = direct }, func(t *testing.T, r *rig) {
			r.Change(func(mem []byte) {
				writeItem(r, mem, itemA, layout.Item{Version: 1, Key: key, Value: []byte("one"), Expiry: 5_000_000})
			})
			r.s.Time.Pong(4_000_000, r.clock.Now())
			r.must("one", base.PathMoreReads)
			r.s.Time.Pong(5_000_000, r.clock.Now())
			if _, _, err := r.get(); !errors.Is(err, base.ErrNotFound) {
				t.Errorf("it expired, and yet %v", err)
			}
			if k := r.counters(); k.ExpiredMisses != 1 || k.OneSidedMisses != 1 || k.SendGets != 0 {
				t.Errorf("%+v", k)
			}
		})
	}
}

// Which part of a value a call gets.
func TestSpan(t *testing.T) {
	for _, c := range []struct {
		off, n, size int64
		from, to     int64
		bad          bool
	}{
		{0, -1, 10, 0, 10, false}, {3, -1, 10, 3, 10, false}, {3, 4, 10, 3, 7, false}, {3, 7, 10, 3, 10, false},
		{3, 8, 10, 3, 10, false}, {10, 1, 10, 10, 10, false}, {0, 0, 10, 0, 0, false}, {11, 0, 10, 0, 0, true},
		{1, 1<<63 - 1, 10, 1, 10, false}, {0, -1, 0, 0, 0, false},
	} {
		w := &Query{Off: c.off, N: c.n}
		from, to, err := w.span(c.size)
		if from != c.from || to != c.to || errors.Is(err, base.ErrRange) != c.bad {
			t.Errorf("%d bytes from %d on of %d: %d to %d, %v", c.n, c.off, c.size, from, to, err)
		}
	}
	inBubble(t, nil, func(t *testing.T, r *rig) {
		w := &Query{Off: 1, N: 2, Dst: []byte("before ")}
		if err := Get(t.Context(), r.router, "get", key, w); err != nil || string(w.Dst) != "before ne" {
			t.Errorf("%q, %v", w.Dst, err)
		}
		w = &Query{Off: 4, N: 2}
		if err := Get(t.Context(), r.router, "get", key, w); !errors.Is(err, base.ErrRange) {
			t.Error(err)
		}
	})
}

// A get whose connection ends under its READ is made again on the next one, and nothing of
// what came before counts.
func TestConnectionEndsUnderTheGet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.reset()
		q := r.LastQP()
		q.HoldReads()
		done := make(chan struct{})
		w := &Query{N: -1, Dst: []byte("before ")}
		var err error
		go func() {
			defer close(done)
			err = Get(t.Context(), r.router, "get", key, w)
		}()
		time.Sleep(time.Millisecond)
		q.Die(rdma.ErrPeerGone)
		<-done
		if err != nil || string(w.Dst) != "before one" {
			t.Errorf("%q, %v", w.Dst, err)
		}
		if k := r.counters(); k.Retries.Session != 1 || k.Connects != 2 {
			t.Errorf("%+v", k)
		}
	})
}

// The time of a call bounds its READs.
func TestDeadlineOfAGet(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.must("one", base.PathMoreReads)
		r.LastQP().HoldReads()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		begun := time.Now()
		err := Get(ctx, r.router, "get", key, &Query{N: -1})
		if !errors.Is(err, base.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 30*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if err := Get(ctx, r.router, "get", nil, &Query{}); !errors.Is(err, base.ErrKeyEmpty) {
			t.Error(err)
		}
		r.LastQP().Release()
	})
}
