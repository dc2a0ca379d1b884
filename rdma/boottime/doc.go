// Package boottime reads the clock that leases count by: nanoseconds that go on while the
// machine sleeps (CLOCK_BOOTTIME, clock_gettime(2)), without a system call for each reading.
//
// CLOCK_MONOTONIC, which time.Now reads, stands still during a suspend, and a lease held over
// one would look fresh. Go's way to CLOCK_BOOTTIME is a system call, which takes six times as
// long as time.Now. So a reading is the monotonic clock, plus what CLOCK_BOOTTIME was ahead of
// it by when the two were last compared:
//
//	monotonic  ──────┤ suspend ├──────▶
//	boottime   ───────────────────────▶ ahead by the suspend from here on
//	wall       ───────────────────────▶ too, and time.Now reads it with the monotonic one
//
// The kernel adds a suspend to CLOCK_BOOTTIME and to CLOCK_REALTIME by the same amount at the
// same moment (timekeeping_inject_sleeptime64 in kernel/time/timekeeping.c), and nothing else but
// a step of the wall clock changes how far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC: adjtimex(2)
// slews both. So the clocks are compared anew when the wall clock has moved against the
// monotonic one, and after 100 ms in any case, because a step back by just as much could hide a
// suspend.
//
// # What holds
//
// A reading is never later than CLOCK_BOOTTIME at the return. It is earlier by as much as the
// comparison took, 0.2 ms at most, and until the next one by what a suspend of less than a
// millisecond took. So between a reading and a later one no less time seems to have passed than
// has, but for Slack, by which a client ends its lease earlier; and none less between a reading
// and a later CLOCK_BOOTTIME itself, which is what the fabric verbs has in rdma.WC.Polled.
package boottime

import "time"

// Slack is the most that can have passed between two readings beyond what they show.
const Slack = 1200 * time.Microsecond
