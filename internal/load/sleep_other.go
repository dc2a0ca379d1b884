//go:build !linux

package load

import "time"

// sleep is as exact as the runtime makes it.
func sleep(d time.Duration) { time.Sleep(d) }
