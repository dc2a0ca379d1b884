//go:build !linux

package boottime

import "time"

// started makes readings comparable; only their differences count.
var started = time.Now()

// Nanos is the clock of leases. Outside Linux it is Go's monotonic clock,
// which on these systems (macOS, Windows) is documented or known to count
// suspend, or runs where no server of the same machine survives a suspend.
func Nanos() int64 { return int64(time.Since(started)) }
