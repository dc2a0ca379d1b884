//go:build !race

package iwarp_test

import (
	"testing"

	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/rdmatest"
)

// TestConformanceMmap is the suite over mapped memory, which the race detector does
// not watch: what it would see of the rest, TestConformanceHeap shows it.
func TestConformanceMmap(t *testing.T) {
	rdmatest.Run(t, conformance(mem.Mmap, iwarp.Options{}))
}

// TestConformanceWithin is the suite between two ends that leave out the CRC: then long READ
// responses go from the region to the socket. The race detector would take that for a race.
func TestConformanceWithin(t *testing.T) {
	rdmatest.Run(t, conformance(mem.Mmap, iwarp.Options{NoCRCWithin: true}))
}
