package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
)

// settled waits until nothing of a client is under way and checks that nothing
// was lost on the way: slots, queue space, quarantined buffers.
func settled(t testing.TB, c *client.Client) {
	t.Helper()
	clienttest.Eventually(t, "buffers leave quarantine", func() bool { return c.Counters().QuarantinedBytes == 0 })
	s := rt(c).Only().Current()
	if s == nil {
		return
	}
	clienttest.Eventually(t, "every slot is free", func() bool { return s.Usage().SlotsFree == rt(c).Only().Config().MaxInflight })
	clienttest.Eventually(t, "the send queue is empty", func() bool { return s.Usage().ReadsFree == s.Device.MaxReads })
	clienttest.Eventually(t, "no buffer is out", func() bool { // the keeper may be reading a beat
		return s.Device.Buffers.Usage().Out == 0
	})
}

// writers put rising numbers under keys of their own, each checking that what
// it reads back is never older than what was acknowledged to it.
type writers struct {
	wg      sync.WaitGroup
	stop    chan struct{}
	acked   []atomic.Uint64
	tried   []atomic.Uint64
	unknown atomic.Int64
	failed  atomic.Int64
}

func startWriters(t *testing.T, c *client.Client, n int, timeout time.Duration) *writers {
	w := &writers{stop: make(chan struct{}), acked: make([]atomic.Uint64, n), tried: make([]atomic.Uint64, n)}
	for i := range n {
		w.wg.Go(func() {
			key := fmt.Appendf(nil, "writer-%d", i)
			for v := uint64(1); ; v++ {
				select {
				case <-w.stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				w.tried[i].Store(v)
				err := c.Put(ctx, key, binary.LittleEndian.AppendUint64(nil, v))
				switch {
				case err == nil:
					w.acked[i].Store(v)
				case errors.Is(err, client.ErrOutcomeUnknown):
					w.unknown.Add(1)
				case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrTimeout):
					w.failed.Add(1)
				default:
					t.Errorf("put: %v", err)
				}
				if got, err := c.Get(ctx, key); err == nil {
					if n := binary.LittleEndian.Uint64(got); n < w.acked[i].Load() || n > v {
						t.Errorf("writer %d reads %d after %d was acknowledged and %d tried", i, n, w.acked[i].Load(), v)
					}
				}
				cancel()
			}
		})
	}
	return w
}

// finish stops the writers and checks what the store holds.
func (w *writers) finish(t *testing.T, c *client.Client) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	for i := range w.acked {
		got, err := c.Get(t.Context(), fmt.Appendf(nil, "writer-%d", i))
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
			continue
		}
		if n := binary.LittleEndian.Uint64(got); n < w.acked[i].Load() || n > w.tried[i].Load() {
			t.Errorf("writer %d: %d stored, %d acknowledged, %d tried", i, n, w.acked[i].Load(), w.tried[i].Load())
		}
	}
}

func (w *writers) progress(t *testing.T) {
	t.Helper()
	var before []uint64
	for i := range w.acked {
		before = append(before, w.acked[i].Load())
	}
	clienttest.Eventually(t, "every writer makes progress", func() bool {
		for i := range w.acked {
			if w.acked[i].Load() <= before[i]+3 {
				return false
			}
		}
		return true
	})
}

// The server is stopped and started again, twice: the client comes back by
// itself, on the new incarnation, with nothing of the old one.
func TestServerRestart(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	w := startWriters(t, c, 8, 20*time.Second)
	w.progress(t)
	for range 2 {
		before := admin.Of(c).Server().Incarnation
		n.Stop()
		n.Start()
		w.progress(t)
		if now := admin.Of(c).Server().Incarnation; now == before {
			t.Error("still on the old incarnation")
		}
	}
	w.finish(t, c)
	settled(t, c)
	if k := c.Counters(); k.Connects < 3 {
		t.Errorf("%d connects", k.Connects)
	}
}

// Connections break again and again under load.
func TestConnectionsBreak(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	w := startWriters(t, c, 8, 20*time.Second)
	for range 10 {
		w.progress(t)
		p.Cut()
	}
	w.progress(t)
	w.finish(t, c)
	settled(t, c)
	t.Logf("%d outcomes unknown, %d calls failed, %d sessions lost", w.unknown.Load(), w.failed.Load(), c.Counters().SessionsLost)
}

// unheardPut is the error of a put that is sent to a server which does not answer. One whose
// time is over before a slow machine has sent it is made again, with more time up to most.
func unheardPut(t *testing.T, c *client.Client, most time.Duration) (err error) {
	for limit := 50 * time.Millisecond; limit <= most; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err = c.Put(ctx, []byte("k"), []byte("w"))
		cancel()
		if errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, client.ErrTimeout) {
			break
		}
	}
	return err
}

