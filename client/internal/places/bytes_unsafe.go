package places

import "unsafe"

// bytesOf is the memory of sets, for the kernel: nothing else reads or writes it so.
func bytesOf(sets []set) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(sets))), len(sets)*setBytes)
}

var _ [setBytes - unsafe.Sizeof(set{})]struct{}
var _ [unsafe.Sizeof(set{}) - setBytes]struct{}
