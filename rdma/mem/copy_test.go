package mem

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Every offset and length around the word boundaries, in regions whose start
// and end are not aligned either.
func TestCopy(t *testing.T) {
	backing := make([]byte, 128)
	for i := range backing {
		backing[i] = byte(i*7 + 9)
	}
	for lead := range 9 {
		for trail := range 9 {
			region := backing[lead : len(backing)-trail]
			for off := range 20 {
				for n := range 40 {
					if off+n > len(region) {
						continue
					}
					dst := make([]byte, n+1)
					Copy(dst[:n], region, uint64(off))
					if !bytes.Equal(dst[:n], region[off:off+n]) || dst[n] != 0 {
						t.Fatalf("lead %d trail %d off %d n %d", lead, trail, off, n)
					}
				}
			}
			end := len(region)
			for n := range 20 {
				dst := make([]byte, n)
				Copy(dst, region, uint64(end-n))
				if !bytes.Equal(dst, region[end-n:]) {
					t.Fatalf("lead %d trail %d at the end, n %d", lead, trail, n)
				}
			}
		}
	}
}

// A range that leaves the region panics, also where the array behind it goes on.
func TestCopyMisusePanics(t *testing.T) {
	array := heapBytes(64)
	for _, c := range []struct{ n, off int }{{9, 24}, {8, 25}, {1, 32}, {3, 30}, {40, 0}, {8, 1 << 40}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d bytes from %d of 32: no panic", c.n, c.off)
				}
			}()
			Copy(make([]byte, c.n), array[:32], uint64(c.off))
		}()
	}
	Copy(nil, array[:32], 32) // nothing to do is fine
}

func TestCopyAllocatesNothing(t *testing.T) {
	region, dst := heapBytes(4096), make([]byte, 4085)
	if n := testing.AllocsPerRun(100, func() { Copy(dst, region, 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Under the race detector a response may be made while the region is written,
// as long as both use words.
func TestCopyBesideWriter(t *testing.T) {
	region := heapBytes(4096)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for v := range uint64(300) {
			storeWords(region, v<<32|v)
		}
	}()
	dst := make([]byte, 4096)
	for range 300 {
		Copy(dst, region, 0)
		for i := 0; i < len(dst); i += 8 {
			if w := binary.NativeEndian.Uint64(dst[i:]); w>>32 != w&(1<<32-1) {
				t.Fatalf("torn word %#x", w)
			}
		}
		Copy(dst[:4085], region, 3)
	}
	<-done
}
