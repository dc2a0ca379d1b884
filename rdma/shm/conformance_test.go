//go:build linux

package shm_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
	"github.com/rdmakv/rdmakv/rdma/shm"
)

// conformance is how the suite sees this fabric: with Go memory, which the race
// detector watches and which is read through the rings; with mapped memory of one
// process; or with memfds, whose READs are copies by the reader.
func conformance(kind mem.Kind, shared bool) rdmatest.Config {
	opts := shm.Options{}
	impatient := opts
	impatient.SetupTimeout = 200 * time.Millisecond
	return rdmatest.Config{
		New:          func(testing.TB) rdma.Fabric { return shm.New(opts) },
		NewImpatient: func(testing.TB) rdma.Fabric { return shm.New(impatient) },
		Memory:       kind, Shared: shared,
		Child: "TestConformanceChild",
		Want:  rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapMapped,
	}
}

func TestConformanceHeap(t *testing.T) { rdmatest.Run(t, conformance(mem.Heap, false)) }

func TestConformanceShared(t *testing.T) { rdmatest.Run(t, conformance(mem.Mmap, true)) }

// TestConformanceChild is the second process of the suite; run by itself it
// has nothing to do.
func TestConformanceChild(t *testing.T) { rdmatest.Child(t, conformance(mem.Mmap, true)) }

// BenchmarkConformance measures through the verbs what a program sees.
func BenchmarkConformance(b *testing.B) { rdmatest.Bench(b, conformance(mem.Mmap, true)) }
