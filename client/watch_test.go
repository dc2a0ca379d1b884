package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// While LeaseKeep lasts the client keeps its lease without gets; afterwards it
// READs nothing, and the next get goes by SEND and wakes it up again.
func TestLeaseIsKept(t *testing.T) {
	n := startNode(t, func(cfg *server.Config) { cfg.Lease, cfg.Beat = time.Second, 100*time.Millisecond })
	c := n.dial(nil)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "six renewals without a get", func() bool { return c.Counters().LeaseRenewals >= 6 })

	lazy := n.dial(func(cfg *Config) { cfg.LeaseKeep = -1 })
	s := lazy.solo.current.Load()
	// Where the watch did not run for a whole lease it finds the session new and the
	// lease lapsed, and renews it once more: then the get has a lease again.
	eventually(t, "a get after the lease has lapsed goes by SEND", func() bool {
		eventually(t, "the lease lapses", func() bool { return s.lease.lapsed.Load() })
		before := lazy.Counters().Fallbacks.NoLease
		if v, err := lazy.Get(t.Context(), []byte("k")); err != nil || string(v) != "v" {
			t.Fatal(v, err)
		}
		return lazy.Counters().Fallbacks.NoLease == before+1
	})
	eventually(t, "gets are one-sided again", func() bool {
		before := lazy.Counters().OneSidedHits
		_, err := lazy.Get(t.Context(), []byte("k"))
		return err == nil && lazy.Counters().OneSidedHits > before
	})
}

// A region that the client does not know is learned because of the get that
// meets it.
func TestNewRegionsAreLearned(t *testing.T) {
	n := startNode(t, nil)
	reader, writer := n.dial(nil), n.dial(nil)
	if err := writer.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a one-sided get from a region younger than the session", func() bool {
		_, err := reader.Get(t.Context(), []byte("k"))
		return err == nil && reader.Counters().OneSidedHits > 0
	})
	if reader.Counters().ViewRefreshes == 0 {
		t.Error("the view was not refreshed")
	}
}

// When the server has been away for a timeout, calls do not wait for their own.
func TestCircuitOpens(t *testing.T) {
	n := startNode(t, nil)
	timeout := max(100*time.Millisecond, 20*n.pace())
	c := n.dial(func(cfg *Config) { cfg.Timeout, cfg.DialTimeout = timeout, 2*timeout })
	n.stop()
	eventually(t, "the session is lost", func() bool { return c.solo.current.Load() == nil })
	// Whether it is open already or not, a call does not outlast its time.
	begin := time.Now()
	if _, err := c.Get(context.Background(), []byte("k")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begin); took > 50*timeout {
		t.Errorf("took %v with a timeout of %v", took, timeout)
	}
	eventually(t, "the circuit is open", func() bool {
		c.solo.conn.mu.Lock()
		defer c.solo.conn.mu.Unlock()
		return time.Since(c.solo.conn.lost) > c.solo.cfg.Timeout
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*timeout)
	defer cancel()
	begin = time.Now()
	err := c.Put(ctx, []byte("k"), nil)
	if took := time.Since(begin); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrTimeout) || took > 150*timeout {
		t.Errorf("%v after %v, with %v to wait", err, took, 300*timeout)
	}
	n.start()
	eventually(t, "it closes again", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}

// A client that has been using one store does not take another one for it.
func TestAnotherStoreIsRefused(t *testing.T) {
	f := newFakeServer(3)
	c := f.dial(t, nil, func(cfg *Config) { cfg.Timeout = 200 * time.Millisecond })
	f.mu.Lock()
	f.welcome = func(w *wire.Welcome) { w.ServerID = []byte("impostor") }
	f.mu.Unlock()
	f.lastQP().die(rdma.ErrPeerGone)
	eventually(t, "the other store is refused", func() bool {
		_, err := c.Get(t.Context(), []byte("k"))
		return errors.Is(err, ErrUnavailable) && c.Server().ID == ""
	})
	f.mu.Lock()
	f.welcome = nil
	f.mu.Unlock()
	eventually(t, "the old one is taken again", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}

// A server whose handlers are stuck answers no ping, but its beat goes on: the
// session is kept, for gets go on too. When the beat stops as well, it is over.
func TestSilenceAndBeat(t *testing.T) {
	f, clock := newFakeServer(3), newFakeClock()
	f.welcome = func(w *wire.Welcome) { w.Keepalive = 20 * time.Millisecond }
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) { return nil, h.Type == wire.TypePing }
	c := f.dial(t, clock, func(cfg *Config) { cfg.DialTimeout = time.Second })
	s := c.solo.current.Load()
	eventually(t, "a ping is long overdue", func() bool {
		pinged := s.pinged.Load()
		return pinged != 0 && c.solo.coarse.Load()-pinged > int64(1500*time.Millisecond)
	})
	if s.isDown() {
		t.Fatalf("given up although the lease is in force: %v", s.why())
	}
	clock.advance(time.Hour) // and no beat in all that time
	eventually(t, "the session is given up", s.isDown)
	if err := s.why(); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
