package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A server without leases: what is READ is believed while its NIC answers,
// stopped or not. Everything else ends at its deadline, and when the NIC is gone
// too the session ends.
func TestLeaseOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := clienttest.NewServer(77)
		f.Change(func(mem []byte) {
			f.BuildIndex(mem, oldSeg)
			f.PutItem(mem, oldSeg, placeA, fakeKey, []byte("one"), 1)
		})
		f.Welcome = func(w *wire.Welcome) {
			w.Lease, w.Beat, w.Keepalive = 100*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
			w.Flags |= wire.WelcomeLeaseOff
		}
		stop, resume := stoppable(f)
		clock := clienttest.NewClock()
		c := dialFake(t, f, clock, func(cfg *client.Config) { cfg.DialTimeout = 300 * time.Millisecond })
		s := rt(c).Only().Current()
		if !admin.Of(c).Server().LeaseOff || !s.Lease.Off {
			t.Error("it is not told")
		}
		mustGet(t, c, "one")
		stop()
		before := c.Counters()
		clock.Advance(time.Hour)
		// For longer than a silent server is left alone: its READs are its life sign.
		for end := time.Now().Add(4 * rt(c).Only().Config().DialTimeout); time.Now().Before(end); {
			mustGet(t, c, "one")
			if _, err := c.Get(t.Context(), []byte("absent")); !errors.Is(err, client.ErrNotFound) {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		// And while no get is made.
		time.Sleep(4 * rt(c).Only().Config().DialTimeout)
		mustGet(t, c, "one")
		after := c.Counters()
		if after.SendGets != before.SendGets || after.LeaseExpired != 0 || after.LeaseRenewals != 0 || after.ReclaimUpdates != 0 || after.SessionsLost != 0 {
			t.Errorf("%+v", after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := c.Put(ctx, []byte("k"), nil); !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("put: %v", err)
		}
		// The list of retired pages is of no interest: nothing is used again.
		f.Retire(placeA, 1)
		if _, behind := s.Lease.Observe(clienttest.BeatOf(f), clock.Now()); behind {
			t.Error("the reclaim list is wanted")
		}
		mustGet(t, c, "one")

		f.LastQP().HoldReads() // now the NIC is silent as well
		clienttest.Eventually(t, "the session is given up", func() bool { return s.IsDown() })
		resume()
		clienttest.Eventually(t, "gets are back", func() bool {
			got, err := c.Get(t.Context(), fakeKey)
			return err == nil && string(got) == "one"
		})
		settled(t, c)
	})
}
