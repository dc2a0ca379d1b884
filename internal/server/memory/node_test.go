package memory

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestNodeOutOfReach: the NUMA node of the devices is chosen for speed. Where the
// process may not take memory from it (a cpuset without it, a container without the
// right to mbind), regions get other memory, and the log says so.
func TestNodeOutOfReach(t *testing.T) {
	for _, huge := range []HugePages{HugeOff, HugeTry} {
		var log bytes.Buffer
		node := 1000
		r := NewRegions(RegionsConfig{Huge: huge, NUMANode: &node, Prefault: true}, base.NewLog(slog.New(slog.NewTextHandler(&log, nil))))
		pages, err := r.Alloc(1, layout.KindItems, 2<<20)
		if err != nil {
			t.Fatalf("huge pages %v: %v", huge, err)
		}
		if len(pages) != 2<<20 {
			t.Errorf("%d bytes", len(pages))
		}
		if !strings.Contains(log.String(), "any NUMA node") {
			t.Errorf("the log says nothing of it: %s", log.String())
		}
		if err := r.Free(1); err != nil {
			t.Error(err)
		}
	}
}
