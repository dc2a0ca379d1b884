package read

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/store/layout"
)

// manyBounded is a get of some keys with a bound: their values, "-" for one that is absent, or the error.
func (r *wordsRig) manyBounded(d time.Duration, keys ...string) string {
	r.t.Helper()
	list, results := make([][]byte, len(keys)), make([]base.Result, len(keys))
	for i, k := range keys {
		list[i] = []byte(k)
	}
	if err := ManyBounded(r.t.Context(), r.rt, list, results, d); err != nil {
		return err.Error()
	}
	var got []string
	for i := range results {
		value := string(results[i].Value)
		if errors.Is(results[i].Err, base.ErrNotFound) {
			value = "-"
		}
		got = append(got, value)
		clear(list[i]) // it is the caller's again, whatever goes on beside
	}
	return strings.Join(got, " ")
}

// TestManyBounded: one look at the leader and a replica for all keys of the group, and then READs there alone, until the look is older than the bound.
func TestManyBounded(t *testing.T) {
	const look, d = "L cell, L cell, a cell, a cell, ", 400 * time.Millisecond
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.Set("none", "asked")
		for i, want := range []string{look + "a", "a", "a"} {
			r.forget()
			if got := r.manyBounded(d, wordsKey, "none", wordsKey); got != "a - a" || !strings.HasPrefix(r.seen(), want) || i > 0 && strings.Contains(r.seen(), "L") {
				t.Errorf("%q by %s, want %s", got, r.seen(), want)
			}
		}
		r.clock.Advance(d + 1)
		r.forget()
		if got := r.manyBounded(d, "none", wordsKey); got != "- a" || !strings.HasPrefix(r.seen(), look) {
			t.Errorf("%q by %s", got, r.seen())
		}
		if n := r.rt.Counters(); n.Bounded != 11 || n.BoundLooks != 2 || n.Fallbacks.Bound != 0 || n.SendGets != 0 && n.Bounded+n.SendGets > n.Gets {
			t.Errorf("%+v", n)
		}
		r.clock.Advance(time.Millisecond)
		r.forget()
		if got := r.manyBounded(time.Microsecond, wordsKey, wordsKey); got != "READ READ" || strings.Contains(r.seen(), "a item") { // without a bound
			t.Errorf("%q by %s", got, r.seen())
		}
		if r.fresh().Since(0) != nil {
			t.Error("a replica is READ that may be behind what that call has shown (R28)")
		}
	})
}

// TestManyBoundedLate: where no replica shows what the leader has, and where the replica does not answer, the leader answers, and others are not waited for.
func TestManyBoundedLate(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.at[0].SetPublished(r.group, 8)
		r.at[2].SetPublished(r.group, 8)
		if got := r.manyBounded(time.Second, wordsKey); got != "b" {
			t.Errorf("%q by %s", got, r.seen())
		}
	})
	inBounds(t, func(t *testing.T, r *wordsRig) {
		if got := r.manyBounded(time.Hour, wordsKey); got != "a" {
			t.Fatalf("%q by %s", got, r.seen())
		}
		answer := holdReads(r.at[1])
		begun := time.Now()
		if got := r.manyBounded(time.Hour, wordsKey); got != "READ" || time.Since(begun) > 2*boundedPatience {
			t.Errorf("%q after %v by %s", got, time.Since(begun), r.seen())
		}
		begun = time.Now()
		if got := r.manyBounded(time.Hour, wordsKey); got == "a" || time.Since(begun) > boundedPatience {
			t.Errorf("%q after %v by %s", got, time.Since(begun), r.seen())
		}
		answer()
		time.Sleep(time.Second)
	})
}

// TestManyBoundedDoesNotGoBack: what was READ at a replica while the client went over to another one is got again (R28).
func TestManyBoundedDoesNotGoBack(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.manyBounded(time.Second, wordsKey)
		once := sync.Once{}
		r.setHook(func(n *clienttest.Node, place layout.Place) {
			if n != r.at[1] || place < clienttest.ItemsPlace {
				return
			}
			once.Do(func() { // between the READ and what is made of it
				f := r.fresh()
				f.Leave(nil)
				p, _ := r.rt.Peer(r.at[2].ID)
				f.Found(&route.Seen{Peer: p, Session: p.Current(), At: r.clock.Now()})
			})
		})
		if got := r.manyBounded(time.Second, wordsKey); got != "READ" {
			t.Errorf("%q by %s", got, r.seen())
		}
	})
}

// TestManyBoundedExpires: that a replicated key has expired is said by the leader alone (R9), of many keys, too.
func TestManyBoundedExpires(t *testing.T) {
	inBounds(t, func(t *testing.T, r *wordsRig) {
		r.storeExpired(r.at[0])
		r.storeExpired(r.at[1])
		r.manyBounded(time.Second, wordsKey)
		p, _ := r.rt.Peer(r.at[1].ID)
		p.Current().Time.Pong(1<<40, p.Current().Now()) // the server's time
		for range 2 {                                   // the second time the place is known
			r.forget()
			if got := r.manyBounded(time.Second, "e"); got != "asked" || !strings.Contains(r.seen(), "a item") {
				t.Errorf("%q by %s", got, r.seen())
			}
			r.clock.Advance(time.Millisecond)
		}
	})
}
