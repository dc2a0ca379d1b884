package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/store"
)

// What a put costs by the shapes of its call, without a sync:
//
//	go test ./client -run '^$' -bench 'PutShapes' -benchtime 2s -count 5
//
// cpu-ns/put is of this process, so of client and server together. Values are of 64 bytes.
// Compare runs that alternate: on a shared machine one run tells little.
func BenchmarkPutShapes(b *testing.B) {
	const window = 50
	ctx := context.Background()
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key:%012d", i)
	}
	value := make([]byte, 64)
	shapes := map[string]func(*testing.B, *client.Client){
		"goroutines": func(b *testing.B, c *client.Client) {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range window {
				wg.Go(func() {
					for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
						if err := c.Put(ctx, keys[i%len(keys)], value); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		},
		"async": func(b *testing.B, c *client.Client) {
			for i := range b.N {
				if _, err := c.PutAsync(ctx, keys[i%len(keys)], value); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.Flush(ctx); err != nil {
				b.Fatal(err)
			}
		},
		"multi": func(b *testing.B, c *client.Client) {
			pairs := make([]client.Pair, 64)
			for i := 0; i < b.N; i += len(pairs) {
				for j := range pairs {
					pairs[j] = client.Pair{Key: keys[(i+j)%len(keys)], Value: value}
				}
				if err := c.MultiPut(ctx, pairs[:min(len(pairs), b.N-i)]); err != nil {
					b.Fatal(err)
				}
			}
		},
	}
	for _, fabric := range []string{"iwarp", "shm"} {
		dir := b.TempDir()
		n := node.StartOn(b, false, func(cfg *server.Config) {
			cfg.Sync, cfg.MemoryKind, cfg.MemoryLimit, cfg.RegionSize = store.Off, mem.Mmap, 1<<30, 64<<20
			if fabric == "shm" {
				cfg.Fabric = shm.New(shm.Options{Dir: dir})
			}
		})
		n.Mmap = true
		c := dialNode(n, func(cfg *client.Config) {
			cfg.AsyncWindow = window
			if fabric == "shm" {
				cfg.Fabrics = []rdma.Fabric{shm.New(shm.Options{Dir: dir})}
			}
		})
		for _, shape := range []string{"goroutines", "async", "multi"} {
			b.Run(fabric+"/"+shape, func(b *testing.B) {
				b.ReportAllocs()
				before := cpuNanos(b)
				shapes[shape](b, c)
				b.ReportMetric(float64(cpuNanos(b)-before)/float64(b.N), "cpu-ns/put")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
			})
		}
	}
}

// cpuNanos is the processor time that this process has used.
func cpuNanos(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
