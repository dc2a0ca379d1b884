//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// neverOpen reports whether a stream may have been closed when the program began:
// Go's runtime then opens /dev/null in its place, for reading and writing. Others who
// start programs give them such a /dev/null, too (subprocess.DEVNULL of Python,
// containers without an input), which looks the same; "</dev/null" of a shell is for
// reading alone, and is meant.
func neverOpen(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	var null, st unix.Stat_t
	if unix.Stat(os.DevNull, &null) != nil || unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != null.Rdev {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}
