package base

import "golang.org/x/sys/unix"

// BootNanos is the clock of leases: nanoseconds that count time spent in
// suspend too. CLOCK_MONOTONIC, which time.Now reads, stands still while the
// machine sleeps, and a lease held over a sleep would look fresh. Unlike
// time.Now it is a real system call (about 200 ns), so it is read once per
// get, after the last completion, never before the post.
func BootNanos() int64 {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists since Linux 2.6.39; the call has no other way to fail.
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("client: CLOCK_BOOTTIME: " + err.Error())
	}
	return ts.Nano()
}
