package iwarp_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

// conformance is how the suite sees this fabric, with Go memory, which the race
// detector watches, or with the real thing.
func conformance(kind mem.Kind, opts iwarp.Options) rdmatest.Config {
	impatient := opts
	impatient.SetupTimeout = 200 * time.Millisecond
	return rdmatest.Config{
		New:          func(testing.TB) rdma.Fabric { return iwarp.New(opts) },
		NewImpatient: func(testing.TB) rdma.Fabric { return iwarp.New(impatient) },
		Memory:       kind,
		Child:        "TestConformanceChild",
		Want:         rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapDiesWithProcess,
	}
}

func TestConformanceHeap(t *testing.T) {
	rdmatest.Run(t, conformance(mem.Heap, iwarp.Options{}))
}

// TestConformanceChild is the second process of the suite; run by itself it
// has nothing to do.
func TestConformanceChild(t *testing.T) {
	rdmatest.Child(t, conformance(mem.Mmap, iwarp.Options{}))
}

// BenchmarkConformance measures through the verbs what a program sees: READs
// beside a plain TCP ping-pong of the same sizes.
func BenchmarkConformance(b *testing.B) {
	rdmatest.Bench(b, conformance(mem.Mmap, iwarp.Options{}))
}
