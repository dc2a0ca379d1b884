package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// Connections break in the middle of a stream of puts: with time enough each succeeds, and each
// key ends with the value that was put last, at a version that has only risen.
func TestAsyncOverBrokenConnections(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers, cfg.AsyncWindow = []string{p.Addr()}, 40 })
	const keys, rounds, each = 9, 12, 300
	versions := make([]uint64, keys)
	for round := range rounds {
		var pending []*client.Pending
		for i := range each {
			if i == each/2 {
				p.Cut()
			}
			q, err := c.PutAsync(t.Context(), fmt.Appendf(nil, "stream-%d", i%keys), fmt.Appendf(nil, "%d-%d", round, i))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, q)
		}
		for i, q := range pending {
			v, err := q.Wait()
			if err != nil || v <= versions[i%keys] {
				t.Errorf("put %d of round %d: version %d after %d, %v", i, round, v, versions[i%keys], err)
			}
			versions[i%keys] = v
		}
		for k := range keys {
			last := (each-1-k)/keys*keys + k
			if got, err := c.Get(t.Context(), fmt.Appendf(nil, "stream-%d", k)); err != nil || string(got) != fmt.Sprintf("%d-%d", round, last) {
				t.Fatalf("key %d: %q, %v; put last was %d-%d", k, got, err, round, last)
			}
		}
	}
	if c.Counters().SessionsLost < rounds/2 {
		t.Error("no connection broke")
	}
	settled(t, c)
}

// Close ends the puts that are under way, while others are still being made: each Pending ends,
// and says that its put may have taken effect, or that it has not.
func TestAsyncAndClose(t *testing.T) {
	n := node.Soft(t, nil)
	p := clienttest.NewProxy(t, n.Addr)
	c := dialNode(n, func(cfg *client.Config) { cfg.Servers, cfg.AsyncWindow = []string{p.Addr()}, 16 })
	p.Stall()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var pending []*client.Pending
	full := make(chan struct{}, 64)
	for g := range 4 {
		wg.Go(func() {
			for i := range 64 {
				q, err := c.PutAsync(context.Background(), fmt.Appendf(nil, "%d-%d", g, i%8), nil)
				if err != nil {
					t.Error(err) // the window opens when the puts in it have ended
					return
				}
				mu.Lock()
				if pending = append(pending, q); len(pending) == 16 {
					close(full)
				}
				mu.Unlock()
			}
		})
	}
	<-full
	time.Sleep(10 * time.Millisecond) // for some of them to be sent; the test holds without it
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for _, q := range pending {
		if _, err := q.Wait(); !errors.Is(err, client.ErrClosed) && !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("a put under way at Close: %v", err)
		}
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}

// A goroutine that waits for a Pending may do with the client what it likes, and one that never
// does holds nothing up.
func TestAsyncWaiters(t *testing.T) {
	n := node.Soft(t, nil)
	c := dialNode(n, func(cfg *client.Config) { cfg.AsyncWindow = 2 })
	var wg sync.WaitGroup
	for i := range 50 {
		q, err := c.PutAsync(t.Context(), fmt.Appendf(nil, "first-%d", i), []byte("v"))
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			continue // nobody asks
		}
		wg.Go(func() {
			<-q.Done()
			next, err := c.PutAsync(t.Context(), fmt.Appendf(nil, "second-%d", i), []byte("v"))
			if err == nil {
				_, err = next.Wait()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	settled(t, c)
}
