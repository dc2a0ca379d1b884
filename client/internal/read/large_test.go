package read

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

const mib = 1 << 20 // two windows of chunks

// bothWays runs f where chunks are READ and where they are copied out of mapped memory.
func bothWays(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for name, mapped := range map[string]bool{"posted": false, "mapped": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) { r.Direct = mapped }, f)
		})
	}
}

// withLarge puts a value of n bytes at itemC, as version v.
func (r *rig) withLarge(n int, v layout.Version) string {
	large := value(n, byte(v))
	r.Change(func(mem []byte) { r.PutItem(mem, seg, itemC, key, []byte(large), v) })
	return large
}

// holding answers Get with a hold of the item of n bytes at itemC, and Fetch with its bytes.
func (r *rig) holding(n int, v layout.Version) {
	size := layout.ItemSize(len(key), n, false)
	r.on(wire.TypeGet, func(h wire.Header, _ []byte) []byte {
		return wire.AppendGetReply(nil, h.ID, wire.GetReply{
			Kind: wire.GetHeld, ValueLen: uint32(n), Version: uint64(v),
			Hold: wire.Hold{ID: 7, Place: uint64(itemC), Size: uint32(size), KeyLen: uint16(len(key))},
		})
	})
	r.on(wire.TypeFetch, func(h wire.Header, body []byte) []byte { return r.fetched(h, body) })
}

// fetched is the reply to a Fetch of the item at itemC, at most 10,000 bytes of it.
func (r *rig) fetched(h wire.Header, body []byte) []byte {
	m, err := wire.ParseFetch(body)
	if err != nil || m.Hold != 7 {
		panic(fmt.Sprint(m, err))
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	out := wire.AppendFetchHead(nil, h.ID, m.Offset)
	out = append(out, r.Mem[itemC.Byte()+uint64(m.Offset):][:min(m.Length, 10_000)]...)
	return wire.FinishFetch(out, 0)
}

// hasAsked reports whether anything was asked for by SEND.
func (r *rig) hasAsked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent) > 0
}

// twoBuffers makes room for a window that is READ ahead, which waits for none.
func (r *rig) twoBuffers() {
	p := r.c.Begin(r.t.Context())
	var two [2]*device.Buffer
	for i := range two {
		var err error
		if two[i], err = r.s.Device.Buffers.Take(&p, base.WindowBytes); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, b := range two {
		r.s.Device.Buffers.Put(b)
	}
}

// The head of a large value is READ first, and then the chunks that hold what is wanted, no
// other.
func TestLargeValue(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig) {
		large := r.withLarge(mib, 5)
		r.must(large, base.PathLarge)
		buckets := " buckets buckets"
		if r.Direct {
			buckets = " buckets" // one after the other: a copy is cheaper than what it might bring in vain
		}
		r.expect("root directory" + buckets + " c" + strings.Repeat(" chunk", 16))
		for _, c := range []struct {
			off, n int64
			chunks int
		}{
			{70_000, 10, 1}, {65_536, 65_536, 1}, {65_535, 2, 2}, {65_536, 65_537, 2}, {mib, 5, 0}, {0, 0, 0}, {mib - 1, -1, 1},
		} {
			w := &Query{Off: c.off, N: c.n, Dst: []byte("x")}
			err := Get(t.Context(), r.router, "get", key, w)
			end := min(c.off+c.n, mib)
			if c.n < 0 {
				end = mib
			}
			if err != nil || string(w.Dst) != "x"+large[c.off:end] {
				t.Errorf("%d bytes from %d on: got %d bytes, %v", c.n, c.off, len(w.Dst), err)
			}
			r.expect("c" + strings.Repeat(" chunk", c.chunks))
		}
		w := &Query{InfoOnly: true}
		if err := Get(t.Context(), r.router, "stat", key, w); err != nil || w.Info.Size != mib {
			t.Errorf("%+v, %v", w.Info, err)
		}
		r.expect("c")
		if k := r.counters(); k.LargeReads != 6 || k.SendGets != 0 {
			t.Errorf("%+v", k)
		}
	})
}

