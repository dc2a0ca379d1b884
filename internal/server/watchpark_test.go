package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestWatchParksBehindTheNewest: a watch has looked and found nothing, and before it
// waits its event comes. Nothing will wake it for that one, so it has to look again:
// else its client learns of the event when the wait is over.
func TestWatchParksBehindTheNewest(t *testing.T) {
	srv := startServer(t, nil)
	p, w := dial(t, srv, peerOptions{}), dial(t, srv, peerOptions{})
	from := w.now()
	v := p.must(putOf("k", "v", wire.Terms{})).Version
	id := w.wait(srv, wire.Watch{From: w.now(), Prefix: []byte("k"), WaitMillis: 60_000})
	// That one waits behind the put. It is put back to before it waited, and to where
	// it would have been had it looked before the put.
	srv.main.handlers.watches.mu.Lock()
	var waiting *parked
	for waiting = range srv.main.handlers.watches.all {
	}
	srv.main.handlers.watches.mu.Unlock()
	waiter, ok := srv.main.handlers.watches.take(waiting)
	if !ok {
		t.Fatal("it does not wait")
	}
	srv.main.store.ForgetEvents(waiter)
	r := waiting.r
	r.poll.from = store.WatchCursor{Incarnation: from.Incarnation, Version: layout.Version(from.Version)}
	if srv.main.handlers.watches.park(r, []byte("k"), time.Minute) {
		t.Fatal("it waits, and its event has been there all the time")
	}
	submit(srv.main.scans, r)
	_, body, err := w.await(id)
	if _, events := w.events(body, err); len(events) != 1 || events[0].Version != v {
		t.Errorf("%+v, want the put of version %d", events, v)
	}
}
