package iwarp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/rdmakv/rdmakv/internal/memory"
)

// Every offset and length around the word boundaries, in regions whose start
// and end are not aligned either.
func TestCopyRegion(t *testing.T) {
	backing := make([]byte, 128)
	fill(backing, 9)
	for lead := range 9 {
		for trail := range 9 {
			region := backing[lead : len(backing)-trail]
			for off := range 20 {
				for n := range 40 {
					if off+n > len(region) {
						continue
					}
					dst := make([]byte, n+1)
					copyRegion(dst[:n], region, uint64(off))
					if !bytes.Equal(dst[:n], region[off:off+n]) || dst[n] != 0 {
						t.Fatalf("lead %d trail %d off %d n %d", lead, trail, off, n)
					}
				}
			}
			end := len(region)
			for n := range 20 {
				dst := make([]byte, n)
				copyRegion(dst, region, uint64(end-n))
				if !bytes.Equal(dst, region[end-n:]) {
					t.Fatalf("lead %d trail %d at the end, n %d", lead, trail, n)
				}
			}
		}
	}
}

// Under the race detector a response may be made while the region is written,
// as long as both use words.
func TestCopyRegionBesideWriter(t *testing.T) {
	block, err := memory.Alloc(4096, memory.Options{Kind: memory.Heap, Tag: "test"})
	check(t, err)
	defer block.Free()
	region := block.Bytes()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v := range uint64(300) {
			storeWords(region, v<<32|v)
		}
	}()
	dst := make([]byte, 4096)
	for range 300 {
		copyRegion(dst, region, 0)
		for i := 0; i < len(dst); i += 8 {
			if w := binary.NativeEndian.Uint64(dst[i:]); w>>32 != w&(1<<32-1) {
				t.Fatalf("torn word %#x", w)
			}
		}
		copyRegion(dst[:4085], region, 3)
	}
	<-done
}