// Where the caller's memory does not begin with a word, and where the server's stops being mapped
// in the middle, a value comes all the same, and each chunk once.
func TestLargeValueWhereCopiesEnd(t *testing.T) {
	const size, chunks = mib + 70_013, 18
	for _, mapped := range []int{0, 1, 8, 12, chunks} { // chunks, until no more memory is
		for before := range 9 {
			inBubble(t, func(r *rig) { r.Direct = true }, func(t *testing.T, r *rig) {
				large := r.withLarge(size, 5)
				r.must(large, base.PathLarge)
				r.reset()
				copied := 0
				r.hook(func(place layout.Place, dst []byte) { copied += chunksIn(place, dst) })
				r.Change(func([]byte) { r.Unmapped = func() bool { return copied >= mapped } })
				w := &Query{Off: 3, N: size - 5, Dst: make([]byte, before, before+size)}
				if err := Get(t.Context(), r.router, "get", key, w); err != nil || string(w.Dst[before:]) != large[3:size-2] {
					t.Errorf("%d bytes behind %d, %d chunks mapped: got %d bytes, %v", size-5, before, mapped, len(w.Dst), err)
				}
				again := 0 // of the window that was under way
				if mapped < chunks {
					again = mapped % base.WindowChunks
				}
				if k := r.counters(); k.LargeReads != 2 || k.SendGets != 0 || copied != chunks+again {
					t.Errorf("%d chunks READ, want %d and %d again: %+v", copied, chunks, again, k)
				}
			})
		}
	}
}

// A value that is larger than the caller's own memory is refused before a chunk is READ; one
// that fits is READ to where it stays.
func TestLargeValueIntoASink(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig) {
		large := r.withLarge(mib, 5)
		gone := make(chan struct{})
		for _, size := range []int{mib - 1, mib} {
			sink, err := device.NewOwned(size, true, func() { gone <- struct{}{} })
			if err != nil {
				t.Fatal(err)
			}
			r.must(large, base.PathLarge)
			r.reset()
			w := &Query{N: -1, Sink: sink, Dst: sink.Bytes()[:0]}
			err = Get(t.Context(), r.router, "get", key, w)
			if size < mib {
				if !errors.Is(err, base.ErrTooLarge) || len(w.Dst) != 0 {
					t.Errorf("%d bytes, %v", len(w.Dst), err)
				}
				r.expect("c")
			} else {
				if err != nil || string(w.Dst) != large || &w.Dst[0] != &sink.Bytes()[0] {
					t.Errorf("%d bytes, %v", len(w.Dst), err)
				}
				r.expect("c" + strings.Repeat(" chunk", 16))
			}
			sink.Free()
			<-gone
		}
	})
}

// Chunks count under the checksums of the head, within the lease in force when they were
// posted, and while their page is not retired. If not, the get begins again; after some
// tries the server is asked to hold the value.
func TestLargeValueIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *rig, dst []byte) // at each chunk
		count func(base.Counters) uint64
	}{
		"a chunk of another version": {func(_ *rig, dst []byte) { dst[5] ^= 1 },
			func(k base.Counters) uint64 { return k.Retries.Chunk }},
		"the lease ends": {func(r *rig, _ []byte) { r.clock.Advance(3 * time.Second) },
			func(k base.Counters) uint64 { return k.LeaseExpired }},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, r *rig) {
				r.withLarge(mib, 5)
				r.on(wire.TypeGet, saying("by SEND"))
				r.hook(func(place layout.Place, dst []byte) {
					if chunksIn(place, dst) > 0 {
						c.spoil(r, dst)
					}
				})
				w := &Query{N: -1, Dst: []byte("x")}
				if err := Get(t.Context(), r.router, "get", key, w); err != nil || string(w.Dst) != "xby SEND" || w.Path != base.PathSend {
					t.Errorf("%d bytes by %v, %v", len(w.Dst), w.Path, err)
				}
				k := r.counters()
				if c.count(k) == 0 || k.LargeReads != 0 || k.OneSidedHits != 0 {
					t.Errorf("%+v", k)
				}
			})
		})
	}
	t.Run("its page is retired", func(t *testing.T) {
		bothWays(t, func(t *testing.T, r *rig) {
			large := r.withLarge(mib, 5)
			chunks := 0
			r.hook(func(place layout.Place, dst []byte) {
				if chunksIn(place, dst) == 0 {
					return
				}
				if chunks++; chunks == 1 {
					r.retireUnderLock(itemC)
				}
			})
			r.must(large, base.PathLarge)
			if n := r.counters().Retries.Chunk; n != 1 {
				t.Errorf("begun again %d times", n)
			}
		})
	})
}

// retireUnderLock has the client learn, in a hook of a READ, that the page at p is retired.
func (r *rig) retireUnderLock(p layout.Place) {
	done := make(chan struct{})
	r.Mu.Unlock()
	go func() {
		defer close(done)
		r.Retire(p, 1)
		for i := range uint64(2) {
			r.clock.Advance(100 * time.Millisecond)
			r.Beat(50 + i)
			r.s.Renew(r.t.Context())
		}
	}()
	<-done
	r.Mu.Lock()
}

