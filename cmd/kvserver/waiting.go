package main

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/rdma"
)

// waiting translates how to wait to the words of package rdma, in which 0 leaves
// the time to the fabric and -1 is never. The name was checked on loading.
func waiting(c config.Config) (mode rdma.WaitMode, spin time.Duration) {
	mode, _ = rdma.ParseWaitMode(c.Wait)
	switch c.Spin {
	case config.SpinAuto:
		return mode, 0
	case 0:
		return mode, -1
	}
	return mode, time.Duration(c.Spin)
}