// A server that answers nothing any more, its connection intact.
func TestStalledServer(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) {
		cfg.Servers, cfg.Timeout, cfg.DialTimeout = []string{p.Addr()}, 400*time.Millisecond, 400*time.Millisecond
	})
	key := []byte("k")
	patient, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Put(patient, key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(patient, key); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	// Calls with a deadline of their own end at it.
	// (A machine slow enough gives the whole connection up before we look, or has a call
	// end before it has sent anything; that one is made again.)
	intact := func() bool { return c.Counters().SessionsLost == 0 }
	for limit := 50 * time.Millisecond; limit <= 200*time.Millisecond && c.Counters().QuarantinedBytes == 0 && intact(); limit *= 2 {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := c.Get(ctx, key)
		cancel()
		if !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 5*time.Second {
			t.Fatalf("get: %v after %v", err, time.Since(begin))
		}
	}
	if c.Counters().QuarantinedBytes == 0 && intact() {
		t.Error("the READ is still under way, and its buffer is not in quarantine")
	}
	err := unheardPut(t, c, 200*time.Millisecond)
	if (!errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded)) && intact() {
		t.Errorf("put: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err = c.Get(ctx, key); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrTimeout) {
		t.Errorf("cancelled get: %v", err)
	}
	// Calls without one end after Config.Timeout or a little more.
	for name, call := range map[string]func() error{
		"get": func() error { return second(c.Get(context.Background(), key)) },
		"put": func() error { return c.Put(context.Background(), key, nil) },
		"scan": func() error {
			return client.FetchPage(context.Background(), c)
		},
		"ping": func() error { return second(c.Ping(context.Background())) },
	} {
		// One that a slow machine holds up is made again.
		var took time.Duration
		for range 3 {
			begin := time.Now()
			err = call()
			if took = time.Since(begin); took <= 3*time.Second {
				break
			}
		}
		if err == nil || took > 3*time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		if !errors.Is(err, client.ErrTimeout) && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.Resume()
	p.Cut()
	clienttest.Eventually(t, "the client recovers", func() bool { return second(c.Get(t.Context(), key)) == nil })
	settled(t, c)
}

// Contexts end at every possible moment; nothing is lost by it and the
// connection goes on.
func TestCancelAnywhere(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, func(cfg *client.Config) { cfg.MaxInflight = 4 })
	value := make([]byte, 200_000)
	keys := [][]byte{[]byte("small"), []byte("middle"), []byte("large"), []byte("absent")}
	for i, size := range []int{10, 10_000, 200_000} {
		if err := c.Put(t.Context(), keys[i], value[:size]); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var ended, done atomic.Int64
	for g := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 100 {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(4) > 0 { // every fourth call is left alone
					go func(after time.Duration) {
						if after > 0 {
							time.Sleep(after)
						}
						cancel()
					}(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
				var err error
				switch key := keys[rng.IntN(4)]; rng.IntN(8) {
				case 0:
					err = c.Put(ctx, keys[0], value[:10])
				case 1:
					err = c.Put(ctx, keys[2], value)
				case 2:
					_, err = c.MultiGet(ctx, keys)
				case 3:
					err = client.FetchPage(ctx, c)
				case 4:
					_, err = c.GetRange(ctx, key, 0, 5)
				case 5:
					_, err = c.Ping(ctx)
				default:
					_, err = c.Get(ctx, key)
				}
				cancel()
				switch {
				case err == nil, errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrRange):
					done.Add(1)
				case errors.Is(err, context.Canceled):
					ended.Add(1)
				default:
					t.Errorf("%v", err)
				}
			}
		})
	}
	wg.Wait()
	settled(t, c)
	if k := c.Counters(); k.SessionsLost != 0 {
		t.Errorf("%d sessions lost", k.SessionsLost)
	}
	if ended.Load() == 0 || done.Load() == 0 {
		t.Errorf("%d ended early, %d done: the test tests nothing", ended.Load(), done.Load())
	}
	if _, err := c.Get(t.Context(), keys[2]); err != nil {
		t.Error(err)
	}
}

