package client_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// An attempt that hangs, because what it sent was lost, does not keep calls from
// the server once that is back: others are made beside it.
func TestProbesBesideAHangingAttempt(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, func(cfg *client.Config) { cfg.Timeout, cfg.DialTimeout = time.Hour, time.Hour })
	roundTrip(t, c)
	// A connection asked for while the server is away is never answered.
	var away atomic.Bool
	var hanging, probed atomic.Int64
	away.Store(true)
	r.Set(func(r *clienttest.Rig) {
		r.Connect = func(ctx context.Context, device, addr string) error {
			if !away.Load() {
				return nil
			}
			hanging.Add(1)
			defer hanging.Add(-1)
			if dl, _ := ctx.Deadline(); time.Until(dl) < time.Minute {
				probed.Add(1)
			}
			return clienttest.Hang(ctx, device, addr)
		}
	})
	r.Cut()
	clienttest.Eventually(t, "the attempt hangs", func() bool { return hanging.Load() == 1 })
	time.Sleep(3 * peer.ProbeEvery)
	if probed.Load() != 0 {
		t.Error("probes although no call waits")
	}
	done := make(chan error)
	go func() { done <- second(c.Get(context.Background(), []byte("k10"))) }()
	clienttest.Eventually(t, "probes end and are made again", func() bool { return probed.Load() > peer.MaxProbes+1 })
	if h := hanging.Load(); h > 1+peer.MaxProbes {
		t.Errorf("%d attempts at once", h)
	}
	away.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	clienttest.Eventually(t, "the hanging attempt is let go", func() bool { return hanging.Load() == 0 })
	if k := c.Counters(); k.Connects != 2 {
		t.Errorf("%d connects", k.Connects)
	}
	roundTrip(t, c)
	settled(t, c)
}

// Two attempts succeed at the same moment: one session is used, the other ends.
func TestOneOfTwoAttemptsWins(t *testing.T) {
	n := node.Soft(t, nil)
	r := clienttest.NewRig("a")
	c := rigged(n, []rdma.Fabric{r}, nil)
	gate := make(chan struct{})
	var at atomic.Int64
	r.Set(func(r *clienttest.Rig) {
		r.Connect = func(ctx context.Context, _, _ string) error {
			at.Add(1)
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				at.Add(-1)
				return ctx.Err()
			}
		}
	})
	r.Cut()
	done := make(chan error)
	go func() { done <- second(c.Exists(context.Background(), []byte("k"))) }()
	clienttest.Eventually(t, "two attempts", func() bool { return at.Load() >= 2 })
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
	clienttest.Eventually(t, "the server has one session", func() bool {
		st, err := n.Server.Stats()
		return err == nil && st.Sessions == 1 && st.SettingUp == 0
	})
	roundTrip(t, c)
	if k := c.Counters(); k.Connects != 2 || k.SessionsLost != 1 {
		t.Errorf("%d connects, %d lost", k.Connects, k.SessionsLost)
	}
}

// A server that takes the client in and drops it at once is not asked again
// without a rest.
func TestSessionsThatDieAtOnce(t *testing.T) {
	f := clienttest.NewServer(9)
	c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.Timeout = time.Minute })
	var dying atomic.Bool
	dying.Store(true)
	var wg sync.WaitGroup
	defer wg.Wait()
	f.Mu.Lock()
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type == wire.TypeView && dying.Load() {
			wg.Go(func() { // with the last step of the handshake, or just after it
				time.Sleep(time.Millisecond)
				f.LastQP().Die(rdma.ErrPeerGone)
			})
		}
		return nil, false
	}
	f.Mu.Unlock()
	stop := make(chan struct{})
	wg.Go(func() { // calls wait all the time
		for {
			select {
			case <-stop:
				return
			default:
				_ = c.Put(context.Background(), []byte("k"), nil)
			}
		}
	})
	before := f.Dials.Load()
	f.LastQP().Die(rdma.ErrPeerGone)
	clienttest.Eventually(t, "three more sessions", func() bool { return f.Dials.Load() >= before+3 })
	time.Sleep(700 * time.Millisecond)
	// 10, 20, 40, … ms, shortened by up to a half: 9 dials take 1.2 s at least.
	if n := f.Dials.Load() - before; n > 25 {
		t.Errorf("%d connections in less than a second", n)
	}
	dying.Store(false)
	close(stop)
	clienttest.Eventually(t, "the client recovers", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}
