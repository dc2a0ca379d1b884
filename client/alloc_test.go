//go:build !race && !teeth

package client

import (
	"fmt"
	"testing"
)

// In steady state a get allocates nothing: not on the cached way, not through
// the index, not for an absent key's proof.
func TestGetIntoAllocates(t *testing.T) {
	n := startNode(t, nil)
	for _, tc := range []struct {
		name  string
		cache int
	}{{"cached place", 0}, {"through the index", -1}} {
		c := n.dial(func(cfg *Config) { cfg.CacheEntries = tc.cache; cfg.HeapMemory = false })
		ctx := t.Context()
		key, dst := []byte("key"), make([]byte, 0, 1000)
		if err := c.Put(ctx, key, make([]byte, 700)); err != nil {
			t.Fatal(err)
		}
		get := func() {
			if v, err := c.GetInto(ctx, key, dst); err != nil || len(v) != 700 {
				t.Fatal(len(v), err)
			}
		}
		for range 100 {
			get()
		}
		if got := testing.AllocsPerRun(300, get); got >= 1 {
			t.Errorf("%s: %v allocations per get", tc.name, got)
		}
	}
}

// Neither does one that has to find its node first.
func TestClusterGetIntoAllocates(t *testing.T) {
	nodes := born(t, 2)
	c := dialCluster(t, nodes, func(cfg *Config) { cfg.HeapMemory = false })
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
	eventually(t, "gets are one-sided", func() bool {
		before := c.Counters().SendGets
		for range 100 {
			get()
		}
		return c.Counters().SendGets == before
	})
	if got := testing.AllocsPerRun(300, get); got >= 1 {
		t.Errorf("%v allocations per get", got)
	}
}

// A put allocates little: no timer, no context, no goroutine.
func TestPutAllocates(t *testing.T) {
	n := startNode(t, nil)
	c := n.dial(nil)
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
	if n.hard {
		limit = 100
	}
	if got := testing.AllocsPerRun(100, put); got > limit {
		t.Errorf("%v allocations per put, server included", got)
	} else {
		t.Log(fmt.Sprint(got, " allocations per put, server included"))
	}
}
