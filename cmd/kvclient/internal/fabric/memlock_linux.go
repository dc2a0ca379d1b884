package fabric

import (
	"math"

	"golang.org/x/sys/unix"
)

// memlockLimit returns RLIMIT_MEMLOCK of this process in bytes; unlimited if
// there is none.
func memlockLimit() (soft, hard int64, err error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		return 0, 0, err
	}
	return limitBytes(lim.Cur), limitBytes(lim.Max), nil
}

func limitBytes(n uint64) int64 {
	if n == unix.RLIM_INFINITY || n > math.MaxInt64 {
		return unlimited
	}
	return int64(n)
}
