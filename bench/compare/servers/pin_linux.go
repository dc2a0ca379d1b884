package servers

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attached are the attributes of a process that the kernel ends with this one. It
// has a group of its own, so Ctrl-C reaches only this program, which then ends
// its servers.
func Attached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// NoCore is a processor that is not there.
const NoCore = 1 << 20

// Cores are the processors that this process may use.
func Cores() (list []int) {
	var may unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return nil
	}
	for core := range len(may) * 64 {
		if may.IsSet(core) {
			list = append(list, core)
		}
	}
	return list
}

// StartOn starts a command on one processor, or, with core below 0, on all that
// this process has. A process inherits the processors of the thread that starts
// it, so the thread has only these for that moment.
func StartOn(cmd *exec.Cmd, core int) error {
	if core < 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if one.Set(core); !before.IsSet(core) || !one.IsSet(core) {
		return errors.New("this process may not use as many processors")
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	defer func() {
		if unix.SchedSetaffinity(0, &before) != nil {
			runtime.LockOSThread() // no other goroutine gets this thread: it ends with its goroutine
		}
	}()
	return cmd.Start()
}
