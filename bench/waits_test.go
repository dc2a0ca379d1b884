package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// BenchmarkGetWaits is one client, one get at a time, one READ each, the server
// in a process of its own, for each way to wait and on one core or two. ratio is
// the median over that of the TCP ping-pong of the same sizes that waits in the
// same way on the same cores (adaptive: that spins); the goal is at most 1.1.
func BenchmarkGetWaits(b *testing.B) {
	for _, cores := range []int{1, 2} {
		for _, mode := range []wait.Mode{wait.Event, wait.Poll, wait.Adaptive} {
			if cores == 1 && mode == wait.Poll {
				continue // two ends that spin on one core wait for the kernel's clock
			}
			b.Run(fmt.Sprintf("wait=%v/cores=%d", mode, cores), func(b *testing.B) { getWaits(b, mode, cores) })
		}
	}
}

func getWaits(b *testing.B, mode wait.Mode, cores int) {
	pin(b, cores)
	b.Setenv(serveWait, strconv.Itoa(int(mode)))
	const size = 64
	ctx := context.Background()
	c := dial(b, startProcess(b, store.Off).addr, func(cfg *client.Config) { cfg.Wait = mode })
	key, value := []byte("key:000000000001"), bytes.Repeat([]byte("v"), size)
	if err := c.Put(ctx, key, value); err != nil {
		b.Fatal(err)
	}
	spin := mode == wait.Poll || mode == wait.Adaptive && cores > 1
	ping := dialFloor(b, startFloor(b), floorHello{
		Request: readRequestBytes, Response: uint32(responseOverhead + layout.ItemSize(len(key), size, false)), Spin: spin,
	})
	dst := make([]byte, 0, size)
	var gets, rounds sample
	for b.Loop() {
		for range slice {
			t := time.Now()
			ping.round(b)
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
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(gets.at(0.5))/float64(rounds.at(0.5)), "ratio")
	b.ReportMetric(float64(gets.at(0.5))/1e3, "get-p50-µs")
	b.ReportMetric(float64(gets.at(0.99))/1e3, "get-p99-µs")
	b.ReportMetric(float64(rounds.at(0.5))/1e3, "tcp-p50-µs")
	b.ReportMetric(float64(rounds.at(0.99))/1e3, "tcp-p99-µs")
}

// pin keeps this process, and those that it starts, to the first n processors
// until the benchmark ends.
func pin(b *testing.B, n int) {
	b.Helper()
	var all, some unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		b.Fatal(err)
	}
	for cpu := 0; some.Count() < n; cpu++ {
		if cpu > 1023 {
			b.Skipf("this takes %d processors", n)
		}
		if all.IsSet(cpu) {
			some.Set(cpu)
		}
	}
	setAffinity(b, &some)
	b.Cleanup(func() { setAffinity(b, &all) })
}

// setAffinity moves every thread of this process.
func setAffinity(b *testing.B, to *unix.CPUSet) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, to) // a thread may end meanwhile
		}
	}
}
