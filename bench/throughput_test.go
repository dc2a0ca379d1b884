package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/store"
)

// cachedClient is a client of a server in another process that has got every
// one of n values of size bytes once, so that each further get is one READ.
func cachedClient(b *testing.B, n, size int) (*client.Client, [][]byte) {
	b.Helper()
	c := dial(b, startProcess(b, store.Off).addr, nil)
	keys := fill(b, c, n, size)
	for _, key := range keys {
		if _, err := c.Get(context.Background(), key); err != nil {
			b.Fatal(err)
		}
	}
	return c, keys
}

// get has redis-benchmark get keys over so many connections, depth at a time,
// and returns its own figure of gets per second.
func (r *redis) get(b *testing.B, connections, depth, n int) float64 {
	for _, test := range []string{"set", "get"} {
		out, err := exec.Command("redis-benchmark", "-p", r.port, "-c", strconv.Itoa(connections), "-P", strconv.Itoa(depth),
			"-n", strconv.Itoa(n), "-d", "64", "-r", "10000", "-t", test, "--csv").Output()
		if err != nil {
			b.Fatal(err)
		}
		if test == "set" {
			continue // so that the gets find something
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fields := strings.Split(lines[len(lines)-1], ",")
		if len(fields) < 2 {
			b.Fatalf("redis-benchmark said %q", out)
		}
		perSecond, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
		if err != nil || perSecond <= 0 {
			b.Fatalf("redis-benchmark said %q: %v", out, err)
		}
		return perSecond
	}
	return 0
}

// BenchmarkGetsShared is gets/s of 50 goroutines on one client, its places
// cached, against redis-benchmark with 50 connections, in turns; the goal is a
// ratio of at least 2.
func BenchmarkGetsShared(b *testing.B) {
	const workers, turn = 50, 100_000
	ctx := context.Background()
	c, keys := cachedClient(b, 10_000, 64)
	peer := startRedis(b, false)
	var ours, theirs rate
	for b.Loop() {
		if peer != nil {
			perSecond := peer.get(b, workers, 1, turn)
			theirs.add(time.Duration(turn/perSecond*1e9), turn)
		}
		var next atomic.Int64
		var wg sync.WaitGroup
		begun := time.Now()
		for range workers {
			wg.Go(func() {
				dst := make([]byte, 0, 128)
				for i := next.Add(1); i <= turn; i = next.Add(1) {
					if _, err := c.GetInto(ctx, keys[i%int64(len(keys))], dst); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		ours.add(time.Since(begun), turn)
	}
	reportRates(b, &ours, &theirs)
}

// BenchmarkMultiGetPipelined is gets/s of one goroutine that asks for 64 keys at
// a time, against redis-benchmark with one connection and 64 commands in flight;
// the goal is a ratio of at least 1.
func BenchmarkMultiGetPipelined(b *testing.B) {
	const depth, turn = 64, 200_000
	ctx := context.Background()
	c, keys := cachedClient(b, 10_000, 64)
	peer := startRedis(b, false)
	var ours, theirs rate
	for b.Loop() {
		if peer != nil {
			perSecond := peer.get(b, 1, depth, turn)
			theirs.add(time.Duration(turn/perSecond*1e9), turn)
		}
		begun := time.Now()
		for at := 0; at < turn; at += depth {
			from := at % (len(keys) - depth)
			if _, err := c.MultiGet(ctx, keys[from:from+depth]); err != nil {
				b.Fatal(err)
			}
		}
		ours.add(time.Since(begun), turn)
	}
	reportRates(b, &ours, &theirs)
}

func reportRates(b *testing.B, ours, theirs *rate) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ours.perSecond(), "gets/s")
	if theirs.n > 0 {
		b.ReportMetric(theirs.perSecond(), "redis-gets/s")
		b.ReportMetric(ours.perSecond()/theirs.perSecond(), "redis-ratio")
	}
}

// BenchmarkGetLarge is gets of 1 MiB, one after the other, against answers of
// that size over TCP: one after the other, and as a stream of 16. ratio is the
// rate of bytes over that of the stream; the goal is at least 0.8.
func BenchmarkGetLarge(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("goroutines=%d", workers), func(b *testing.B) { getLarge(b, workers) })
	}
}

func getLarge(b *testing.B, workers int) {
	const size, turn = 1 << 20, 16
	ctx := context.Background()
	c := dial(b, startProcess(b, store.Off).addr, nil)
	key := []byte("key:000000000001")
	if err := c.Put(ctx, key, bytes.Repeat([]byte("v"), size)); err != nil {
		b.Fatal(err)
	}
	addr := startFloor(b)
	ping := dialFloor(b, addr, floorHello{Request: readRequestBytes, Response: size, Spin: true})
	stream := dialFloor(b, addr, floorHello{Request: readRequestBytes, Response: size, Streams: turn})
	var gets, pings, streams rate
	var dsts [][]byte
	for range workers {
		dsts = append(dsts, make([]byte, 0, size))
	}
	for b.Loop() {
		begun := time.Now()
		stream.round(b)
		streams.add(time.Since(begun), turn)
		begun = time.Now()
		for range turn {
			ping.round(b)
		}
		pings.add(time.Since(begun), turn)
		begun = time.Now()
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for range turn / workers {
					if got, err := c.GetInto(ctx, key, dsts[w]); err != nil || len(got) != size {
						b.Error(len(got), err)
						return
					}
				}
			})
		}
		wg.Wait()
		gets.add(time.Since(begun), turn)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(gets.perSecond()*size/1e9, "GB/s")
	b.ReportMetric(streams.perSecond()*size/1e9, "tcp-stream-GB/s")
	b.ReportMetric(gets.perSecond()/streams.perSecond(), "ratio")
	b.ReportMetric(gets.perSecond()/pings.perSecond(), "pingpong-ratio")
}
