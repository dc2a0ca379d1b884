package server

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma/mem"
)

// BenchmarkIdleSpace measures what a space costs in which nothing happens: the
// growth of the process's resident memory (all of it, registered memory
// included), of what the machine has given away (the kernel's own part
// included), of the Go heap, of memory outside it, of goroutines and open files,
// and the processor time that it takes.
func BenchmarkIdleSpace(b *testing.B) {
	spaces := 16.0
	for range b.N {
		srv := startServer(b, func(c *Config) {
			c.DataDir, c.FS, c.MemoryKind = b.TempDir(), nil, mem.Mmap
			if os.Getenv("RDMAKV_LAB") != "" { // a device pins what is registered
				c.Fabric, c.Listen = labFabric(b)
				spaces = 8 // what its memory allows
			}
			c.CacheBytes, c.RegionSize, c.IndexRegionSize, c.Shards = 0, 0, 0, 0
		})
		time.Sleep(500 * time.Millisecond)
		before := weigh(b)
		list := make([]SpaceConfig, int(spaces))
		for i := range list {
			list[i].Name = "s" + strconv.Itoa(i)
		}
		setSpaces(b, srv, list...)
		time.Sleep(2 * time.Second)
		busy := processorTime(b)
		begun := time.Now()
		time.Sleep(3 * time.Second)
		cpu := processorTime(b) - busy
		took := time.Since(begun)
		after := weigh(b)
		for name, v := range after {
			b.ReportMetric((v-before[name])/spaces, name+"/space")
		}
		b.ReportMetric(100*cpu.Seconds()/took.Seconds()/spaces, "%cpu/space")
	}
}

func weigh(b *testing.B) map[string]float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Skip(err)
	}
	return map[string]float64{
		"KiB-resident": statusKiB(b, "/proc/self/status", "VmRSS:"), "KiB-machine": -statusKiB(b, "/proc/meminfo", "MemAvailable:"), "KiB-goheap": float64(m.HeapInuse+m.StackInuse) / 1024,
		"KiB-offheap": float64(mem.Process().Total()) / 1024, "goroutines": float64(runtime.NumGoroutine()), "files": float64(len(fds)),
	}
}

func statusKiB(b *testing.B, file, name string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseFloat(f[1], 64)
			return n
		}
	}
	b.Fatal("no ", name)
	return 0
}

// processorTime is user and system time of this process.
func processorTime(b *testing.B) time.Duration {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
