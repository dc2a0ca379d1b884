//go:build linux && race

package shm

import "sync/atomic"

// The race detector does not see memory that two mappings share, so it takes
// accesses on the two sides of a ring for unordered. In its builds one word of
// Go memory says what the ring's own words say, as package syscall does for
// descriptors.
var raceOrder atomic.Uint64

func raceRelease() { raceOrder.Add(1) }
func raceAcquire() { raceOrder.Add(1) }
