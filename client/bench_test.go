package client_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// What a get costs the client, by fabric:
//
//	go test ./client -run '^$' -bench 'Gets|MultiGets' -benchmem [-bench-keys 1000000]
//
// direct is a fabric whose READs are copies, in this process: what is left is the
// client's own. Times of iwarp are those of both ends, which share the processor.

var benchKeys = flag.Int("bench-keys", 100_000, "keys in the store of benchmarks")

// A benchStore is a store of benchKeys keys of 16 bytes with values of 64, and
// what to ask of it: numbers of keys, by Zipf's law with 0.99.
type benchStore struct {
	c    *client.Client
	keys [][]byte
	zipf []int32
}

func (s *benchStore) key(i int) []byte { return s.keys[s.zipf[i%len(s.zipf)]] }

func newBenchStore(b *testing.B, fabric string, change func(*client.Config)) *benchStore {
	b.Helper()
	real := func(cfg *server.Config) {
		cfg.MemoryKind, cfg.MemoryLimit, cfg.RegionSize = mem.Mmap, 4<<30, 64<<20
	}
	s := new(benchStore)
	switch fabric {
	case "direct":
		n, f := node.StartMapped(b, real)
		n.Mmap = true
		s.c = dialMapped(n, f, change)
	default:
		n := node.StartOn(b, false, real)
		n.Mmap = true
		s.c = dialNode(n, change)
	}
	pairs := make([]client.Pair, *benchKeys)
	for i := range pairs {
		key := fmt.Appendf(nil, "key:%012d", i)
		s.keys = append(s.keys, key)
		pairs[i] = client.Pair{Key: key, Value: append(key[:16:16], make([]byte, 48)...)}
	}
	for part := range slices.Chunk(pairs, 10_000) {
		if err := s.c.MultiPut(context.Background(), part); err != nil {
			b.Fatal(err)
		}
	}
	s.zipf = zipfNumbers(1<<20, len(s.keys), 0.99)
	return s
}

// zipfNumbers draws n numbers below max by Zipf's law, the frequent ones spread over
// all of the range.
func zipfNumbers(n, max int, exponent float64) []int32 {
	rng := rand.New(rand.NewPCG(1, 2))
	cum, sum := make([]float64, max), 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -exponent)
		cum[i] = sum
	}
	spread := rng.Perm(max)
	numbers := make([]int32, n)
	for i := range numbers {
		numbers[i] = int32(spread[min(sort.SearchFloat64s(cum, rng.Float64()*sum), max-1)])
	}
	return numbers
}

// warm makes one get of each key.
func (s *benchStore) warm(b *testing.B) {
	dst := make([]byte, 0, 128)
	for _, key := range s.keys {
		if _, err := s.c.GetInto(context.Background(), key, dst); err != nil {
			b.Fatal(err)
		}
	}
}

// report adds what the gets of the benchmark cost and met.
func (s *benchStore) report(b *testing.B, gets int, before client.Counters) {
	after := s.c.Counters()
	asked := float64(after.Gets - before.Gets)
	b.ReportMetric(float64(gets)/b.Elapsed().Seconds(), "gets/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(gets), "ns/get")
	b.ReportMetric(float64(after.Reads-before.Reads)/asked, "READs/get")
	b.ReportMetric(float64(after.CacheHits-before.CacheHits)/asked, "hits/get")
}

func BenchmarkGets(b *testing.B) {
	ctx := context.Background()
	for _, fabric := range []string{"direct", "iwarp"} {
		b.Run(fabric, func(b *testing.B) {
			s := newBenchStore(b, fabric, nil)
			s.warm(b)
			b.Run("zipf", func(b *testing.B) { s.run(b, 1) })
			b.Run("one", func(b *testing.B) { // the same key, which is in every cache
				dst := make([]byte, 0, 128)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.c.GetInto(ctx, s.keys[7], dst); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("latency", func(b *testing.B) { s.latency(b) })
			b.Run("goroutines=50", func(b *testing.B) { s.run(b, 50) })
		})
		b.Run(fabric+"/cold", func(b *testing.B) { // no place is remembered
			s := newBenchStore(b, fabric, func(cfg *client.Config) { cfg.CacheEntries = -1 })
			s.warm(b)
			s.run(b, 1)
		})
	}
}

func (s *benchStore) run(b *testing.B, goroutines int) {
	ctx := context.Background()
	before := s.c.Counters()
	var next atomic.Int64
	var wg sync.WaitGroup
	const chunk = 64
	b.ReportAllocs()
	b.ResetTimer()
	for range goroutines {
		wg.Go(func() {
			dst := make([]byte, 0, 128)
			for {
				at := int(next.Add(chunk)) - chunk
				if at >= b.N {
					return
				}
				for i := at; i < min(at+chunk, b.N); i++ {
					if _, err := s.c.GetInto(ctx, s.key(i), dst); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	s.report(b, b.N, before)
}

// latency times each get by itself; the clock costs some 50 ns of it.
func (s *benchStore) latency(b *testing.B) {
	dst := make([]byte, 0, 128)
	took := make([]time.Duration, 0, 1<<20)
	for i := 0; b.Loop(); i++ {
		t := time.Now()
		_, err := s.c.GetInto(context.Background(), s.key(i), dst)
		if d := time.Since(t); len(took) < cap(took) {
			took = append(took, d)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

func BenchmarkMultiGets(b *testing.B) {
	ctx := context.Background()
	for _, fabric := range []string{"direct", "iwarp"} {
		b.Run(fabric, func(b *testing.B) {
			s := newBenchStore(b, fabric, nil)
			s.warm(b)
			keys := make([][]byte, 64)
			before := s.c.Counters()
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				for i := range keys {
					keys[i] = s.key(at + i)
				}
				at += len(keys)
				if _, err := s.c.MultiGet(ctx, keys); err != nil {
					b.Fatal(err)
				}
			}
			s.report(b, at, before)
		})
	}
}
