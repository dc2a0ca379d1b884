package ibv

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memlockHint tells the limit that pinned memory counts against.
func memlockHint() string {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil || lim.Cur == unix.RLIM_INFINITY {
		return "out of memory; locked memory is not limited (RLIMIT_MEMLOCK)"
	}
	return fmt.Sprintf("locked memory is limited to %d KiB (RLIMIT_MEMLOCK): ulimit -l unlimited, in a systemd unit LimitMEMLOCK=infinity, in /etc/security/limits.conf memlock", lim.Cur>>10)
}
