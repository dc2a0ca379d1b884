package write

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// async takes a put, which must find room.
func (r *rig) async(key, value string) *Pending {
	r.t.Helper()
	p, err := Async(r.router).Put(r.t.Context(), []byte(key), []byte(value))
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// flush waits for all puts that were taken.
func (r *rig) flush() {
	r.t.Helper()
	if err := Async(r.router).Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// emptied compares what the window holds with nothing.
func emptied(t *testing.T, f *route.Router) {
	t.Helper()
	synctest.Wait()
	a := Async(f)
	puts, _ := a.puts.State()
	free, _ := a.bytes.State()
	a.mu.Lock()
	defer a.mu.Unlock()
	if puts != f.Config().AsyncWindow || free != int(f.Config().AsyncBytes) {
		t.Errorf("%d places and %d bytes are free", puts, free)
	}
	if len(a.last)+len(a.lanes)+len(a.before)+a.now.left != 0 {
		t.Errorf("%d keys, %d lanes, %d flushes, %d puts are left", len(a.last), len(a.lanes), len(a.before), a.now.left)
	}
}

// asyncSeeds are how many random schedules TestAsyncOrder tries; each is printed if it fails.
const asyncSeeds = 40

// Puts of one key take effect once each and in the order of the calls, whatever becomes of
// their copies; so that is what the fake sees that applies each name once.
func TestAsyncOrder(t *testing.T) {
	base := uint64(time.Now().UnixNano())
	for i := range uint64(asyncSeeds) {
		asyncOrder(t, base+i)
		if t.Failed() {
			t.Fatalf("seed %d", base+i)
		}
	}
}

func asyncOrder(t *testing.T, seed uint64) {
	inBubble(t, func(_ *rig, cfg *base.Config) { cfg.Timeout = time.Hour }, func(t *testing.T, r *rig) {
		rng := rand.New(rand.NewPCG(seed, 1))
		bad := []fate{lostBefore, lostAfter, overloaded, closing, unknown}
		r.drawing(func(copied) fate { // called with the rig locked
			if rng.IntN(3) == 0 {
				return bad[rng.IntN(len(bad))]
			}
			return answered
		})
		keys := 1 + seed%7
		var all []*Pending
		for i := range uint64(100) {
			all = append(all, r.async(fmt.Sprint("k", i%keys), fmt.Sprintf("k%d=%03d", i%keys, i)))
		}
		r.flush()
		for i, p := range all {
			if _, err := p.Wait(); err != nil {
				t.Errorf("put %d: %v", i, err)
			}
		}
		if len(r.order) != len(all) {
			t.Errorf("%d puts took effect %d times", len(all), len(r.order))
		}
		last := map[string]string{}
		for _, v := range r.order {
			key, _, _ := strings.Cut(v, "=")
			if v <= last[key] {
				t.Errorf("%s took effect behind %s", v, last[key])
			}
			last[key] = v
		}
		emptied(t, r.router)
	})
}

// The window bounds the puts and the bytes that are under way; a call that finds no room waits
// for it as long as its context says.
func TestAsyncWindow(t *testing.T) {
	for _, bound := range []struct {
		name          string
		window, bytes int
		value         string
	}{{"puts", 3, 1 << 20, "v"}, {"bytes", 64, 3 * 100, strings.Repeat("v", 99)}, {"bytes of a put alone", 64, 50, strings.Repeat("v", 99)}} {
		t.Run(bound.name, func(t *testing.T) {
			inBubble(t, func(_ *rig, cfg *base.Config) {
				cfg.AsyncWindow, cfg.AsyncBytes, cfg.Timeout = bound.window, int64(bound.bytes), time.Minute
			}, func(t *testing.T, r *rig) {
				r.drawing(func(copied) fate { return unheard })
				most := 3
				if bound.bytes < 100 {
					most = 1
				}
				for i := range most {
					r.async(string(rune('a'+i)), bound.value)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				p, err := Async(r.router).Put(ctx, []byte("z"), []byte(bound.value))
				if p != nil || !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrOutcomeUnknown) || time.Since(begun) != time.Second {
					t.Errorf("a put beyond the window: %v, %v after %v", p, err, time.Since(begun))
				}
				late := make(chan error)
				go func() {
					_, err := Async(r.router).Put(t.Context(), []byte("z"), []byte(bound.value))
					late <- err
				}()
				synctest.Wait()
				r.draw()
				r.LastQP().Die(rdma.ErrPeerGone) // now they are sent again, and answered
				if err := <-late; err != nil {
					t.Error(err)
				}
				r.flush()
				emptied(t, r.router)
			})
		})
	}
}

// The puts that are ready go with one doorbell, and the caller's buffer is the caller's again when
// Put returns.
func TestAsyncBurst(t *testing.T) {
	inBubble(t, func(_ *rig, cfg *base.Config) { cfg.MaxInflight = 16 }, func(t *testing.T, r *rig) {
		const n = 8 // as many as the fake gives credits for
		var posts []int
		taken := make(chan struct{})
		r.OnPost = func(wrs []rdma.SendWR) {
			if wrs[0].Op != rdma.OpSend {
				return
			}
			if posts = append(posts, len(wrs)); len(posts) == 1 {
				<-taken // the others come meanwhile
			}
		}
		buf := []byte("00")
		var want []string
		for i := range n + 1 {
			copy(buf, fmt.Sprintf("%02d", i))
			want = append(want, string(buf))
			if _, err := Async(r.router).Put(t.Context(), fmt.Appendf(nil, "k%d", i), buf); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait()
			}
		}
		copy(buf, "xx")
		close(taken)
		r.flush()
		if !slices.Equal(posts, []int{1, n}) {
			t.Errorf("%d puts went in posts of %v", n+1, posts)
		}
		if !slices.Equal(r.order, want) {
			t.Errorf("took effect: %q", r.order)
		}
	})
}

// A put ends with its context or after Config.Timeout, told as Put tells it, and one behind it
// counts its time from when it was taken.
func TestAsyncEnds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		a := Async(r.router)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Put(canceled, key, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := a.Put(t.Context(), nil, nil); !errors.Is(err, base.ErrKeyEmpty) {
			t.Error(err)
		}
		r.drawing(func(copied) fate { return unheard })
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		first, err := a.Put(soon, []byte("a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		second, third := r.async("b", ""), r.async("b", "")
		if _, err := first.Wait(); !errors.Is(err, base.ErrOutcomeUnknown) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		_, err = second.Wait()
		if _, behind := third.Wait(); !errors.Is(err, base.ErrOutcomeUnknown) || errors.Is(behind, base.ErrOutcomeUnknown) || !errors.Is(behind, base.ErrTimeout) {
			t.Errorf("%v, the one behind it: %v", err, behind)
		}
		if took := time.Since(begun); took > r.router.Config().Timeout+2*time.Second {
			t.Errorf("it took %v", took)
		}
		emptied(t, r.router)
		r.LastQP().Die(errors.New("the test ends"))
	})
}

// Flush waits for what came before it and for nothing that comes after.
func TestAsyncFlush(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		a := Async(r.router)
		r.flush() // there is nothing
		r.drawing(func(c copied) fate {
			if c.val == "slow" {
				return overloaded
			}
			return answered
		})
		slow, quick := r.async("a", "slow"), r.async("b", "quick")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Flush(ctx); !errors.Is(err, base.ErrTimeout) {
			t.Error(err)
		}
		if v, err := quick.Wait(); v != r.reply.Version || err != nil {
			t.Error(v, err)
		}
		done := make(chan error)
		go func() { done <- a.Flush(t.Context()) }()
		synctest.Wait()
		later := r.async("c", "slow")
		r.drawing(func(c copied) fate {
			if c.key == "c" {
				return overloaded
			}
			return answered
		})
		if err := <-done; err != nil {
			t.Error(err)
		}
		select {
		case <-slow.Done():
		default:
			t.Error("Flush returned before the put that was taken first had ended")
		}
		select {
		case <-later.Done():
			t.Error("Flush waited for a put that came after it")
		default:
		}
		r.draw()
		r.flush()
		emptied(t, r.router)
	})
}

