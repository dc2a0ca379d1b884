//go:build !linux

package servers

import (
	"errors"
	"os/exec"
	"syscall"
)

// Attached are the attributes of a process that ends with this one, where the
// system can do that.
func Attached() *syscall.SysProcAttr { return nil }

// NoCore is a processor that is not there.
const NoCore = 1 << 20

// Cores are the processors that this process may use, where it can be told.
func Cores() []int { return nil }

// StartOn starts a command on one processor, which works on Linux only, or, with
// core below 0, on any.
func StartOn(cmd *exec.Cmd, core int) error {
	if core >= 0 {
		return errors.New("processes can be bound to a processor on Linux only")
	}
	return cmd.Start()
}
