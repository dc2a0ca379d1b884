package store

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
	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskConfig is a store on the machine's own disk, with default sizes.
func diskConfig(b *testing.B) Config {
	return Config{
		Dir: b.TempDir(), Memory: newHeapMemory(), MemoryLimit: 512 << 20, RegionSize: 32 << 20,
		IndexRegionSize: 8 << 20, MinFreeBytes: -1,
	}
}

// BenchmarkPut is puts of 16 + 100 bytes by blocking writers, next to bare
// Pebble with as many, in turns within one run: the machine's disk and
// neighbours change by the minute, the ratio does not.
func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		for _, sync := range []SyncPolicy{Always, Off} {
			b.Run(fmt.Sprintf("sync=%v/writers=%d", sync, writers), func(b *testing.B) { benchPut(b, sync, writers) })
		}
	}
}

func benchPut(b *testing.B, policy SyncPolicy, writers int) {
	c := diskConfig(b)
	c.Sync = policy
	n := open(b, c)
	n.fill()
	o := n.disk.ForTests().Options()
	bare, err := pebble.Open(b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	mode := pebble.Sync
	if policy == Off {
		mode = pebble.NoSync
	}
	value := make([]byte, 100)
	ours := func(id, i int) {
		w := writerPool.Get().(*Write)
		done := w.User.(chan struct{})
		key := binary.BigEndian.AppendUint64(w.Key[:0], uint64(id))
		w.Key = binary.BigEndian.AppendUint64(key, uint64(i)*0x9e3779b97f4a7c15)
		w.Shard, w.Value = uint16(i%32), value
		if err := n.Submit(w); err != nil {
			b.Error(err)
			return
		}
		<-done
		writerPool.Put(w)
	}
	theirs := func(id, i int) {
		var key [19]byte
		binary.BigEndian.PutUint64(key[3:], uint64(id))
		binary.BigEndian.PutUint64(key[11:], uint64(i)*0x9e3779b97f4a7c15)
		if err := bare.Set(key[:], value, mode); err != nil {
			b.Error(err)
		}
	}
	var mine, bareTime, mineCPU, bareCPU time.Duration
	var mineOps, bareOps int64
	next := 0
	for b.Loop() {
		// One iteration is a slice of time for each, in turns.
		slice := 20 * time.Millisecond
		cpu := cpuTime(b)
		d, k := runFor(slice, writers, next, ours)
		mine, mineOps, mineCPU = mine+d, mineOps+k, mineCPU+cpuTime(b)-cpu
		cpu = cpuTime(b)
		d, k = runFor(slice, writers, next, theirs)
		bareTime, bareOps, bareCPU = bareTime+d, bareOps+k, bareCPU+cpuTime(b)-cpu
		next += 1 << 20
	}
	m, p := float64(mineOps)/mine.Seconds(), float64(bareOps)/bareTime.Seconds()
	b.ReportMetric(m, "puts/s")
	b.ReportMetric(p, "pebble/s")
	b.ReportMetric(m/p, "ratio")
	b.ReportMetric(float64(mineOps)/float64(n.Stats().Batches), "puts/batch")
	// What each costs; says more than the rates on a machine that is shared.
	b.ReportMetric(float64(mineCPU.Microseconds())/float64(mineOps), "cpu-µs/put")
	b.ReportMetric(float64(bareCPU.Microseconds())/float64(bareOps), "cpu-µs/pebble")
}

var writerPool = sync.Pool{New: func() any {
	done := make(chan struct{}, 1)
	return &Write{User: done, Done: func(*Write) { done <- struct{}{} }}
}}

// cpuTime is the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// runFor lets writers run op for about d.
func runFor(d time.Duration, writers, first int, op func(id, i int)) (time.Duration, int64) {
	var ops atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for id := range writers {
		wg.Go(func() {
			i := first
			for time.Since(start) < d {
				op(id, i)
				i++
			}
			ops.Add(int64(i - first))
		})
	}
	wg.Wait()
	return time.Since(start), ops.Load()
}

// BenchmarkPipeline is one submitter that does not wait: what the pipeline
// carries.
func BenchmarkPipeline(b *testing.B) {
	for _, sync := range []SyncPolicy{Always, Off} {
		b.Run("sync="+sync.String(), func(b *testing.B) {
			c := diskConfig(b)
			c.Sync = sync
			n := open(b, c)
			n.fill()
			const window = 4096
			free := make(chan *Write, window)
			for range window {
				free <- &Write{Op: Op{Value: make([]byte, 100), Key: make([]byte, 16)}, Done: func(w *Write) { free <- w }}
			}
			b.ReportAllocs()
			i := uint64(0)
			for b.Loop() {
				w := <-free
				i++
				binary.BigEndian.PutUint64(w.Key, i*0x9e3779b97f4a7c15)
				w.Shard = uint16(i % 32)
				if err := n.Submit(w); err != nil {
					b.Fatal(err)
				}
			}
			<-n.gateIdle()
			b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// BenchmarkGet is a get by SEND of a key in memory, without the SEND.
func BenchmarkGet(b *testing.B) {
	c := testConfig(vfs.NewMem())
	n := open(b, c)
	n.fill()
	for i := range 1000 {
		n.put(i%4, fmt.Sprintf("key-%04d", i), pattern(100, "v"))
	}
	key := []byte("key-0000")
	dst := make([]byte, 0, 128)
	ctx := context.Background()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		key[7] = byte('0' + i%8)
		if _, err := n.Get(ctx, uint16(i%4), key, dst); err != nil && err != ErrNotFound {
			b.Fatal(err)
		}
		i += 4
	}
}

// BenchmarkFill is a start with keys of 16 + 100 bytes on the disk.
func BenchmarkFill(b *testing.B) {
	const keys = 200_000
	c := diskConfig(b)
	c.Sync = Off
	n := open(b, c)
	done := make(chan struct{}, keys)
	for i := range keys {
		key := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(i)*0x9e3779b97f4a7c15)
		w := &Write{Op: Op{Shard: uint16(i % 32), Key: append(key, "12345678"...), Value: make([]byte, 100)}, Done: func(*Write) { done <- struct{}{} }}
		for n.Submit(w) != nil {
			<-done
		}
	}
	if err := n.Close(); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	rounds := 0
	for b.Loop() {
		c.Memory = newHeapMemory()
		start := time.Now()
		n := open(b, c)
		waitFor(b, "the fill", func() bool { return n.Stats().FillKeys == keys })
		took += time.Since(start)
		rounds++
		if err := n.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(keys)*float64(rounds)/took.Seconds(), "keys/s")
}
