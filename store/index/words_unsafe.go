package index

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/rdmakv/rdmakv/store/layout"
)

// The scans of this package load dozens of words a call. They go through
// pointers to arrays, whose bounds are checked once, because layout.LoadWord
// checks bounds and alignment of every word and is not inlined: a Find took
// twice as long with it.

// bigEndian is a constant of the port; words are little-endian in memory.
const bigEndian = runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" ||
	runtime.GOARCH == "mips" || runtime.GOARCH == "mips64"

// load is layout.LoadWord for a word that is known to be one.
func load(w *uint64) uint64 {
	v := atomic.LoadUint64(w)
	if bigEndian {
		v = bits.ReverseBytes64(v)
	}
	return v
}

// bucket is a bucket in registered memory: header, then slots. Its words are
// shared with remote readers and loaded by load only.
type bucket [layout.BucketSize / 8]uint64

// bucketAt is bucket b of a segment, whose memory starts on a page boundary of
// its region and so on a word boundary.
func bucketAt(mem []byte, b int) *bucket {
	off := b * layout.BucketSize
	return (*bucket)(unsafe.Pointer(unsafe.SliceData(mem[off : off+layout.BucketSize])))
}
