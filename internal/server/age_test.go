package server

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A copy that was sent first and has lain here for longer than the result of a
// retry is remembered is not applied: nobody knows any more whether one was.
func TestAgeOfWhatLiesHere(t *testing.T) {
	srv := startServer(t, nil)
	lies := standBetween(srv.main)
	p := dial(t, srv, peerOptions{client: [16]byte{1}})
	for i, lain := range []time.Duration{time.Second, 10 * time.Minute} {
		older := func(r *session.Request) { r.Begun -= int64(lain) }
		lies.before.Store(&older)
		id := p.id()
		p.send(incrementOf("n", 1, wire.Terms{ID: wire.RequestID{Slot: uint16(i), Seq: 1}})(id))
		h, _, err := p.await(id)
		if want := []wire.Status{wire.StatusOK, wire.StatusUnknown}[i]; err != nil || h.Status != want {
			t.Errorf("after %v: %v, %v, want %v", lain, h.Status, err, want)
		}
	}
	lies.before.Store(nil)
	p.wantValue("n", "1")
}
