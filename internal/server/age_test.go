package server

import (
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A copy that was sent first and has lain here for longer than the result of a
// retry is remembered is not applied: nobody knows any more whether one was.
func TestAgeOfWhatLiesHere(t *testing.T) {
	srv := startServer(t, nil)
	p := dial(t, srv, peerOptions{client: [16]byte{1}})
	for i, lain := range []time.Duration{time.Second, 10 * time.Minute} {
		srv.gate.block()
		id := p.id()
		p.send(incrementOf("n", 1, wire.Terms{ID: wire.RequestID{Slot: uint16(i), Seq: 1}})(id))
		for deadline := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
			if _, n := srv.gate.waiting(); n == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it does not arrive")
			}
		}
		srv.gate.mu.Lock()
		srv.gate.parked[0].begun -= int64(lain)
		srv.gate.mu.Unlock()
		srv.gate.unblock()
		h, _, err := p.await(id)
		if want := []wire.Status{wire.StatusOK, wire.StatusUnknown}[i]; err != nil || h.Status != want {
			t.Errorf("after %v: %v, %v, want %v", lain, h.Status, err, want)
		}
	}
	p.wantValue("n", "1")
}
