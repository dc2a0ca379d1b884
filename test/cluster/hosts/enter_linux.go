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
// Where RDMAKV_REQUIRE_NAMESPACES says that they can, as scripts/prepare has seen,
// there is no such reason: the program ends, or tests would skip what is broken.
func Enter() error {
	err := enter()
	if err != nil && os.Getenv("RDMAKV_REQUIRE_NAMESPACES") != "" {
		fmt.Fprintln(os.Stderr, "network namespaces can be had here, and were not:", err)
		os.Exit(1)
	}
	return err
}

func enter() error {
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		tap, err := newTAP("probe")
		if err != nil {
			return err
		}
		return tap.Close()
	})
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
