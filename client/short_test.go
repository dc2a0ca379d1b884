package client_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// Gets of remembered places over the fabric that there is. In the lab that is verbs, where
// each is one prepared READ, which nothing is waited for; over iwarp each is posted. The
// answers are the same.
func TestShortGets(t *testing.T) {
	n := node.Start(t, longLease)
	for _, mode := range []wait.Mode{wait.Adaptive, wait.Poll, wait.Event} {
		t.Run(mode.String(), func(t *testing.T) {
			c := dialNode(n, func(cfg *client.Config) { cfg.Wait = mode })
			ctx := t.Context()
			const gets = 300
			for _, size := range []int{0, 1, 64, 4096, 65536} {
				key, value := fmt.Appendf(nil, "%v %d", mode, size), bytes.Repeat([]byte{byte(size) | 1}, size)
				if err := c.Put(ctx, key, value); err != nil {
					t.Fatal(err)
				}
				get := func() {
					t.Helper()
					if got, err := c.Get(ctx, key); err != nil || !bytes.Equal(got, value) {
						t.Fatalf("%d bytes: %d, %v", size, len(got), err)
					}
				}
				get() // remembered
				s := rt(c).Only().Current()
				before, waited := c.Counters(), s.Usage().Finished
				for range gets {
					get()
				}
				after := c.Counters()
				waited = s.Usage().Finished - waited
				if after.OneReadHits-before.OneReadHits != gets || after.SendGets != before.SendGets {
					t.Errorf("%d bytes: %d of %d gets by one READ", size, after.OneReadHits-before.OneReadHits, gets)
				}
				if out := s.Short.Out(); out != 0 {
					t.Errorf("%d bytes: %d sinks are out", size, out)
				}
				// Now and then the background poller has the lead, or a READ is late.
				short := n.Hard && mode != wait.Event && size <= 4096
				if short && waited > gets/2 || !short && waited < gets {
					t.Errorf("%d bytes: %d of %d gets waited for a completion", size, waited, gets)
				}
			}
		})
	}
}

// Values that are written all the time: what a get by one READ tears, or finds to be
// another key's, is no answer. Each value is of one byte, again and again.
func TestShortGetsBesidePuts(t *testing.T) {
	n := node.Start(t, nil)
	c, writer := dialNode(n, func(cfg *client.Config) { cfg.Wait = wait.Poll }), dialNode(n, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const keys = 3
	key := func(i int) []byte { return fmt.Appendf(nil, "key %d", i%keys) }
	value := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + 8*(i%keys) + i/keys%8)}, 4000) }
	for i := range keys {
		if err := writer.Put(ctx, key(i), value(i)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		begun := time.Now()
		for i := 0; i < 3000 && time.Since(begun) < 10*time.Second; i++ {
			if err := writer.Put(t.Context(), key(i), value(i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for g := range 3 {
		wg.Go(func() {
			dst := make([]byte, 0, 4096)
			for i := g; ctx.Err() == nil; i++ {
				got, err := c.GetInto(ctx, key(i), dst)
				if ctx.Err() != nil {
					return
				}
				if err != nil || len(got) != 4000 || !bytes.Equal(got[1:], got[:3999]) || int(got[0]-'a')/8 != i%keys {
					t.Errorf("%.20q of %q, %v", got, key(i), err)
					return
				}
			}
		})
	}
	wg.Wait()
	k := c.Counters()
	t.Logf("%d gets, %d by one READ, %d places were stale, %d torn", k.Gets, k.OneReadHits, k.CacheStale, k.Retries.Torn)
}
