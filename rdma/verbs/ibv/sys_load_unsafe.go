//go:build linux && cgo

package ibv

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This is the Go side of shim.h. Pointers into Go's memory are passed for the
// time of one call, and only to memory that holds no pointers itself; objects
// of rdma-core are integers. Functions of the data path neither let their
// arguments escape nor call back, so a post or a poll allocates nothing.

// sysPrepare changes the environment of the C library.
func sysPrepare() { C.rk_prepare() }

// sysLoad fills one of the shim's tables. missing says that the library, or a
// function that it ought to have, is what is missing.
func sysLoad(table int, soname string) (cause error, missing bool) {
	name := C.CString(soname)
	defer C.free(unsafe.Pointer(name))
	var text [512]C.char
	code := C.rk_load(C.int(table), name, &text[0], C.size_t(len(text)))
	why := C.GoString(&text[0])
	switch code {
	case C.RK_LOADED:
		return nil, false
	case C.RK_NO_LAYOUT:
		return errors.New("this program was built for a system that is neither amd64 nor arm64, for which it has no layouts of rdma-core: take fabric iwarp there, or build it for one of these"), false
	case C.RK_NO_SYMBOL:
		return fmt.Errorf("it has no function %s, it is too old", why), true
	}
	return errors.New(why), true
}

// dupNonblock duplicates fd and makes the open file non-blocking, for both.
func dupNonblock(fd int) (int, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		unix.Close(dup)
		return -1, err
	}
	return dup, nil
}

// constants are the enumeration constants of abi_constants.h, by name.
func constants() map[string]int64 {
	all := map[string]int64{}
	var name *C.char
	var value C.int64_t
	for i := C.int(0); C.rk_constant(i, &name, &value) != 0; i++ {
		all[C.GoString(name)] = int64(value)
	}
	return all
}

// errno of a function of the shim that returns one.
func errno(ret C.int) syscall.Errno { return syscall.Errno(ret) }
