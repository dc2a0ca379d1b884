//go:build !race && !points

package client_test

import (
	"context"
	"testing"

	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
)

// A put in steady state allocates two things in the client and one in the server,
// which shares this process.
func TestPutAllocatesLittle(t *testing.T) {
	n := node.Soft(t, nil)
	n.Mmap = true
	c := dialNode(n, nil)
	ctx, key, value := context.Background(), []byte("key"), make([]byte, 100)
	put := func() {
		if err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for range 300 {
		put()
	}
	if got := leastAllocs(3, put); got > 3 {
		t.Errorf("%v allocations per Put", got)
	}
}
