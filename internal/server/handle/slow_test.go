package handle

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// A nearlyFull stands before a store, and lets one put in for each gap, as a store does whose
// log is nearly full. Whoever comes earlier is told how long it takes.
type nearlyFull struct {
	mu    sync.Mutex
	to    func(*store.Write) error
	gap   time.Duration
	next  time.Time
	full  bool
	tries int
	in    []string // keys, in the order in which they were let in
	when  []time.Time
}

func (n *nearlyFull) Submit(w *store.Write) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries++
	now := time.Now()
	switch wait := n.next.Sub(now); {
	case slows(w) && n.full:
		return &store.LogError{Full: true}
	case slows(w) && wait > 0:
		return &store.LogError{Wait: wait}
	case slows(w):
		n.next = now.Add(n.gap)
	}
	n.in, n.when = append(n.in, string(w.Key)), append(n.when, now)
	return n.to(w)
}

// let returns who was let in.
func (n *nearlyFull) let() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.in)
}

// slowRig is a rig whose store is nearly full, in virtual time.
func slowRig(t *testing.T, do func(*testing.T, *rig, *nearlyFull)) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		s, q, end := g.open("")
		feed(t, s, q, putOf(1, "first")) // memory for items is there from now on
		end()
		n := &nearlyFull{to: g.Store.Submit, gap: 40 * time.Millisecond, next: time.Now().Add(40 * time.Millisecond)}
		g.submitTo = n.Submit
		do(t, g, n)
	})
}

func putOf(id uint64, key string) []byte {
	return wire.AppendPut(nil, id, wire.Put{Key: []byte(key), Value: []byte("value")})
}

// TestSlowedPutsWait: puts that the store slows down are let in as fast as it says, in the
// order in which they came over all sessions, also those that come later; a delete passes.
func TestSlowedPutsWait(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		_, a, endA := g.open("")
		_, b, endB := g.open("")
		began := time.Now()
		a.Arrive(t, putOf(1, "a1"))
		synctest.Wait()
		b.Arrive(t, putOf(1, "b1"))
		synctest.Wait()
		a.Arrive(t, putOf(2, "a2"))
		synctest.Wait()
		if got := g.Slowed(); got != 3 || g.Counters.Slowed.Load() == 0 {
			t.Fatalf("%d puts wait, %d are counted", got, g.Counters.Slowed.Load())
		}
		b.Arrive(t, wire.AppendDelete(nil, 2, wire.Delete{Key: []byte("gone")}))
		synctest.Wait()
		if got := n.let(); !slices.Equal(got, []string{"gone"}) {
			t.Fatalf("%v were let in, a delete does not wait", got)
		}
		time.Sleep(40 * time.Millisecond) // a1 is in, and there is room for one that comes just now
		b.Arrive(t, putOf(3, "b3"))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := n.let(); !slices.Equal(got, []string{"gone", "a1", "b1", "a2", "b3"}) {
			t.Errorf("they were let in as %v", got)
		}
		for i := range 4 {
			if at := n.when[i+1].Sub(began); at != time.Duration(i+1)*n.gap {
				t.Errorf("%s was let in after %v", n.in[i+1], at)
			}
		}
		if g.Slowed() != 0 || g.slow.n.Load() != 0 {
			t.Errorf("%d wait yet, %d are counted", g.Slowed(), g.slow.n.Load())
		}
		for _, q := range []interface{ Sent() []wire.Type }{a, b} {
			if sent := q.Sent(); len(sent) < 2 {
				t.Errorf("answers: %v", sent)
			}
		}
		endA()
		endB()
	})
}

// TestSlowedOnce: each time that a write comes back from the slowdown it is submitted once, also
// when it is refused again: tries are as many as waits, and not more.
func TestSlowedOnce(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		s, q, end := g.open("")
		n.gap = time.Hour
		n.next = time.Now().Add(30 * time.Millisecond)
		q.Arrive(t, putOf(1, "k"))
		synctest.Wait()
		n.mu.Lock()
		n.next = time.Now().Add(90 * time.Millisecond) // somebody else was faster
		n.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if n.tries != 3 || len(n.in) != 1 || s.Busy() || q.Last.Status != wire.StatusOK {
			t.Errorf("%d tries, %v let in, busy %v, answer %v", n.tries, n.in, s.Busy(), q.Last)
		}
		if got := g.Counters.Slowed.Load(); got != 1 {
			t.Errorf("one put was slowed down, %d are counted", got)
		}
		end()
	})
}

// TestSlowedStaysFirst: a write that is refused again stays before those that came later.
func TestSlowedStaysFirst(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		_, q, end := g.open("")
		for i, key := range []string{"a", "b", "c"} {
			q.Arrive(t, putOf(uint64(i+1), key))
			synctest.Wait()
		}
		n.mu.Lock()
		n.next = time.Now().Add(70 * time.Millisecond) // a is refused again
		n.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := n.let(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("let in: %v", got)
		}
		end()
	})
}

// TestSlowedSessionEnds: the parked puts of a session end with it, and are not done; those of
// others stay.
func TestSlowedSessionEnds(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		_, a, endA := g.open("")
		_, b, endB := g.open("")
		for i := range 3 {
			a.Arrive(t, putOf(uint64(i+1), fmt.Sprint("a", i)))
			b.Arrive(t, putOf(uint64(i+1), fmt.Sprint("b", i)))
			synctest.Wait()
		}
		endA() // returns when nothing of it is left
		if got := g.Slowed(); got != 3 {
			t.Errorf("%d puts wait, the other session has 3", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := n.let(); !slices.Equal(got, []string{"b0", "b1", "b2"}) {
			t.Errorf("let in: %v", got)
		}
		if g.slow.n.Load() != 0 {
			t.Errorf("%d are counted", g.slow.n.Load())
		}
		endB()
	})
}

