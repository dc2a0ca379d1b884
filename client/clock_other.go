//go:build !linux

package client

import "time"

// clockBase makes readings comparable; only differences of bootNanos count.
var clockBase = time.Now()

// bootNanos is the clock of leases. Outside Linux it is Go's monotonic clock,
// which on these systems (macOS, Windows) is documented or known to count
// suspend, or runs where no server of the same machine survives a suspend.
func bootNanos() int64 { return int64(time.Since(clockBase)) }
