//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// NeverOpen reports whether a stream may have been closed when the program began.
// Go's runtime then opens /dev/null in its place, for reading and writing, so
// reading cannot tell an empty standard input from none. Programs that start others
// with such a /dev/null (subprocess.DEVNULL of Python, containers without an input)
// look the same, so the answer is only that it may have been. A shell opens
// "</dev/null" for reading alone: that is an empty input which the user asked for,
// and the answer is no.
func NeverOpen(stream any) bool {
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
