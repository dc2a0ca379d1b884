package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// BenchmarkPuts is puts/s of 16 B keys with 100 B values, by writers that wait
// for each of theirs: on one connection, or each with one of its own; with the
// server in this process, or in one of its own. In alternating slices of the
// same run, on the same disk:
//
//	ratio        to bare Pebble with as many goroutines that each commit one
//	             key with Sync; the goal for one writer is at least 0.9
//	redis-ratio  to redis-benchmark with as many connections, if Redis is
//	             installed: against appendfsync always, the goal with 50 is at
//	             least 1.5; with sync off against one without AOF, at least 1.3
func BenchmarkPuts(b *testing.B) {
	for _, fabric := range []string{"iwarp", "shm"} {
		for _, policy := range []store.SyncPolicy{store.Always, store.Off} {
			for _, m := range []putMix{{1, 1, 1}, {1, 1, 2}, {50, 1, 1}, {50, 1, 2}, {50, 50, 1}, {50, 50, 2}} {
				name := fmt.Sprintf("fabric=%s/sync=%v/writers=%d/connections=%d/processes=%d", fabric, policy, m.writers, m.connections, m.processes)
				b.Run(name, func(b *testing.B) { puts(b, fabric, policy, m) })
			}
		}
	}
}

// A putMix says which callers put: writers share connections to a server in so
// many processes, theirs counted.
type putMix struct{ writers, connections, processes int }

// A rate is how often something was done in how long.
type rate struct {
	n    int64
	took time.Duration
}

func (r *rate) add(took time.Duration, n int64) { r.took, r.n = r.took+took, r.n+n }
func (r *rate) perSecond() float64              { return float64(r.n) / r.took.Seconds() }

func puts(b *testing.B, fabric string, policy store.SyncPolicy, m putMix) {
	ctx := context.Background()
	set, writers := serving{dir: shortDir(b), fabric: fabric, sync: policy}, m.writers
	var addr string
	serverCPU := func() time.Duration { return 0 }
	if m.processes == 2 {
		p := startServing(b, set)
		addr = p.addr
		serverCPU = func() time.Duration { return p.cpu(b) }
	} else {
		srv, err := set.start()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := shutdown(srv); err != nil {
				b.Error(err)
			}
		})
		addr = srv.Addrs()[0].String()
	}
	clients := make([]*client.Client, m.connections)
	for i := range clients {
		clients[i] = dial(b, addr, func(c *client.Config) { c.Fabrics = []rdma.Fabric{set.newFabric()} })
	}
	// Without sync, Pebble would leave compactions behind that run on in our turn.
	var db *pebble.DB
	if policy == store.Always {
		db = openPebble(b)
	}
	redis := startRedis(b, policy == store.Always)
	value := make([]byte, 100)
	var mine, bare, theirs rate
	var cpu, served time.Duration
	b.ReportAllocs()
	for b.Loop() {
		if db != nil {
			bare.add(together(b, writers, func(_ int, key []byte) error { return db.Set(key, value, pebble.Sync) }))
		}
		if redis != nil {
			theirs.add(redis.set(b, writers, len(value)))
		}
		begin, begun := cpuTime(b), serverCPU()
		mine.add(together(b, writers, func(w int, key []byte) error { return clients[w%len(clients)].Put(ctx, key, value) }))
		cpu, served = cpu+cpuTime(b)-begin, served+serverCPU()-begun
	}
	b.ReportMetric(mine.perSecond(), "puts/s")
	if db != nil {
		b.ReportMetric(bare.perSecond(), "pebble/s")
		b.ReportMetric(mine.perSecond()/bare.perSecond(), "ratio")
	}
	if redis != nil {
		b.ReportMetric(theirs.perSecond(), "redis/s")
		b.ReportMetric(mine.perSecond()/theirs.perSecond(), "redis-ratio")
	}
	b.ReportMetric(float64((cpu+served).Nanoseconds())/1e3/float64(mine.n), "cpu-µs/put")
	if m.processes == 2 {
		b.ReportMetric(float64(served.Nanoseconds())/1e3/float64(mine.n), "server-µs/put")
	}
}

func openPebble(b *testing.B) *pebble.DB {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: silent{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

// There are so many keys, as redis-benchmark has.
const putKeys = 100_000

var nextKey atomic.Uint64

// turn is how long each side has before the other has its turn.
const turn = 100 * time.Millisecond

// together has so many goroutines put for a turn and returns the time and how
// many were put.
func together(b *testing.B, workers int, put func(worker int, key []byte) error) (time.Duration, int64) {
	var done atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	end := begin.Add(turn)
	for w := range workers {
		wg.Go(func() {
			n := int64(0)
			key := make([]byte, 16)
			for ; time.Now().Before(end); n++ {
				binary.BigEndian.PutUint64(key[8:], nextKey.Add(1)*0x9e3779b97f4a7c15%putKeys)
				if err := put(w, key); err != nil {
					b.Error(err)
					return
				}
			}
			done.Add(n)
		})
	}
	wg.Wait()
	return time.Since(begin), done.Load()
}

// cpuTime is the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// silent keeps Pebble's log out of the results.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
