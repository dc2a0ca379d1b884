//go:build !linux

package base

import "time"

// clockBase makes readings comparable; only differences of BootNanos count.
var clockBase = time.Now()

// BootNanos is the clock of leases. Outside Linux it is Go's monotonic clock,
// which on these systems (macOS, Windows) is documented or known to count
// suspend, or runs where no server of the same machine survives a suspend.
func BootNanos() int64 { return int64(time.Since(clockBase)) }
