package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// One Ping is under way at a time. A call that cannot wait for its turn fails
// for that reason: the session is not lost, and there is no other to try.
func TestPingWaitsItsTurn(t *testing.T) {
	f := clienttest.NewServer(77)
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) { return nil, h.Type == wire.TypePing }
	c := dialFake(t, f, nil, func(cfg *client.Config) { cfg.MaxWaiting = 1 })
	s := rt(c).Only().Current()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for range 2 { // the first is under way, the second waits
		go func() {
			_, err := c.Ping(ctx)
			done <- err
		}()
	}
	clienttest.Eventually(t, "one Ping waits", func() bool { return s.Usage().PingsWaiting == 1 })
	if _, err := c.Ping(t.Context()); !errors.Is(err, client.ErrOverloaded) {
		t.Errorf("%v", err)
	}
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if n := c.Counters().Retries.Session; n != 0 {
		t.Errorf("%d calls took the session for lost", n)
	}
}

// A client that READs alone gives the credits back that it has no use for, while
// it reports what it reads.
func TestReaderGivesCreditsBack(t *testing.T) {
	n := node.Start(t, func(cfg *server.Config) { cfg.Keepalive = 2 * time.Second })
	c := dialNode(n, nil)
	key := []byte("k")
	var puts sync.WaitGroup
	for range 32 {
		puts.Go(func() {
			for range 20 {
				if err := c.Put(t.Context(), key, key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	puts.Wait()
	s := rt(c).Only().Current()
	credits := func() int { return s.Usage().CreditsFree }
	if n := credits(); n < 2 {
		t.Fatalf("%d credits: the test is none", n)
	}
	clienttest.Eventually(t, "one credit is left", func() bool {
		if _, err := c.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		return credits() == 1
	})
	if n := c.Counters().Reports; n == 0 {
		t.Error("nothing was reported: the test is none")
	}
}
