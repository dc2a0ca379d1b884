package rdmatest

import (
	"sync/atomic"
	"unsafe"
)

// storeWord writes one aligned word as a program does that others READ.
func storeWord(b []byte, off int, v uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&b[off : off+8][0])), v)
}
