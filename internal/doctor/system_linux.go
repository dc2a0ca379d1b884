package doctor

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads the clock by which leases run.
func bootClock() error {
	var ts unix.Timespec
	return unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
}

// wallClock says whether the kernel counts the wall clock as synchronised by a
// program (adjtimex), and how wrong it may be.
func wallClock() (synced bool, within time.Duration, err error) {
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		return false, 0, errors.Unwrap(err)
	}
	return state != unix.TIME_ERROR && tx.Status&unix.STA_UNSYNC == 0, time.Duration(tx.Maxerror) * time.Microsecond, nil
}

// inMemory reports whether a file system keeps nothing beyond the machine's end.
func inMemory(fs *unix.Statfs_t) bool {
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}
