//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// neverOpen reports whether a stream was closed when the program began. Go's runtime
// then opens /dev/null in its place, for reading and writing, as "</dev/null" of a
// shell does not.
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
