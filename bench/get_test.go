package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/perf"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Sizes on the wire: MPA length and CRC, DDP header, RDMAP READ request
// header; and for the response MPA, DDP and the item.
const (
	readRequestBytes = 2 + 18 + 28 + 4
	responseOverhead = 2 + 14 + 4
)

// A pingPong is the floor: a request of the size of an iWARP READ request and an answer
// of the size of the READ response.
type pingPong struct{ *perf.Pinger }

func newPingPong(b *testing.B, respBytes int) *pingPong {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	p := perf.PingPong{Network: "tcp", Request: readRequestBytes, Answer: respBytes}
	go func() { _ = p.Serve(l) }()
	pinger, err := p.Dial(b.Context(), l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { pinger.Close() })
	return &pingPong{pinger}
}

func (p *pingPong) round(b *testing.B) {
	if err := p.Round(); err != nil {
		b.Fatal(err)
	}
}

// A sample collects round trips of one side.
type sample struct{ took []time.Duration }

func (s *sample) at(q float64) time.Duration {
	slices.Sort(s.took)
	return s.took[int(q*float64(len(s.took)-1))]
}

// slice is how many operations each side does before the other has its turn.
const slice = 200

// BenchmarkGetLatency is one client, one get at a time, the place cached: one
// READ. ratio is its median over that of the TCP ping-pong of the same sizes in
// the same run; the goal is at most 1.3.
func BenchmarkGetLatency(b *testing.B) {
	for _, size := range []int{100, 1024, 16 << 10} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) { getLatency(b, size, false) })
	}
}

// BenchmarkGetLatencyCold is the same with no place cached: bucket pairs, then
// the item, two dependent round trips.
func BenchmarkGetLatencyCold(b *testing.B) {
	b.Run("value=100", func(b *testing.B) { getLatency(b, 100, true) })
}

func getLatency(b *testing.B, size int, cold bool) {
	ctx := context.Background()
	addr := startServer(b, store.Off)
	c := dial(b, addr, func(cfg *client.Config) {
		if cold {
			cfg.CacheEntries = -1
		}
	})
	key, value := []byte("key:000000000001"), bytes.Repeat([]byte("v"), size)
	if err := c.Put(ctx, key, value); err != nil {
		b.Fatal(err)
	}
	floor := newPingPong(b, responseOverhead+layout.ItemSize(len(key), size, false))
	dst := make([]byte, 0, size)
	var gets, rounds sample
	before := c.Counters()
	b.ReportAllocs()
	for b.Loop() {
		for range slice {
			t := time.Now()
			floor.round(b)
			rounds.took = append(rounds.took, time.Since(t))
		}
		for range slice {
			t := time.Now()
			got, err := c.GetInto(ctx, key, dst)
			gets.took = append(gets.took, time.Since(t))
			if err != nil || len(got) != size {
				b.Fatal(len(got), err)
			}
		}
	}
	after := c.Counters()
	b.ReportMetric(float64(gets.at(0.5))/float64(rounds.at(0.5)), "ratio")
	b.ReportMetric(float64(gets.at(0.5))/1e3, "get-p50-µs")
	b.ReportMetric(float64(gets.at(0.99))/1e3, "get-p99-µs")
	b.ReportMetric(float64(rounds.at(0.5))/1e3, "tcp-p50-µs")
	b.ReportMetric(float64(rounds.at(0.99))/1e3, "tcp-p99-µs")
	b.ReportMetric(float64(after.Reads-before.Reads)/float64(after.Gets-before.Gets), "READs/get")
}

// BenchmarkGets is gets/s with many goroutines on one client.
func BenchmarkGets(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", workers), func(b *testing.B) { gets(b, workers) })
	}
}

func gets(b *testing.B, workers int) {
	ctx := context.Background()
	c := dial(b, startServer(b, store.Off), nil)
	keys := fill(b, c, 10_000, 100)
	for _, key := range keys { // every place cached
		if _, err := c.Get(ctx, key); err != nil {
			b.Fatal(err)
		}
	}
	before := c.Counters()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range workers {
		wg.Go(func() {
			dst := make([]byte, 0, 128)
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if _, err := c.GetInto(ctx, keys[i%int64(len(keys))], dst); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	after := c.Counters()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "gets/s")
	b.ReportMetric(float64(after.Reads-before.Reads)/float64(after.Gets-before.Gets), "READs/get")
}

// BenchmarkMultiGet is one goroutine that asks for 64 keys at a time.
func BenchmarkMultiGet(b *testing.B) {
	ctx := context.Background()
	c := dial(b, startServer(b, store.Off), nil)
	keys := fill(b, c, 10_000, 100)
	for at := 0; b.Loop(); at = (at + 64) % (len(keys) - 64) {
		if _, err := c.MultiGet(ctx, keys[at:at+64]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "gets/s")
}

// fill stores n keys with values of size bytes.
func fill(b *testing.B, c *client.Client, n, size int) [][]byte {
	b.Helper()
	var keys [][]byte
	var pairs []client.Pair
	for i := range n {
		key := fmt.Appendf(nil, "key:%012d", i)
		keys = append(keys, key)
		pairs = append(pairs, client.Pair{Key: key, Value: bytes.Repeat([]byte{byte(i)}, size)})
	}
	if err := c.MultiPut(context.Background(), pairs); err != nil {
		b.Fatal(err)
	}
	return keys
}