// A value in chunks that is overwritten all the time is held by the server, READ from where
// it holds it, and released.
func TestHeldValue(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig) {
		large := r.withLarge(mib, 5)
		r.holding(mib, 5)
		r.hook(func(place layout.Place, dst []byte) {
			if chunksIn(place, dst) > 0 && !r.hasAsked() {
				dst[0] ^= 1
			}
		})
		r.must(large, base.PathSend)
		r.mu.Lock()
		if len(r.sent) != 2 || r.sent[0] != wire.TypeGet || r.sent[1] != wire.TypeRelease {
			t.Errorf("asked by SEND %v", r.sent)
		}
		r.mu.Unlock()
		if k := r.counters(); k.Retries.Chunk != largeTries || k.Fallbacks.Rounds != 1 || k.SendGets != 1 {
			t.Errorf("%+v", k)
		}
	})
}

// ask gets key by SEND.
func (r *rig) ask(w *Query) error {
	p := r.c.Begin(r.t.Context())
	return BySend(r.s, &p, key, w)
}

// A hold lasts for a lease after the request was sent. What was read of it counts, and the
// next hold of the same version goes on behind that; another version, and a value that comes
// with the reply, begin anew.
func TestHoldEndsMidway(t *testing.T) {
	const size, chunks = mib + mib/2, 24 // three windows
	for _, c := range []struct {
		next string
		want int // chunks READ
	}{
		{"the same version", chunks + chunks - 8}, // the first window need not be READ again
		{"another version", 2 * chunks},
		{"a small value", chunks},
	} {
		t.Run(c.next, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, r *rig) {
				want := r.withLarge(size, 5)
				r.holding(size, 5)
				r.twoBuffers()
				seen := 0
				r.hook(func(place layout.Place, dst []byte) {
					n := chunksIn(place, dst)
					if n == 0 {
						return
					}
					// The third window is posted when the first has been handled: the hold ends
					// before the second is.
					if seen += n; seen != 24 {
						return
					}
					r.clock.Advance(3 * time.Second)
					switch c.next {
					case "another version":
						want = value(size, 6)
						r.PutItem(r.Mem, seg, itemC, key, []byte(want), 6)
						r.holding(size, 6)
					case "a small value":
						want = "by SEND"
						r.on(wire.TypeGet, saying(want))
					}
				})
				w := &Query{N: -1, Dst: []byte("x")}
				if err := r.ask(w); err != nil || string(w.Dst) != "x"+want {
					t.Errorf("%d bytes, %v", len(w.Dst), err)
				}
				if k := r.counters(); seen != c.want || k.Retries.Chunk != 1 {
					t.Errorf("%d chunks READ, want %d; %d holds more", seen, c.want, k.Retries.Chunk)
				}
			})
		})
	}
}

// A connection that ends under a hold: the get begins anew on the next one, and what the first
// hold has brought does not count.
func TestConnectionEndsUnderAHold(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		large := r.withLarge(mib+mib/2+1000, 5)
		r.holding(len(large), 5)
		r.s.Lease.Lapse(r.s.Lease.Grant()) // so the get begins by SEND
		seen, q := 0, r.LastQP()
		r.hook(func(place layout.Place, dst []byte) {
			if n := chunksIn(place, dst); n > 0 {
				if seen += n; seen == 24 { // the first window has been taken
					q.Die(rdma.ErrPeerGone)
				}
			}
		})
		w := &Query{N: -1, Dst: []byte("x")}
		if err := Get(t.Context(), r.router, "get", key, w); err != nil || string(w.Dst) != "x"+large {
			t.Errorf("%d bytes, %v", len(w.Dst), err)
		}
		if k := r.counters(); k.Retries.Session != 1 || seen < 24 {
			t.Errorf("%d chunks, %+v", seen, k)
		}
	})
}

