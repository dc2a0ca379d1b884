package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketName and lockName are in the data directory of the node.
	socketName = "keeper.sock"
	lockName   = "keeper.lock"

	// busyPatience is how long a node waits for one that has just ended to let go of the memory.
	busyPatience = 2 * time.Second
)

// Start connects to the keeper of the node whose data directory is dir, and starts one if there is none: program with args, which calls
// Serve. It returns what is kept, by name. keep is for how long it stays there once this process has ended. It fails with ErrBusy if another
// process has the memory.
func Start(ctx context.Context, dir string, keep time.Duration, program string, args ...string) (*Client, map[string]int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	// Two nodes that start at a time have one keeper.
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, nil, fmt.Errorf("keeper: flock of %s: %w", lock.Name(), err)
	}
	path := filepath.Join(dir, socketName)
	for until := time.Now().Add(busyPatience); ; {
		c, kept, err := Connect(path, keep)
		switch {
		case errors.Is(err, ErrBusy) && time.Now().Before(until):
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			if err := spawn(path, program, args); err != nil {
				return nil, nil, err
			}
			return Connect(path, keep)
		default:
			return c, kept, err
		}
	}
}

// spawn starts a keeper: in a session of its own, with the socket and nothing else of this process.
func spawn(path, program string, args []string) error {
	socket, err := Listen(path)
	if err != nil {
		return fmt.Errorf("keeper: its socket: %w", err)
	}
	defer socket.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("keeper: starting %s: %w", program, err)
	}
	// It is this process's child as long as both live; nobody waits for it after that.
	go func() { _ = cmd.Wait() }()
	return nil
}

// Serve is Run with the socket that Start has passed on.
func Serve(ctx context.Context) error {
	const passed = 3 // the first behind standard error
	f := os.NewFile(passed, "keeper socket")
	ln, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("keeper: descriptor %d is no socket: this command is for kvserver to run, by itself: %w", passed, err)
	}
	_ = f.Close()
	u, ok := ln.(*net.UnixListener)
	if !ok {
		return fmt.Errorf("keeper: descriptor %d is no UNIX socket: this command is for kvserver to run, by itself", passed)
	}
	u.SetUnlinkOnClose(false)
	return Run(ctx, u)
}
