//go:build unix

package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is what this process has used of the processors, in its own code and
// in the kernel; 0 where that cannot be known. Both count: a client that spins for
// completions uses the first, one that uses the kernel's TCP the second.
func processTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