// A held chunk that does not verify is damaged, because nothing writes there: the server is
// told, and asked to hold the value again.
func TestHeldChunkIsDamaged(t *testing.T) {
	bothWays(t, func(t *testing.T, r *rig) {
		large := r.withLarge(mib, 5)
		r.holding(mib, 5)
		reports := 0
		r.on(wire.TypeReport, func(h wire.Header, _ []byte) []byte {
			reports++
			return wire.AppendReportReply(nil, h.ID)
		})
		bad := true
		r.hook(func(place layout.Place, dst []byte) {
			if chunksIn(place, dst) > 0 && bad {
				bad = false
				dst[9] ^= 1
			}
		})
		w := &Query{N: -1}
		if err := r.ask(w); err != nil || string(w.Dst) != large {
			t.Errorf("%d bytes, %v", len(w.Dst), err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if reports != 1 {
			t.Errorf("%d reports", reports)
		}
	})
}

// What a server says of a hold is checked: nonsense ends the session, and what stands at the
// place must be the key's, of the version that was said.
func TestHoldThatIsNone(t *testing.T) {
	good := wire.Hold{ID: 7, Place: uint64(itemC), Size: uint32(layout.ItemSize(len(key), mib, false)), KeyLen: uint16(len(key))}
	for name, change := range map[string]func(*wire.Hold){
		"a place that cannot be": func(h *wire.Hold) { h.Place = uint64(layout.MaxPlace) + 2 },
		"a size that is odd":     func(h *wire.Hold) { h.Size++ },
		"a size without room":    func(h *wire.Hold) { h.Size = mib },
		"a size above any":       func(h *wire.Hold) { h.Size = layout.MaxItemSize + 8 },
	} {
		inBubble(t, nil, func(t *testing.T, r *rig) {
			r.withLarge(mib, 5)
			h := good
			change(&h)
			r.on(wire.TypeGet, func(head wire.Header, _ []byte) []byte {
				return wire.AppendGetReply(nil, head.ID, wire.GetReply{Kind: wire.GetHeld, ValueLen: mib, Version: 5, Hold: h})
			})
			if err := r.ask(&Query{N: -1}); !errors.Is(err, base.ErrProtocol) || !r.s.IsDown() {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	inBubble(t, nil, func(t *testing.T, r *rig) { // another version than was said, each time
		r.withLarge(mib, 5)
		r.holding(mib, 6)
		begun := time.Now()
		if err := r.ask(&Query{N: -1}); !errors.Is(err, base.ErrUnavailable) {
			t.Error(err)
		}
		if n := r.counters().Retries.Chunk; n != heldTries || time.Since(begun) < heldTries*heldRest/2 {
			t.Errorf("held %d times in %v", n, time.Since(begun))
		}
	})
}

// Without the right to READ a get is a SEND, and a large value is fetched in pieces by SEND,
// each of which is verified as if it had been READ.
func TestSendOnly(t *testing.T) {
	sendOnly := func(r *rig) {
		r.Server.Welcome = func(w *wire.Welcome) { w.Flags |= wire.WelcomeSendOnly }
	}
	inBubble(t, sendOnly, func(t *testing.T, r *rig) {
		r.on(wire.TypeGet, saying("by SEND"))
		r.must("by SEND", base.PathSend)
		large := r.withLarge(200_000, 5)
		r.holding(200_000, 5)
		r.must(large, base.PathSend)
		w := &Query{Off: 70_000, N: 10, Dst: []byte("x")}
		if err := Get(t.Context(), r.router, "get", key, w); err != nil || string(w.Dst) != "x"+large[70_000:70_010] {
			t.Errorf("%q, %v", w.Dst, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.reads) != 0 {
			t.Errorf("READ %q without the right to", r.reads)
		}
	})
	for name, c := range map[string]struct {
		spoil func(r *rig, n int, out []byte) []byte // the nth piece
		want  error
	}{
		"a piece is damaged": {func(_ *rig, n int, out []byte) []byte {
			if n == 5 {
				out[len(out)-9] ^= 1
			}
			return out
		}, nil},
		"the hold is over": {func(r *rig, n int, out []byte) []byte {
			if n == 5 {
				h, _ := wire.ParseHeader(out)
				return wire.AppendError(nil, wire.TypeFetch, h.ID, wire.StatusNoHold, "")
			}
			return out
		}, nil},
		"a lease goes by": {func(r *rig, n int, out []byte) []byte {
			if n == 5 {
				r.clock.Advance(3 * time.Second)
			}
			return out
		}, nil},
		"a piece of elsewhere": {func(r *rig, n int, out []byte) []byte {
			if n == 5 {
				out[wire.HeaderSize] ^= 8 // its offset
			}
			return out
		}, base.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sendOnly, func(t *testing.T, r *rig) {
				large := r.withLarge(200_000, 5)
				r.holding(200_000, 5)
				n := 0
				r.on(wire.TypeFetch, func(h wire.Header, body []byte) []byte {
					n++
					return c.spoil(r, n, r.fetched(h, body))
				})
				got, _, err := r.get()
				switch k := r.counters(); {
				case !errors.Is(err, c.want):
					t.Error(err)
				case c.want == nil && (got != large || k.Retries.Chunk != 1):
					t.Errorf("%d bytes, held %d times more", len(got), k.Retries.Chunk)
				}
			})
		})
	}
}
