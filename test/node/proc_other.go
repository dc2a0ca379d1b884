//go:build !linux

package node

import (
	"errors"
	"time"
)

// CPU is known on Linux only.
func (n *Node) CPU() (time.Duration, error) { return 0, errors.ErrUnsupported }
