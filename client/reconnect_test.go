package client

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// An attempt that hangs, because what it sent was lost, does not keep calls from
// the server once that is back: others are made beside it.
func TestProbesBesideAHangingAttempt(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, func(cfg *Config) { cfg.Timeout, cfg.DialTimeout = time.Hour, time.Hour })
	roundTrip(t, c)
	// A connection asked for while the server is away is never answered.
	var away atomic.Bool
	var hanging, probed atomic.Int64
	away.Store(true)
	r.set(func(r *rig) {
		r.connect = func(ctx context.Context, device, addr string) error {
			if !away.Load() {
				return nil
			}
			hanging.Add(1)
			defer hanging.Add(-1)
			if dl, _ := ctx.Deadline(); time.Until(dl) < time.Minute {
				probed.Add(1)
			}
			return hang(ctx, device, addr)
		}
	})
	r.cut()
	eventually(t, "the attempt hangs", func() bool { return hanging.Load() == 1 })
	time.Sleep(3 * probeEvery)
	if probed.Load() != 0 {
		t.Error("probes although nobody waits")
	}
	done := make(chan error)
	go func() { done <- second(c.Get(context.Background(), []byte("k10"))) }()
	eventually(t, "probes end and are made again", func() bool { return probed.Load() > maxProbes+1 })
	if h := hanging.Load(); h > 1+maxProbes {
		t.Errorf("%d attempts at once", h)
	}
	away.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "the hanging attempt is let go", func() bool { return hanging.Load() == 0 })
	if k := c.Counters(); k.Connects != 2 {
		t.Errorf("%d connects", k.Connects)
	}
	roundTrip(t, c)
	settled(t, c)
}

// Two attempts succeed at the same moment: one session is used, the other ends.
func TestOneOfTwoAttemptsWins(t *testing.T) {
	n := softNode(t, nil)
	r := newRig("a")
	c := n.rigged([]rdma.Fabric{r}, nil)
	gate := make(chan struct{})
	var at atomic.Int64
	r.set(func(r *rig) {
		r.connect = func(ctx context.Context, _, _ string) error {
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
	r.cut()
	done := make(chan error)
	go func() { done <- second(c.Exists(context.Background(), []byte("k"))) }()
	eventually(t, "two attempts", func() bool { return at.Load() >= 2 })
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
	eventually(t, "the server has one session", func() bool {
		st, err := n.srv.Stats()
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
	f := newFakeServer(9)
	c := f.dial(t, nil, func(cfg *Config) { cfg.Timeout = time.Minute })
	var dying atomic.Bool
	dying.Store(true)
	var wg sync.WaitGroup
	defer wg.Wait()
	f.mu.Lock()
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type == wire.TypeView && dying.Load() {
			wg.Go(func() { // with the last step of the handshake, or just after it
				time.Sleep(time.Millisecond)
				f.lastQP().die(rdma.ErrPeerGone)
			})
		}
		return nil, false
	}
	f.mu.Unlock()
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
	before := f.dials.Load()
	f.lastQP().die(rdma.ErrPeerGone)
	eventually(t, "three more sessions", func() bool { return f.dials.Load() >= before+3 })
	time.Sleep(700 * time.Millisecond)
	// 10, 20, 40, … ms, shortened by up to a half: 9 dials take 1.2 s at least.
	if n := f.dials.Load() - before; n > 25 {
		t.Errorf("%d connections in less than a second", n)
	}
	dying.Store(false)
	close(stop)
	eventually(t, "the client recovers", func() bool { return c.Put(t.Context(), []byte("k"), nil) == nil })
}

// How long a rest lasts: while calls wait for nobody, never more than 100 ms,
// also when the call comes during the rest.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := &connector{c: &peer{done: ctx}, called: make(chan struct{}, 1)}
		rest := func(d time.Duration, answered bool) time.Duration {
			begin := time.Now()
			k.rest(d, answered)
			return time.Since(begin)
		}
		between := func(what string, got, least, most time.Duration) {
			t.Helper()
			if got < least || got > most {
				t.Errorf("%s: rested for %v", what, got)
			}
		}
		between("none", rest(0, false), 0, 0)
		for range 100 {
			between("nobody calls", rest(time.Second, false), time.Second/2, time.Second)
			k.waiting = 1
			between("a call waits", rest(time.Second, false), backoffCalls/2, backoffCalls)
			between("a short one", rest(10*time.Millisecond, false), 5*time.Millisecond, 10*time.Millisecond)
			between("a server refused", rest(time.Second, true), time.Second/2, time.Second)
			k.waiting = 0
			go func() {
				time.Sleep(20 * time.Millisecond)
				k.mu.Lock()
				k.waiting = 1
				k.mu.Unlock()
				k.called <- struct{}{}
			}()
			between("a call comes", rest(time.Second, false), backoffCalls/2, backoffCalls)
			k.waiting = 0
		}
		go func() {
			time.Sleep(time.Millisecond)
			cancel()
		}()
		between("closed", rest(time.Hour, false), time.Millisecond, time.Millisecond)
		synctest.Wait()
		for d, i := nextBackoff(0), 0; i < 20; d, i = nextBackoff(d), i+1 {
			if want := min(backoffFirst<<min(i, 20), backoffMax); d != want {
				t.Errorf("rest %d is %v", i, d)
			}
		}
	})
}
