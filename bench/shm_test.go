package bench

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/store"
)

// mappedKeys is a client of a server in another process whose memory it maps, and n keys with values of
// 64 bytes. The client has got each of them once, so that it knows all the places.
func mappedKeys(b *testing.B, n, places int) *client.Client {
	b.Helper()
	dir := shortDir(b)
	p := startServing(b, serving{dir: dir, fabric: "shm", sync: store.Off})
	c := dial(b, p.addr, func(cfg *client.Config) {
		cfg.Fabrics = []rdma.Fabric{shm.New(shm.Options{Dir: dir + "/shm"})}
		cfg.CacheEntries = places
	})
	keys := fill(b, c, n, 64)
	dst := make([]byte, 0, 64)
	for _, key := range keys[:max(0, min(n, places))] {
		if _, err := c.GetInto(context.Background(), key, dst); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// A drawer draws keys of fill and writes them where the last one stood, so that the benchmark itself meets
// no cold memory.
type drawer struct {
	r   *rand.PCG
	n   uint64
	key [16]byte
}

func newDrawer(n int) *drawer {
	d := &drawer{r: rand.NewPCG(1, 2), n: uint64(n)}
	copy(d.key[:], "key:000000000000")
	return d
}

func (d *drawer) next() []byte {
	high, _ := bits.Mul64(d.r.Uint64(), d.n)
	for i := len(d.key) - 1; i >= len(d.key)-8; i-- {
		d.key[i] = byte('0' + high%10)
		high /= 10
	}
	return d.key[:]
}

// BenchmarkMappedGets is one caller that gets from memory which it maps, keys chosen uniformly: a copy without a
// system call. What it costs grows with what the processor's caches do not hold.
func BenchmarkMappedGets(b *testing.B) { mappedGets(b, 4<<20) }

// BenchmarkMappedLookups is the same where no place is remembered: each get goes through the index.
func BenchmarkMappedLookups(b *testing.B) { mappedGets(b, -1) }

func mappedGets(b *testing.B, places int) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			c := mappedKeys(b, n, places)
			d, dst := newDrawer(n), make([]byte, 0, 64)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.GetInto(context.Background(), d.next(), dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMappedMultiGet is the same with 64 keys a call.
func BenchmarkMappedMultiGet(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			c := mappedKeys(b, n, 4<<20)
			d, batch, results := newDrawer(n), make([][]byte, 64), make([]client.Result, 64)
			b.ReportAllocs()
			for b.Loop() {
				for i := range batch {
					batch[i] = append(batch[i][:0], d.next()...)
				}
				if _, err := c.MultiGet(context.Background(), batch, client.ReadInto(results)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
