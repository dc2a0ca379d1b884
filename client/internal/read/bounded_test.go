package read

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/store/layout"
)

// inBounds is inWords where each node shows another value, "L", "a" and "b", and all have published entry 7. Gets with a bound READ "a" first, and gets
// without one find "READ" at the leader, where they have found it before.
func inBounds(t *testing.T, f func(t *testing.T, r *wordsRig)) {
	t.Helper()
	inWords(t, 3, 3, nil, func(t *testing.T, r *wordsRig) {
		for i, n := range r.at {
			r.Store(n, wordsKey, string("Lab"[i]), 9)
			n.SetPublished(r.group, 7)
		}
		r.fresh().Node = r.at[1].ID
		f(t, r)
	})
}

func (r *wordsRig) fresh() *route.Fresh { return route.LedOf(r.rt, []byte(wordsKey)).Fresh() }

// bounded is get with a bound.
func (r *wordsRig) bounded(d time.Duration) string {
	w, key := &Query{N: -1}, []byte(wordsKey)
	err := Bounded(r.t.Context(), r.rt, "get", key, w, d)
	clear(key) // it is the caller's again, whatever goes on beside
	if err != nil {
		return err.Error()
	}
	return string(w.Dst)
}

func (r *wordsRig) expectBounded(d time.Duration, want, reads string) {
	r.t.Helper()
	r.forget()
	if got := r.bounded(d); got != want {
		r.t.Errorf("got %q by %s; want %q; %+v", got, r.seen(), want, r.rt.Counters())
	} else if seen := r.seen(); seen != reads {
		r.t.Errorf("got %q by %s; want %s", got, seen, reads)
	}
}

// TestBounded: one look at the leader and a replica, and then one READ of the item is a get, until the look is older than the bound.
func TestBounded(t *testing.T) {
	const look, d = "L cell, L cell, a cell, a cell, ", 400 * time.Millisecond
	inBounds(t, func(t *testing.T, r *wordsRig) {
		if got := r.bounded(d); got != "a" || !strings.HasPrefix(r.seen(), look+"a index") { // it is the first get there
			t.Errorf("%q by %s", got, r.seen())
		}
		r.expectBounded(d, "a", "a item")
		r.clock.Advance(d / 4)
		r.expectBounded(d, "a", "a item")
		r.expectBounded(d/5, "a", look+"a item") // the look was older than that
		r.clock.Advance(d)
		if got := r.bounded(d); got != "a" { // not older, and a look begins beside it
			t.Errorf("%q by %s", got, r.seen())
		}
		synctest.Wait()
		r.expectBounded(d/10, "a", "a item")
		r.clock.Advance(d + 1)
		r.expectBounded(d, "a", look+"a item")
		// Absent is an answer, too.
		w := &Query{N: -1}
		r.Set("none", "asked")
		if err := Bounded(t.Context(), r.rt, "get", []byte("none"), w, d); !errors.Is(err, base.ErrNotFound) {
			t.Errorf("%q, %v", w.Dst, err)
		}
		if n := r.rt.Counters(); n.Bounded != 8 || n.BoundLooks != 4 || n.Fallbacks.Bound != 0 {
			t.Errorf("%+v", n)
		}
		r.expectBounded(time.Microsecond, "READ", "L cell, L item, a cell") // none of its own
	})
}

// TestBoundedIsLate: a replica that has not published what the leader has is not read (R27), another one is, and a get without a bound if there is none.
func TestBoundedIsLate(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.at[0].SetPublished(r.group, 8)
		r.at[2].SetPublished(r.group, 8)
		if got := r.bounded(time.Second); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
		r.expectBounded(time.Second, "b", "b item")
	})
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.at[0].SetPublished(r.group, 8)
		go func() {
			time.Sleep(3 * time.Millisecond)
			r.at[1].SetPublished(r.group, 8)
		}()
		if got := r.bounded(time.Second); got != "a" { // it was waited for
			t.Errorf("%q by %s", got, r.seen())
		}
	})
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.bounded(time.Second)
		r.clock.Advance(700 * time.Millisecond)
		r.at[0].SetPublished(r.group, 8)
		for range 3 { // it is read for as long as the last look is good
			if got := r.bounded(time.Second); got != "a" {
				t.Errorf("%q by %s", got, r.seen())
			}
		}
	})
}

// TestBoundedWords: what the leader has published counts if words vouch for its cell (R26): else nothing is learned, and gets are as without a bound once the
// last look is too old.
func TestBoundedWords(t *testing.T) {
	for name, fall := range map[string]func(r *wordsRig){
		"the leader's word is higher":  func(r *wordsRig) { r.at[0].SetCell(r.group, layout.Cell{Word: 2, Config: 1}) },
		"another configuration":        func(r *wordsRig) { r.at[0].SetCell(r.group, layout.Cell{Word: 1, Config: 2}) },
		"the others' words are higher": func(r *wordsRig) { r.setOthers(layout.Cell{Word: 2, Config: 1}) },
		"the others' words are late":   func(r *wordsRig) { r.setOthers(layout.Cell{Config: 1}) },
		"the leader does not tell":     func(r *wordsRig) { r.at[0].SetPublished(r.group, 0); r.setOthers(layout.Cell{Config: 1}) },
		"it does not, and is believed": func(r *wordsRig) { r.at[0].SetPublished(r.group, 0); r.Set(wordsKey, "READ") },
	} {
		t.Run(name, func(t *testing.T) {
			inBounds(t, func(t *testing.T, r *wordsRig) {
				r.bounded(time.Second)
				fall(r)
				r.clock.Advance(900 * time.Millisecond)
				for range 3 {
					if got := r.bounded(time.Second); got != "a" {
						t.Fatalf("within the bound: %q by %s", got, r.seen())
					}
					synctest.Wait()
				}
				r.clock.Advance(200 * time.Millisecond)
				if got := r.bounded(time.Second); got != "asked" && got != "READ" {
					t.Errorf("behind the bound: %q by %s", got, r.seen())
				}
				if n := r.rt.Counters().Fallbacks.Bound; n != 1 {
					t.Errorf("%d gets without their bound", n)
				}
			})
		})
	}
}

