package handle

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// now is a cursor of this moment.
func (g *rig) now() store.WatchCursor {
	g.t.Helper()
	page, err := g.Store.Watch(store.WatchRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	return page.Next
}

// nobodyWaits checks that nothing is left of a watch.
func (g *rig) nobodyWaits() {
	g.t.Helper()
	g.watches.mu.Lock()
	defer g.watches.mu.Unlock()
	if len(g.watches.all) != 0 || len(g.watches.polls) != 0 {
		g.t.Errorf("%d watches wait, of %d logins", len(g.watches.all), len(g.watches.polls))
	}
}

// TestWatchParksBehindTheNewest: a watch has looked and found nothing, and before it
// waits its event comes. Nothing will wake it for that one, so it has to look again:
// else its client learns of the event when the wait is over.
func TestWatchParksBehindTheNewest(t *testing.T) {
	g := newRig(t, nil)
	s, q, end := g.open("")
	from := g.now()
	feed(t, s, q, wire.AppendPut(nil, 1, wire.Put{Key: []byte("k"), Value: []byte("v")}))
	now := g.now()
	if now == from {
		t.Fatal("the put is no event")
	}
	q.Arrive(t, wire.AppendWatch(nil, 2, wire.Watch{
		From: wire.Cursor{Incarnation: now.Incarnation, Version: uint64(now.Version)}, Prefix: []byte("k"), WaitMillis: 60_000,
	}))
	eventually(t, "the watch waits", func() bool { return g.Watches() == 1 })
	// That one waits behind the put. It is put back to before it waited, and to where
	// it would have been had it looked before the put.
	g.watches.mu.Lock()
	var waiting *parked
	for waiting = range g.watches.all {
	}
	g.watches.mu.Unlock()
	waiter, ok := g.watches.take(waiting)
	if !ok {
		t.Fatal("it does not wait")
	}
	g.Store.ForgetEvents(waiter)
	r := waiting.r
	r.poll.from = from
	if g.watches.park(r, []byte("k"), time.Minute) {
		t.Fatal("it waits, and its event has been there all the time")
	}
	told := g.Store.WatchStats().Told
	submit(g.Scans, r)
	eventually(t, "the watch is answered", func() bool { return !s.Busy() })
	if q.Last.Type != wire.TypeWatch.Reply() || q.Last.Status != wire.StatusOK || g.Store.WatchStats().Told != told+1 {
		t.Errorf("answered with %v and %d events", q.Last, g.Store.WatchStats().Told-told)
	}
	end()
	g.nobodyWaits()
}

// A watch that is about to wait when its session ends does not: the session
// would not be gone before its time is over.
func TestWatchDoesNotWaitForADeadSession(t *testing.T) {
	g := newRig(t, nil)
	s, _, end := g.open("")
	c := s.Conn().(*conn)
	r := &op{Request: &session.Request{Session: s}, c: c, poll: poll{begun: true, from: g.now()}}
	s.Revoke()
	g.watches.drop(c)
	if g.watches.park(r, nil, time.Minute) {
		t.Error("it waits")
		g.watches.takeAll(c)
	}
	g.nobodyWaits()
	end()
}

// TestTenantWatches: a tenant has its share of the places, however many sessions it has,
// and the main login has all of them.
func TestTenantWatches(t *testing.T) {
	g := newRig(t, func(env *Env) { env.MaxWatches, env.TenantWatches = 5, 2 }, tenant("anna"))
	from := g.now()
	watch := wire.AppendWatch(nil, 2, wire.Watch{
		From: wire.Cursor{Incarnation: from.Incarnation, Version: uint64(from.Version)}, WaitMillis: 60_000,
	})
	var ends []func()
	waits := func(name string, want bool) {
		t.Helper()
		before := g.Watches()
		s, q, end := g.open(name)
		ends = append(ends, end)
		q.Arrive(t, watch)
		if want {
			eventually(t, "the watch waits", func() bool { return g.Watches() == before+1 })
			return
		}
		eventually(t, "the watch is answered", func() bool { return len(q.Sent()) == 1 && !s.Busy() })
		if q.Last.Status != wire.StatusOverloaded || g.Watches() != before {
			t.Errorf("a watch of %q: %v, %d wait", name, q.Last, g.Watches())
		}
	}
	waits("anna", true)
	waits("anna", true)
	waits("anna", false)
	for range 3 {
		waits("", true)
	}
	waits("", false)
	for _, end := range ends {
		end()
	}
	g.nobodyWaits()
}
