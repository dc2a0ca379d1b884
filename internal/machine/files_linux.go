package machine

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// OpenFiles raises this process's limit of open files as far as it may and returns
// it. getrlimit(2), RLIMIT_NOFILE.
func OpenFiles() (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("machine: the limit of open files: %w", err)
	}
	if l.Cur < l.Max {
		more := unix.Rlimit{Cur: l.Max, Max: l.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &more); err == nil {
			l = more
		}
	}
	return int(min(l.Cur, math.MaxInt32)), nil
}