// TestBoundedReplicaGoes: if the replica that is read is lost, or answers too late, the get is made without a bound, and the next look is at another one.
func TestBoundedReplicaGoes(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.bounded(time.Second)
		r.Stop(r.at[1])
		synctest.Wait()
		if got := r.bounded(time.Second); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
		r.expectBounded(time.Second, "b", "b item")
	})
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.bounded(time.Second)
		answer := holdReads(r.at[1])
		begun := time.Now()
		if got := r.bounded(time.Second); got != "READ" || time.Since(begun) > 300*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		if got := r.bounded(time.Second); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
		answer()
	})
}

// TestBoundedDoesNotGoBack: a client that has READ a replica goes over to another one by a look that it began afterwards, and a get that was under way at the
// former one then is made again (R28).
func TestBoundedDoesNotGoBack(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.bounded(time.Second)
		once := sync.Once{}
		r.setHook(func(n *clienttest.Node, place layout.Place) {
			if n != r.at[1] || place < clienttest.ItemsPlace {
				return
			}
			once.Do(func() { // between the READ and what is made of it: others have found that b is to be read
				f := r.fresh()
				f.Leave(nil)
				p, _ := r.rt.Peer(r.at[2].ID)
				f.Found(&route.Seen{Peer: p, Session: p.Current(), At: r.clock.Now()})
			})
		})
		if got := r.bounded(time.Second); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
	})
	// The look at another replica begins when no get READs the one before.
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.bounded(time.Second)
		r.Stop(r.at[1])
		synctest.Wait()
		before := r.fresh().Seen()
		r.setHook(func(n *clienttest.Node, place layout.Place) {
			if n == r.at[0] && place == clienttest.CellOf(r.group) && r.fresh().Reads(before.Session) {
				t.Error("the leader is looked at while gets READ the replica before")
			}
		})
		if got := r.bounded(time.Second); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
	})
}

// TestBoundedBehindOneWithout: a get that is made without a bound shows what the leader has, and no get with a bound that begins behind it shows what a
// replica had before (R28).
func TestBoundedBehindOneWithout(t *testing.T) {
	for name, d := range map[string]time.Duration{"the replica has no answer": time.Second, "the bound is too small": time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			inBounds(t, func(t *testing.T, r *wordsRig) {
				if got := r.bounded(time.Second); got != "a" {
					t.Fatalf("%q", got)
				}
				if d > time.Millisecond {
					r.storeExpired(r.at[0])
					r.storeExpired(r.at[1])
					p, _ := r.rt.Peer(r.at[1].ID)
					p.Current().Time.Pong(1<<40, p.Current().Now()) // the server's time
				}
				r.at[0].SetPublished(r.group, 8) // what the leader shows next
				r.clock.Advance(time.Millisecond)
				w := &Query{N: -1}
				if err := Bounded(t.Context(), r.rt, "get", []byte("e"), w, d); err != nil && !errors.Is(err, base.ErrNotFound) {
					t.Fatal(err)
				}
				r.clock.Advance(time.Millisecond)
				if got := r.bounded(time.Second); got == "a" { // it is at entry 7
					t.Errorf("a replica that is behind is read: %s", r.seen())
				}
				r.at[1].SetPublished(r.group, 8)
				r.fresh().Leave(nil)
				r.fresh().Node = r.at[1].ID
				r.clock.Advance(time.Second)
				if got := r.bounded(time.Second); got != "a" {
					t.Errorf("%q by %s", got, r.seen())
				}
			})
		})
	}
}

// TestBoundedExpires: that a replicated key has expired is said by the leader alone (R9).
func TestBoundedExpires(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.storeExpired(r.at[0])
		r.storeExpired(r.at[1])
		r.bounded(time.Second)
		p, _ := r.rt.Peer(r.at[1].ID)
		p.Current().Time.Pong(1<<40, p.Current().Now()) // the server's time
		w := &Query{N: -1}
		r.forget()
		if err := Bounded(t.Context(), r.rt, "get", []byte("e"), w, time.Second); err != nil || string(w.Dst) != "asked" || !strings.Contains(r.seen(), "a item") {
			t.Errorf("%q, %v by %s", w.Dst, err, r.seen())
		}
	})
}

// TestBoundedLooksOnce: calls that wait for a look wait for one, however it ends.
func TestBoundedLooksOnce(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.at[0].SetPublished(r.group, 8) // nobody shows it but the leader
		r.fresh().Node = r.at[1].ID
		answer := holdReads(r.at[0])
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_ = Bounded(ctx, r.rt, "get", []byte(wordsKey), &Query{N: -1}, time.Second)
			})
		}
		wg.Wait()
		if n := r.fresh().Looks.Load(); n > 3 {
			t.Errorf("%d looks in %v", n, time.Since(begun))
		}
		answer()
	})
	inBounds(t, func(t *testing.T, r *wordsRig) {
		if !r.fresh().TryBegin() {
			t.Fatal("somebody looks")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		begun := time.Now()
		time.AfterFunc(time.Second, r.fresh().End)
		_ = Bounded(ctx, r.rt, "get", []byte(wordsKey), &Query{N: -1}, time.Second)
		if waited := time.Since(begun); waited > 100*time.Millisecond {
			t.Errorf("a call of 20 ms waited %v for the look of another", waited)
		}
		time.Sleep(2 * time.Second)
	})
}
