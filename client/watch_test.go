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
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// While LeaseKeep lasts the client keeps its lease without gets; afterwards it
// READs nothing, and the next get goes by SEND and wakes it up again.
func TestLeaseIsKept(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) { cfg.Lease, cfg.Beat = 400*time.Millisecond, 40*time.Millisecond })
	c := dialNode(n, nil)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	clienttest.Eventually(t, "six renewals without a get", func() bool { return c.Counters().LeaseRenewals >= 6 })

	lazy := dialNode(n, func(cfg *client.Config) { cfg.LeaseKeep = -1 })
	s := rt(lazy).Only().Current()
	// Where the watch did not run for a whole lease it finds the session new and the
	// lease lapsed, and renews it once more: then the get has a lease again.
	clienttest.Eventually(t, "a get after the lease has lapsed goes by SEND", func() bool {
		clienttest.Eventually(t, "the lease lapses", func() bool { return s.Lease.IsLapsed() })
		before := lazy.Counters().Fallbacks.NoLease
		if v, err := lazy.Get(t.Context(), []byte("k")); err != nil || string(v) != "v" {
			t.Fatal(v, err)
		}
		return lazy.Counters().Fallbacks.NoLease == before+1
	})
	clienttest.Eventually(t, "gets are one-sided again", func() bool {
		before := lazy.Counters().OneSidedHits
		_, err := lazy.Get(t.Context(), []byte("k"))
		return err == nil && lazy.Counters().OneSidedHits > before
	})
}

// A region that the client does not know is learned because of the get that
// meets it.
func TestNewRegionsAreLearned(t *testing.T) {
	n := node.Start(t, nil)
	reader, writer := dialNode(n, nil), dialNode(n, nil)
	if err := writer.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	clienttest.Eventually(t, "a one-sided get from a region younger than the session", func() bool {
		_, err := reader.Get(t.Context(), []byte("k"))
		return err == nil && reader.Counters().OneSidedHits > 0
	})
	if reader.Counters().ViewRefreshes == 0 {
		t.Error("the view was not refreshed")
	}
}

// When the server has been away for a timeout, calls do not wait for their own.
func TestCircuitOpens(t *testing.T) {
	n := node.Start(t, nil)
	timeout := max(100*time.Millisecond, 20*paceOf(n))
	c := dialNode(n, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = timeout, 2*timeout })
	n.Stop()
	clienttest.Eventually(t, "the session is lost", func() bool { return rt(c).Only().Current() == nil })
	// Whether it is open already or not, a call does not outlast its time.
	begin := time.Now()
	if _, err := c.Get(context.Background(), []byte("k")); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begin); took > 50*timeout {
		t.Errorf("took %v with a timeout of %v", took, timeout)
	}
	clienttest.Eventually(t, "the circuit is open", func() bool {
		return rt(c).Only().LostFor() > rt(c).Only().Config().Timeout
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*timeout)
	defer cancel()
	begin = time.Now()
	err := c.Put(ctx, []byte("k"), nil)
	if took := time.Since(begin); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrTimeout) || took > 150*timeout {
		t.Errorf("%v after %v, with %v to wait", err, took, 300*timeout)
	}
	n.Start()
	clienttest.Eventually(t, "it closes again", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}

// A client that has been using one store does not take another one for it.
func TestAnotherStoreIsRefused(t *testing.T) {
	f := clienttest.NewServer(3)
	c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.Timeout = 200 * time.Millisecond })
	f.Mu.Lock()
	f.Welcome = func(w *wire.Welcome) { w.ServerID = []byte("impostor") }
	f.Mu.Unlock()
	f.LastQP().Die(rdma.ErrPeerGone)
	clienttest.Eventually(t, "the other store is refused", func() bool {
		_, err := c.Get(t.Context(), []byte("k"))
		return errors.Is(err, client.ErrUnavailable) && admin.Of(c).Server().ID == ""
	})
	f.Mu.Lock()
	f.Welcome = nil
	f.Mu.Unlock()
	clienttest.Eventually(t, "the old one is taken again", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}

// A server whose handlers are stuck answers no ping, but its beat goes on: the
// session is kept, for gets go on too. When the beat stops as well, it is over.
func TestSilenceAndBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, clock := clienttest.NewServer(3), clienttest.NewClock()
		f.Welcome = func(w *wire.Welcome) { w.Keepalive = 20 * time.Millisecond }
		f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) { return nil, h.Type == wire.TypePing }
		c := dialFake(t, f, clock, func(cfg *client.Config) { cfg.DialTimeout = time.Second })
		s := rt(c).Only().Current()
		clienttest.Eventually(t, "a ping is long overdue", func() bool {
			pinged := s.Usage().Pinged
			return pinged != 0 && rt(c).Only().Clock.Coarse()-pinged > int64(1500*time.Millisecond)
		})
		if s.IsDown() {
			t.Fatalf("given up although the lease is in force: %v", s.Why())
		}
		clock.Advance(time.Hour) // and no beat in all that time
		clienttest.Eventually(t, "the session is given up", s.IsDown)
		if err := s.Why(); !errors.Is(err, client.ErrUnavailable) {
			t.Error(err)
		}
	})
}
