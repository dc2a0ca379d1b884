package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep is for waits that must end in time. A goroutine's time.Sleep ends up to a
// millisecond late when the process has nothing else to do, because epoll counts
// in milliseconds; this thread's own sleep, some 50 microseconds.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a thread that is woken early looks at the clock and sleeps on
}