// When the client is closed each put ends: what was sent with an unknown outcome, what was not
// with ErrClosed.
func TestAsyncClose(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, r *rig) {
		r.drawing(func(copied) fate { return unheard })
		sent := r.async("a", "1")
		synctest.Wait()
		behind := r.async("a", "2")
		r.router.Close()
		_, err := sent.Wait()
		if _, next := behind.Wait(); !errors.Is(err, base.ErrOutcomeUnknown) || !errors.Is(next, base.ErrClosed) || errors.Is(next, base.ErrOutcomeUnknown) {
			t.Errorf("%v, the one behind it: %v", err, next)
		}
		p, err := Async(r.router).Put(t.Context(), key, nil)
		if err == nil {
			_, err = p.Wait()
		}
		if !errors.Is(err, base.ErrClosed) {
			t.Errorf("a put after the end: %v", err)
		}
		emptied(t, r.router)
	})
}

// Large and small puts of one key keep their order, too, and a refused one lets the next go.
func TestAsyncLarge(t *testing.T) {
	inBubble(t, func(r *rig, _ *base.Config) {
		r.Welcome = func(w *wire.Welcome) { w.MaxValue = 200_000 }
	}, func(t *testing.T, r *rig) {
		r.draw(answered, lostAfter)
		ends := []*Pending{r.async("a", "1"), r.async("a", string(large())), r.async("a", string(make([]byte, 200_001))), r.async("a", "2")}
		for i, p := range ends {
			if _, err := p.Wait(); (i == 2) != errors.Is(err, base.ErrTooLarge) || i != 2 && err != nil {
				t.Errorf("put %d: %v", i, err)
			}
		}
		if got := strings.Join(r.order, ","); got != "1,,2" {
			t.Errorf("took effect: %s", got)
		}
		emptied(t, r.router)
	})
}

// A put whose key has moved goes to the new owner, once, as a Put does; so do those behind it.
func TestAsyncMoved(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		key := clienttest.KeysOf(n1.Map, 1)["n1"][0]
		next := clienttest.Swapped(n1.Map)
		take(n1, next)
		take(n2, next)
		var all []*Pending
		for range 5 {
			p, err := Async(r).Put(t.Context(), []byte(key), []byte("v"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		for _, p := range all {
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		if n1.Puts[key] != 0 || n2.Puts[key] != len(all) {
			t.Errorf("%d and %d puts", n1.Puts[key], n2.Puts[key])
		}
		emptied(t, r)
	})
}