// TestSlowedInHandEnds: a put whose session ends while the store is asked again is not parked
// once more: nobody would take it out, and the session would not be gone.
func TestSlowedInHandEnds(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		s, q, end := g.open("")
		q.Arrive(t, putOf(1, "k"))
		synctest.Wait()
		c := s.Conn().(*conn)
		r := g.slow.take()
		go end()
		<-s.Context().Done()
		g.slow.drop(c)
		g.slowDown(r, time.Hour, true)
		g.slow.done()
		synctest.Wait()
		if g.Slowed() != 0 || g.slow.n.Load() != 0 || len(g.Sessions.List()) != 0 || len(n.in) != 0 {
			t.Errorf("%d wait, %d are counted, %d sessions, %v let in", g.Slowed(), g.slow.n.Load(), len(g.Sessions.List()), n.in)
		}
	})
}

// TestFullLogRefuses: where there is no room at all for long, puts are refused in so many words,
// each when it has waited for as long as it may, and not one behind the other.
func TestFullLogRefuses(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		s, q, end := g.open("")
		n.full = true
		for i := range 3 {
			q.Arrive(t, putOf(uint64(i+1), "k"))
			synctest.Wait()
		}
		time.Sleep(fullPatience / 2)
		if synctest.Wait(); g.Slowed() != 3 {
			t.Errorf("%d wait while there may be room soon", g.Slowed())
		}
		time.Sleep(fullPatience/2 + 5*fullRest)
		synctest.Wait()
		if q.Last.Status != wire.StatusOverloaded || g.Slowed() != 0 || len(n.in) != 0 || s.Busy() {
			t.Errorf("answer %v, %d wait, %v let in", q.Last, g.Slowed(), n.in)
		}
		end()
	})
}

// TestSlowedIsTold: while checkpoints fail the store lets in ever fewer puts, here none. Each of
// those that wait is refused in so many words when it has waited for as long as it may, and
// not one behind the other; a put that comes then is slowed down, and not refused at once.
func TestSlowedIsTold(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		s, q, end := g.open("")
		const wait = 90 * time.Millisecond // the longest that the store says
		n.gap, n.next = time.Hour, time.Now().Add(time.Hour)
		g.submitTo = func(w *store.Write) error {
			err := n.Submit(w)
			if e, ok := errors.AsType[*store.LogError](err); ok {
				e.Wait = min(e.Wait, wait)
			}
			return err
		}
		for i := range 3 {
			q.Arrive(t, putOf(uint64(i+1), "k"))
			synctest.Wait()
		}
		time.Sleep(slowPatience - wait)
		if synctest.Wait(); g.Slowed() != 3 {
			t.Errorf("%d wait while the log may have room soon", g.Slowed())
		}
		time.Sleep(2*wait + time.Millisecond)
		synctest.Wait()
		if q.Last.Status != wire.StatusOverloaded || g.Slowed() != 0 || len(n.in) != 0 || s.Busy() {
			t.Errorf("answer %v, %d wait, %v let in", q.Last, g.Slowed(), n.in)
		}
		q.Arrive(t, putOf(4, "k"))
		time.Sleep(slowPatience / 2)
		if synctest.Wait(); g.Slowed() != 1 {
			t.Errorf("%d wait, a put has come", g.Slowed())
		}
		end()
	})
}

// TestFullLogHasRoomSoon: puts that find the log full for a moment are let in in their order.
func TestFullLogHasRoomSoon(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		s, q, end := g.open("")
		n.full, n.gap, n.next = true, 0, time.Time{}
		for i, key := range []string{"a", "b", "c"} {
			q.Arrive(t, putOf(uint64(i+1), key))
			synctest.Wait()
		}
		time.Sleep(20 * fullRest)
		n.mu.Lock()
		n.full = false
		n.mu.Unlock()
		time.Sleep(2 * fullRest)
		synctest.Wait()
		if got := n.let(); !slices.Equal(got, []string{"a", "b", "c"}) || s.Busy() || q.Last.Status != wire.StatusOK {
			t.Errorf("%v let in, busy %v, answer %v", got, s.Busy(), q.Last)
		}
		end()
	})
}

// TestSlowedAge: a write that lies here for long is as old as it is, however often it was
// submitted: else the store would call its outcome unknown.
func TestSlowedAge(t *testing.T) {
	slowRig(t, func(t *testing.T, g *rig, n *nearlyFull) {
		const lain = 40 * time.Second
		var age time.Duration
		to := n.to
		n.to = func(w *store.Write) error { age = w.ID.Age; return to(w) }
		s, q, end := g.open("")
		q.Arrive(t, wire.AppendPut(nil, 1, wire.Put{Key: []byte("k"), Value: []byte("v"), Terms: wire.Terms{ID: wire.RequestID{Seq: 1}}}))
		synctest.Wait()
		g.slow.mu.Lock()
		g.slow.parked[0].Begun -= int64(lain)
		g.slow.mu.Unlock()
		for range 5 {
			n.mu.Lock()
			n.next = time.Now().Add(45 * time.Millisecond) // others are faster
			n.mu.Unlock()
			time.Sleep(42 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if n.tries < 5 || age < lain || age > lain+time.Second || s.Busy() || q.Last.Status != wire.StatusOK {
			t.Errorf("%d tries, it is %v old, busy %v, answer %v", n.tries, age, s.Busy(), q.Last)
		}
		end()
	})
}
