package iwarp

import (
	"sync/atomic"
	"unsafe"
)

// storeWords fills b, which is aligned and a multiple of 8 long, with v, one
// atomic store a word, as a store writes its slabs.
func storeWords(b []byte, v uint64) {
	for i := 0; i < len(b); i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[i])), v)
	}
}
