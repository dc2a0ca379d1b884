//go:build linux && cgo

package ibv

/*
#include "shim.h"

#cgo noescape rk_create_reader
#cgo nocallback rk_create_reader
#cgo noescape rk_destroy_reader
#cgo nocallback rk_destroy_reader
#cgo noescape rk_read
#cgo nocallback rk_read
#cgo noescape rk_await_read
#cgo nocallback rk_await_read
*/
import "C"

import (
	"syscall"
	"time"
	"unsafe"
)

// The layouts that Go and C share: either line fails to compile if the sizes differ.
const (
	_ = uint(unsafe.Sizeof(SGE{}) - C.sizeof_struct_rk_sge)
	_ = uint(C.sizeof_struct_rk_sge - unsafe.Sizeof(SGE{}))
)

func sysCreateReader(qp, cq handle, yield bool, sinks []SGE) (handle, syscall.Errno) {
	var h C.rk_h
	list := (*C.struct_rk_sge)(unsafe.Pointer(unsafe.SliceData(sinks)))
	e := errno(C.rk_create_reader(C.rk_h(qp), C.rk_h(cq), flag[C.int](yield), list, count(len(sinks)), &h))
	return handle(h), e
}

func sysDestroyReader(h handle) syscall.Errno { return errno(C.rk_destroy_reader(C.rk_h(h))) }

// sysRead returns how many completions it has put into wc, 0 or 1, and fails with an
// errno if the READ was not posted.
func sysRead(h handle, sink int, id, addr uint64, rkey, n uint32, d time.Duration, wc *WC) (int, syscall.Errno) {
	var e C.int
	got := C.rk_read(C.rk_h(h), C.uint32_t(sink), C.uint64_t(id), C.uint64_t(addr), C.uint32_t(rkey), C.uint32_t(n),
		C.int64_t(d), (*C.struct_rk_wc)(unsafe.Pointer(wc)), &e)
	// A poll that fails after the post is found again by the next one.
	return max(int(got), 0), errno(e)
}

func sysAwaitRead(h handle, d time.Duration, wc *WC) (int, syscall.Errno) {
	return polled(C.rk_await_read(C.rk_h(h), C.int64_t(d), (*C.struct_rk_wc)(unsafe.Pointer(wc))))
}
