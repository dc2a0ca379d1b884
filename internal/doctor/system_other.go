//go:build unix && !linux

package doctor

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock: other systems have clocks of other names, which the client uses.
func bootClock() error { return nil }

// wallClock is not known elsewhere.
func wallClock() (synced bool, within time.Duration, err error) {
	return false, 0, errors.New("it is told on Linux only")
}

// inMemory is not known elsewhere.
func inMemory(*unix.Statfs_t) bool { return false }