// Far more callers than credits: all are served, in turn; and with a small
// bound on waiters those beyond it are turned away.
func TestCreditsRunOut(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) { cfg.Credits, cfg.InitialCredits = 2, 1 })
	c := dialNode(n, nil)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			if err := c.Put(t.Context(), fmt.Appendf(nil, "k%d", i), []byte("v")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	settled(t, c)
	few := dialNode(n, func(cfg *client.Config) { cfg.MaxInflight, cfg.MaxWaiting = 1, 1 })
	var refused, stored atomic.Int64
	for i := range 50 {
		wg.Go(func() {
			switch err := few.Put(t.Context(), fmt.Appendf(nil, "f%d", i), make([]byte, 1000)); {
			case err == nil:
				stored.Add(1)
			case errors.Is(err, client.ErrOverloaded):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if refused.Load() == 0 || stored.Load() == 0 {
		t.Errorf("%d refused, %d stored", refused.Load(), stored.Load())
	}
	settled(t, few)
}

// One client, thousands of goroutines.
func TestThousandsOfGoroutines(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, func(cfg *client.Config) { cfg.Timeout = time.Minute })
	const keys = 200
	for i := range keys {
		if err := c.Put(t.Context(), fmt.Appendf(nil, "key-%d", i), binary.LittleEndian.AppendUint64(nil, 0)); err != nil {
			t.Fatal(err)
		}
	}
	var latest [keys]atomic.Uint64 // acknowledged
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() { // one writer a key, so that versions rise
			for v := uint64(1); v <= 5; v++ {
				if err := c.Put(t.Context(), fmt.Appendf(nil, "key-%d", i), binary.LittleEndian.AppendUint64(nil, v)); err != nil {
					t.Error(err)
				}
				latest[i].Store(v)
			}
		})
	}
	for g := range 3000 {
		wg.Go(func() {
			i := g % keys
			var seen uint64
			for range 5 {
				floor := max(seen, latest[i].Load())
				got, err := c.Get(t.Context(), fmt.Appendf(nil, "key-%d", i))
				if err != nil {
					t.Error(err)
					return
				}
				if seen = binary.LittleEndian.Uint64(got); seen < floor {
					t.Errorf("key %d: %d after %d", i, seen, floor)
				}
			}
		})
	}
	wg.Wait()
	settled(t, c)
}

// Close in the middle of everything: calls end with ErrClosed, puts that were
// sent with an unknown outcome, and nothing hangs.
func TestCloseUnderLoad(t *testing.T) {
	n := node.Start(t, nil)
	for range 5 {
		c := dialNode(n, nil)
		var wg sync.WaitGroup
		begun := make(chan struct{}, 32)
		for g := range 32 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Appendf(nil, "k%d-%d", g, i%10)
					var err error
					if g%2 == 0 {
						err = c.Put(context.Background(), key, make([]byte, 100))
					} else {
						_, err = c.Get(context.Background(), key)
					}
					if i == 5 {
						begun <- struct{}{}
					}
					if err == nil || errors.Is(err, client.ErrNotFound) {
						continue
					}
					if !errors.Is(err, client.ErrClosed) && !errors.Is(err, client.ErrOutcomeUnknown) {
						t.Errorf("%v", err)
					}
					if errors.Is(err, client.ErrClosed) {
						return
					}
				}
			})
		}
		for range 32 {
			<-begun
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// With the handlers of the server stopped gets go on, of present keys and of
// absent ones: nothing of the store's code takes part.
func TestGetsNeedNoHandlers(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) { cfg.Lease, cfg.Beat = 500*time.Millisecond, 50*time.Millisecond })
	c := dialNode(n, nil)
	for i := range 100 {
		if err := c.Put(t.Context(), fmt.Appendf(nil, "k%d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	// The region of the items is younger than the session: its rkey is learned
	// because of the first get that needs it.
	clienttest.Eventually(t, "gets are one-sided", func() bool {
		before := c.Counters().SendGets
		_, err := c.Get(t.Context(), []byte("k0"))
		return err == nil && c.Counters().SendGets == before
	})
	n.Server.BlockHandlers()
	defer n.Server.UnblockHandlers()
	before := c.Counters()
	// A machine that starves this process for most of a lease makes it ask by
	// SEND, as it must, and that is not answered now; or it does not even let a
	// READ through in time: the get is made again.
	get := func(key string) error {
		for begin := time.Now(); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := c.Get(ctx, []byte(key))
			cancel()
			if !errors.Is(err, client.ErrTimeout) || time.Since(begin) > 20*time.Second {
				return err
			}
		}
	}
	for end := time.Now().Add(1200 * time.Millisecond); time.Now().Before(end); { // more than two leases
		for i := range 100 {
			if err := get(fmt.Sprint("k", i)); err != nil {
				t.Fatalf("%v; %+v", err, c.Counters())
			}
			if err := get(fmt.Sprint("absent", i)); !errors.Is(err, client.ErrNotFound) {
				t.Fatalf("%v; %+v", err, c.Counters())
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	after := c.Counters()
	if after.SendGets != before.SendGets || after.SessionsLost != 0 || after.OneSidedHits < before.OneSidedHits+100 {
		t.Errorf("%+v", after)
	}
	if err := unheardPut(t, c, 2*time.Second); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("a put went on: %v", err)
	}
}
