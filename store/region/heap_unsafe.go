package region

import (
	"fmt"
	"unsafe"

	"github.com/rdmakv/rdmakv/store/layout"
)

// wordAligned reports whether b starts on an 8-byte boundary.
func wordAligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0 }

// HeapMemory is a Memory over the Go heap that registers nothing: it is for
// tests and for tools that open a store without a fabric. It is not safe for
// concurrent use beyond what Table does.
type HeapMemory struct {
	regions map[uint32][]uint64
}

// Alloc returns zeroed heap memory that starts on an 8-byte boundary.
func (m *HeapMemory) Alloc(id uint32, _ layout.RegionKind, size int) ([]byte, error) {
	if size <= 0 || size%8 != 0 {
		return nil, fmt.Errorf("region: %d bytes asked of the heap: need a positive multiple of 8", size)
	}
	if m.regions == nil {
		m.regions = make(map[uint32][]uint64)
	}
	if _, twice := m.regions[id]; twice {
		return nil, fmt.Errorf("region: region %d exists", id)
	}
	words := make([]uint64, size/8) // a []byte alone promises no alignment
	m.regions[id] = words
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size), nil
}

// Free drops region id; the garbage collector frees its memory.
func (m *HeapMemory) Free(id uint32) error {
	if _, ok := m.regions[id]; !ok {
		return fmt.Errorf("region: no region %d", id)
	}
	delete(m.regions, id)
	return nil
}
