package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// A counting is goroutines that increment a number each and know what it must be: as many as
// were acknowledged, and at most as many more as had an unknown outcome.
type counting struct {
	wg      sync.WaitGroup
	stop    chan struct{}
	acked   []atomic.Int64
	unknown []atomic.Int64
}

func startCounting(t *testing.T, c *client.Client, n int, timeout time.Duration) *counting {
	w := &counting{stop: make(chan struct{}), acked: make([]atomic.Int64, n), unknown: make([]atomic.Int64, n)}
	for i := range n {
		w.wg.Go(func() {
			key := fmt.Appendf(nil, "count-%d", i)
			for {
				select {
				case <-w.stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				sum, err := c.Increment(ctx, key, 1)
				cancel()
				switch {
				case err == nil:
					acked := w.acked[i].Add(1)
					if sum < acked || sum > acked+w.unknown[i].Load() {
						t.Errorf("counter %d is %d after %d acknowledged and %d unknown", i, sum, acked, w.unknown[i].Load())
					}
				case errors.Is(err, client.ErrOutcomeUnknown):
					w.unknown[i].Add(1)
				case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrTimeout), errors.Is(err, client.ErrOverloaded):
				default:
					t.Errorf("increment: %v", err)
				}
			}
		})
	}
	return w
}

func (w *counting) total() (n int64) {
	for i := range w.acked {
		n += w.acked[i].Load()
	}
	return n
}

// finish stops the counting and compares. Without unknown ones the numbers are
// exact: nothing lost, nothing done twice.
func (w *counting) finish(t *testing.T, c *client.Client) {
	t.Helper()
	close(w.stop)
	w.wg.Wait()
	unknown := int64(0)
	for i := range w.acked {
		acked := w.acked[i].Load()
		got, err := c.Get(t.Context(), fmt.Appendf(nil, "count-%d", i))
		if err != nil {
			t.Errorf("counter %d: %v", i, err)
			continue
		}
		if n, err := strconv.ParseInt(string(got), 10, 64); err != nil || n < acked || n > acked+w.unknown[i].Load() {
			t.Errorf("counter %d: %s stored, %d acknowledged, %d unknown", i, got, acked, w.unknown[i].Load())
		}
		unknown += w.unknown[i].Load()
	}
	k := c.Counters()
	t.Logf("%d increments, %d unknown, %d sessions lost, %d copies sent again", w.total(), unknown, k.SessionsLost, k.Retries.Session+k.Retries.Write)
}

// Connections break in the middle of increments: each that was acknowledged
// counts once, and with time enough each is acknowledged.
func TestOnceOverBrokenConnections(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	w := startCounting(t, c, 8, time.Minute)
	for range 12 {
		before := w.total()
		clienttest.Eventually(t, "increments go on", func() bool { return w.total() > before+20 })
		p.Cut()
	}
	w.finish(t, c)
	for i := range w.unknown {
		if u := w.unknown[i].Load(); u != 0 {
			t.Errorf("counter %d: %d outcomes unknown although there was time", i, u)
		}
	}
	if c.Counters().SessionsLost < 5 {
		t.Error("no connection broke")
	}
	settled(t, c)
}

// The server is stopped and started on the same data while increments are under
// way: what it has done it knows again.
func TestOnceOverRestarts(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	w := startCounting(t, c, 8, time.Minute)
	for i := range 3 {
		before := w.total()
		clienttest.Eventually(t, "increments go on", func() bool { return w.total() > before+20 })
		if i%2 == 0 {
			p.Cut() // replies are lost, and the server that knows of them ends
		}
		n.Stop()
		n.Start()
	}
	before := w.total()
	clienttest.Eventually(t, "increments go on", func() bool { return w.total() > before+20 })
	w.finish(t, c)
	settled(t, c)
}

// Calls with little time over a line that breaks: what they report as failed was
// not done, what they report as unknown was done once or not at all.
func TestOnceWithLittleTime(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	w := startCounting(t, c, 8, 15*time.Millisecond)
	for range 8 {
		before := w.total()
		clienttest.Eventually(t, "increments go on", func() bool { return w.total() > before+10 })
		p.Stall()
		time.Sleep(20 * time.Millisecond)
		p.Cut()
		p.Resume()
	}
	w.finish(t, c)
	settled(t, c)
}

// Large puts and batches over a line that breaks: each is stored whole.
func TestLargeOverBrokenConnections(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers = []string{p.Addr()} })
	lost := func() uint64 { return c.Counters().SessionsLost }
	for i := 0; i < 12 || lost() < 4 && i < 200; i++ {
		if i%3 == 1 {
			time.AfterFunc(time.Duration(i%7)*200*time.Microsecond, p.Cut)
		}
		value := make([]byte, 40_000+i%32*30_000)
		for j := range value {
			value[j] = byte(i + j)
		}
		var err error
		key := []byte("{big}1")
		if i%3 == 2 {
			var b client.Batch
			b.Put(key, value)
			b.Put([]byte("{big}2"), value)
			_, err = c.WriteBatch(t.Context(), &b)
		} else {
			err = c.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(i, err)
		}
		if got, err := c.Get(t.Context(), key); err != nil || string(got) != string(value) {
			t.Fatalf("%d: %d bytes of %d, %v", i, len(got), len(value), err)
		}
	}
	if lost() == 0 {
		t.Error("no connection broke")
	}
	settled(t, c)
}
