package sim_test

import (
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// conformance is how the suite sees a network: each end of a test is a host.
func conformance(kind mem.Kind, opts sim.Options) rdmatest.Config {
	net := sim.New(opts)
	opts.SetupTimeout = 200 * time.Millisecond
	hasty := sim.New(opts)
	host := func(net *sim.Network) func(testing.TB) rdma.Fabric {
		return func(t testing.TB) rdma.Fabric {
			h, err := net.Host("end", "")
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
	}
	return rdmatest.Config{
		New: host(net), NewImpatient: host(hasty), Memory: kind, OneProcess: true,
		Want: (rdma.CapSRQ | rdma.CapInline | rdma.CapRNR | rdma.CapSendDelivers) &^ opts.Without,
	}
}

func TestConformanceHeap(t *testing.T) {
	rdmatest.Run(t, conformance(mem.Heap, sim.Options{}))
}

func TestConformanceMmap(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformanceHeap and TestConformanceDelays do the most of it")
	}
	rdmatest.Run(t, conformance(mem.Mmap, sim.Options{}))
}

// TestConformanceDelays: the same when everything takes time, READs are loaded
// in pieces and overtaken. What the suite says of safety holds all the same.
func TestConformanceDelays(t *testing.T) {
	rdmatest.Run(t, conformance(mem.Heap, sim.Options{Seed: 1, Adversity: sim.Delays(300 * time.Microsecond)}))
}

// TestConformanceNoRNR: as on adapters without RNR and shared queues.
func TestConformanceNoRNR(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformanceHeap and TestConformanceDelays do the most of it")
	}
	rdmatest.Run(t, conformance(mem.Heap, sim.Options{Without: rdma.CapRNR | rdma.CapSRQ | rdma.CapInline}))
}
