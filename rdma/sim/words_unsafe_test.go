package sim

import (
	"sync/atomic"
	"unsafe"
)

// storeWord stores the first word of b as a store does that others read.
func storeWord(b []byte, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), v)
}
