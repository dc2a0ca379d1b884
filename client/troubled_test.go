package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
)

// TestFailingCheckpointsAreTold: a node whose disk refuses what checkpoints write takes puts until
// its log is full. From then on each put ends with its context, and says why there is no room;
// gets and deletes go on, and puts do again when the disk has been mended.
func TestFailingCheckpointsAreTold(t *testing.T) {
	for _, size := range []int{60 << 10, 1 << 20, 3 << 20} { // in the log, in a table of values, in parts
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var fails atomic.Bool
			n := node.Soft(t, func(c *server.Config) {
				c.LogBytes = 16 << 20
				c.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if fails.Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "/tables/") {
						return syscall.EIO
					}
					return nil
				}))
			})
			c := dialNode(n, func(c *client.Config) { c.PartsAbove, c.PartBytes = 2<<20, 1<<20 })
			put := func(i int, limit time.Duration) error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				return c.Put(ctx, fmt.Appendf(nil, "k%d", i), bytes.Repeat([]byte{byte(i)}, size))
			}
			fails.Store(true)
			// A slow machine answers no copy of a put before the deadline, and the put says that. The next
			// one has longer.
			const want = "checkpoints fail (input/output error)"
			if err := put(0, time.Minute); err != nil {
				t.Fatal(err)
			}
			told, i, limit := error(nil), 1, 2*time.Second
			for ; i < 1000 && limit < time.Minute; i++ {
				if told = put(i, limit); told == nil {
					continue
				}
				if strings.Contains(told.Error(), want) || !errors.Is(told, context.DeadlineExceeded) && !errors.Is(told, client.ErrTimeout) {
					i++
					break
				}
				limit *= 2
			}
			if told == nil || !strings.Contains(told.Error(), want) {
				t.Fatalf("put %d: %v", i-1, told)
			}
			if !errors.Is(told, client.ErrOverloaded) {
				t.Logf("the last copy was on its way: %v", told)
			}
			if k := storeStats(t, c).Log.Checkpoints; k.Failed == 0 || !strings.Contains(k.Trouble, "input/output error") {
				t.Errorf("the statistics say %q of %d failed checkpoints", k.Trouble, k.Failed)
			}
			if got, err := c.Get(t.Context(), []byte("k0")); err != nil || len(got) != size {
				t.Errorf("get: %d bytes, %v", len(got), err)
			}
			if _, err := c.Delete(t.Context(), []byte("k0")); err != nil {
				t.Errorf("delete: %v", err)
			}
			fails.Store(false)
			if err := put(i, time.Minute); err != nil {
				t.Errorf("the disk is mended: %v", err)
			}
		})
	}
}
