package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// A server without leases: what is READ is believed while its NIC answers,
// stopped or not. Everything else ends at its deadline, and when the NIC is gone
// too the session ends.
func TestLeaseOff(t *testing.T) {
	f := newFakeServer(77)
	f.change(func(mem []byte) {
		f.buildIndex(mem, oldSeg)
		f.putItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
	})
	f.welcome = func(w *wire.Welcome) {
		w.Lease, w.Beat, w.Keepalive = 100*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
		w.Flags |= wire.WelcomeLeaseOff
	}
	stop, resume := stoppable(f)
	clock := newFakeClock()
	c := f.dial(t, clock, func(cfg *Config) { cfg.DialTimeout = 300 * time.Millisecond })
	s := c.solo.current.Load()
	if !c.Server().LeaseOff || !s.lease.off {
		t.Error("it is not told")
	}
	mustGet(t, c, "one")
	stop()
	before := c.Counters()
	clock.advance(time.Hour)
	// For longer than a silent server is left alone: its READs are its life sign.
	for end := time.Now().Add(4 * c.solo.cfg.DialTimeout); time.Now().Before(end); {
		mustGet(t, c, "one")
		if _, err := c.Get(t.Context(), []byte("absent")); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	// And while nobody gets anything.
	time.Sleep(4 * c.solo.cfg.DialTimeout)
	mustGet(t, c, "one")
	after := c.Counters()
	if after.SendGets != before.SendGets || after.LeaseExpired != 0 || after.LeaseRenewals != 0 || after.ReclaimUpdates != 0 || after.SessionsLost != 0 {
		t.Errorf("%+v", after)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Put(ctx, []byte("k"), nil); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("put: %v", err)
	}
	// The list of retired pages is of no interest: nothing is used again.
	f.retire(placeA, 1)
	if _, behind := s.lease.observe(beatOf(f), clock.now()); behind {
		t.Error("the reclaim list is wanted")
	}
	mustGet(t, c, "one")

	f.lastQP().holdReads() // now the NIC is silent as well
	eventually(t, "the session is given up", func() bool { return s.isDown() })
	resume()
	eventually(t, "gets are back", func() bool {
		got, err := c.Get(t.Context(), fakeKey)
		return err == nil && string(got) == "one"
	})
	settled(t, c)
}
