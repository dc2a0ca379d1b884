//go:build !race && !points

package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// leastAllocs is what f allocates when nothing else does: the least of many short runs, because
// servers, their gossip and the watch share this process, and allocate a lot while a node or a
// cluster begins. It ends when it has seen no more than most, and after some seconds in any case.
func leastAllocs(most float64, f func()) float64 {
	const runs = 100
	least := testing.AllocsPerRun(runs, f)
	for began := time.Now(); least > most && time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// In steady state GetInto allocates nothing, and Get the value: not at a
// remembered place, not through the index, whether READs are posted or copies.
func TestGetAllocates(t *testing.T) {
	n := node.Start(t, nil)
	on, mapped := node.StartMapped(t, nil)
	n.Mmap, on.Mmap = true, true
	for _, tc := range []struct {
		name string
		dial func(func(*client.Config)) *client.Client
	}{{"posted", func(change func(*client.Config)) *client.Client { return dialNode(n, change) }}, {"direct", func(change func(*client.Config)) *client.Client { return dialMapped(on, mapped, change) }}} {
		for _, cache := range []int{0, -1} {
			c := tc.dial(func(cfg *client.Config) { cfg.CacheEntries = cache })
			ctx := t.Context()
			key, dst := []byte("key"), make([]byte, 0, 1000)
			if err := c.Put(ctx, key, make([]byte, 700)); err != nil {
				t.Fatal(err)
			}
			into := func() {
				if v, err := c.GetInto(ctx, key, dst); err != nil || len(v) != 700 {
					t.Fatal(len(v), err)
				}
			}
			get := func() {
				if v, err := c.Get(ctx, key); err != nil || len(v) != 700 {
					t.Fatal(len(v), err)
				}
			}
			for range 100 {
				into()
			}
			if got := leastAllocs(0, into); got != 0 {
				t.Errorf("%s, cache of %d: %v allocations per GetInto", tc.name, cache, got)
			}
			if got := leastAllocs(2, get); got > 2 {
				t.Errorf("%s, cache of %d: %v allocations per Get", tc.name, cache, got)
			}
		}
	}
}

// MultiGet allocates its results, their values, and little beside.
func TestMultiGetAllocates(t *testing.T) {
	n := node.Start(t, nil)
	on, mapped := node.StartMapped(t, nil)
	for name, c := range map[string]*client.Client{"posted": dialNode(n, nil), "direct": dialMapped(on, mapped, nil)} {
		ctx := t.Context()
		var keys [][]byte
		for i := range 64 {
			keys = append(keys, fmt.Appendf(nil, "key%d", i))
			if err := c.Put(ctx, keys[i], make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
		}
		got := leastAllocs(64+8, func() {
			results, err := c.MultiGet(ctx, keys)
			if err != nil || len(results[63].Value) != 64 {
				t.Fatal(err)
			}
		})
		if got > 64+8 {
			t.Errorf("%s: %v allocations for 64 keys", name, got)
		}
	}
}

// With the results of the call before, of mapped memory, it allocates nothing.
func TestMultiGetAgainAllocates(t *testing.T) {
	on, mapped := node.StartMapped(t, nil)
	on.Mmap = true
	c := dialMapped(on, mapped, nil)
	ctx := t.Context()
	var keys [][]byte
	for i := range 100 {
		keys = append(keys, fmt.Appendf(nil, "key%d", i))
		if err := c.Put(ctx, keys[i], make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	var results []client.Result
	get := func() {
		var err error
		if results, err = c.MultiGet(ctx, keys, client.ReadInto(results)); err != nil || len(results[99].Value) != 64 {
			t.Fatal(err)
		}
	}
	get()
	if got := leastAllocs(0, get); got != 0 {
		t.Errorf("%v allocations for 100 keys", got)
	}
}

// Neither does one that has to find its node first.
func TestClusterGetIntoAllocates(t *testing.T) {
	nodes := born(t, 2)
	nodes[0].Mmap = true
	c := dialCluster(t, nodes, nil)
	ctx := t.Context()
	var keys [][]byte
	for i := range 10 {
		keys = append(keys, fmt.Appendf(nil, "key%d", i))
		if err := c.Put(ctx, keys[i], make([]byte, 700)); err != nil {
			t.Fatal(err)
		}
	}
	dst := make([]byte, 0, 1000)
	i := 0
	get := func() {
		i++
		if v, err := c.GetInto(ctx, keys[i%len(keys)], dst); err != nil || len(v) != 700 {
			t.Fatal(len(v), err)
		}
	}
	clienttest.Eventually(t, "gets are one-sided", func() bool {
		before := c.Counters().SendGets
		for range 100 {
			get()
		}
		return c.Counters().SendGets == before
	})
	if got := leastAllocs(0, get); got != 0 {
		t.Errorf("%v allocations per get", got)
	}
}

// A put allocates little: no timer, no context, no goroutine.
func TestPutAllocates(t *testing.T) {
	n := node.Start(t, nil)
	c := dialNode(n, nil)
	key, value := []byte("key"), make([]byte, 100)
	put := func() {
		if err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put()
	// The server shares this process, so only a bound can be asserted. On a
	// device each of the waits in a completion channel allocates too.
	limit := 20.0
	if n.Hard {
		limit = 100
	}
	if got := testing.AllocsPerRun(100, put); got > limit {
		t.Errorf("%v allocations per put, server included", got)
	} else {
		t.Log(fmt.Sprint(got, " allocations per put, server included"))
	}
}
