//go:build !race && !teeth

package client

import (
	"context"
	"testing"
)

// A put in steady state allocates two things in the client and one in the server,
// which shares this process.
func TestPutAllocatesLittle(t *testing.T) {
	n := softNode(t, nil)
	c := n.dial(func(cfg *Config) { cfg.HeapMemory = false })
	ctx, key, value := context.Background(), []byte("key"), make([]byte, 100)
	put := func() {
		if err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		put()
	}
	if got := leastAllocs(300, put); got > 3 {
		t.Errorf("%v allocations per Put", got)
	}
}
