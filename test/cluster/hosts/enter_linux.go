package hosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// entered marks a process that Enter has started.
const entered = "HOSTS_ENTERED"

// Enter lets this program make namespaces though it may not: it runs the program
// again, with the same arguments, in a user namespace in which it may, and exits as
// that one does. It returns at once where the right is there already, and with the
// reason where users cannot make user namespaces either. Call it first in TestMain.
func Enter() error {
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	if err == nil || os.Getenv(entered) != "" {
		return err
	}
	self, exeErr := os.Executable()
	if exeErr != nil {
		return exeErr
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), entered+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if startErr := cmd.Start(); startErr != nil {
		return fmt.Errorf("%w; a user namespace: %w", err, startErr)
	}
	sigs := make(chan os.Signal, 8)
	signal.Notify(sigs, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	go func() {
		for s := range sigs {
			_ = cmd.Process.Signal(s)
		}
	}()
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		os.Exit(exit.ExitCode())
	}
	os.Exit(1)
	return nil
}
