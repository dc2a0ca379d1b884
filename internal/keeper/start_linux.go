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

	// maxPath is the longest path of a socket that Linux takes.
	maxPath = 107

	// busyPatience is how long a node waits for one that has just ended to let go of the memory, handOverLimit for a keeper to hand over what it keeps, and
	// spawnLimit for a new one to run.
	busyPatience  = 2 * time.Second
	handOverLimit = 2 * time.Second
	spawnLimit    = 5 * time.Second
)

// ErrStale: what an earlier life of the node has left cannot be put out of reach. A later start could find it, and take values for the newest that are not.
var ErrStale = errors.New("keeper: what an earlier process of this node has left cannot be put out of reach of later ones")

// A Found is what a node that starts has of its keeper.
type Found struct {
	Client *Client
	Left   map[string]int // what is kept, by name; the descriptors are the caller's
	Cold   error          // why nothing is kept, if there was a keeper; nil otherwise
}

// Start takes over what is kept for the node whose data directory is dir, and starts a keeper if there is none: program with args, which calls Serve. keep is for
// how long the memory stays there once this process has ended.
//
// The directory is this process's until the client is closed: Start fails with ErrBusy while another has it. A keeper that has ended, hangs, or says what it must
// not costs what it kept, and another one is started in its place. Whatever comes of it, no later start finds memory that this one has not taken: its socket is
// removed, and ErrStale says that it cannot be. After any other error nothing is kept.
func Start(ctx context.Context, dir string, keep time.Duration, program string, args ...string) (*Found, error) {
	path := filepath.Join(dir, socketName)
	if len(path) > maxPath {
		return nil, fmt.Errorf("keeper: the path of its socket has %d bytes, and %d at most are possible: give data_dir a shorter path: %s", len(path), maxPath, path)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(ctx, dir)
	if err != nil {
		if _, there := os.Lstat(path); ctx.Err() == nil && !errors.Is(err, ErrBusy) && !errors.Is(there, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", ErrStale, err)
		}
		return nil, err
	}
	found, err := start(path, st.Mode(), keep, program, args)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	found.Client.lock = lock
	return found, nil
}

// start is Start of who has the directory.
func start(path string, dir os.FileMode, keep time.Duration, program string, args []string) (*Found, error) {
	var client *Client
	var left map[string]int
	var cold error
	// In such a directory anybody can put his socket in the place of another's.
	open := dir.Perm()&0o002 != 0 && dir&os.ModeSticky == 0
	if !open {
		client, left, cold = takeOver(path, keep)
		if cold == nil {
			return &Found{Client: client, Left: left}, nil
		}
		if errors.Is(cold, ErrBusy) {
			return nil, cold
		}
	}
	if err := unreach(path); err != nil {
		return nil, err
	}
	switch {
	case open:
		return nil, fmt.Errorf("keeper: anybody may write %s: take that right away (chmod o-w)", filepath.Dir(path))
	case errors.Is(cold, os.ErrNotExist):
		cold = nil
	case errors.Is(cold, syscall.ECONNREFUSED):
		cold = errors.New("keeper: it has ended: memory_keep had passed, or it was killed")
	}
	pid, err := spawn(path, program, args)
	if err != nil {
		return nil, errors.Join(err, unreach(path))
	}
	client, left, err = connect(path, keep, os.Geteuid(), time.Now().Add(spawnLimit))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keeper: %s does not come up: %w", program, err), unreach(path))
	}
	client.pid = pid // the kernel may have named this process, which has made the socket
	return &Found{Client: client, Left: left, Cold: cold}, nil
}

// takeOver connects to a keeper that is there. The process before may be ending still: its lock goes before its connection.
func takeOver(path string, keep time.Duration) (*Client, map[string]int, error) {
	for until := time.Now().Add(handOverLimit); ; time.Sleep(5 * time.Millisecond) {
		// Each has the time that it takes, so that "busy" is never taken for a keeper that hangs.
		client, left, err := connect(path, keep, os.Geteuid(), time.Now().Add(handOverLimit))
		if !errors.Is(err, ErrBusy) || time.Now().After(until) {
			return client, left, err
		}
	}
}

// Forget is for a node that keeps nothing: what an earlier process of it has left in dir is given back, and no later start finds it. The
// directory is the caller's until it closes the file, which is nil if nothing was ever kept there. With tidy the file is removed as well, for a store that wants
// the directory for itself, and the directory is the caller's only until then. It fails with ErrBusy and ErrStale, as Start does.
func Forget(ctx context.Context, dir string, tidy bool) (*os.File, error) {
	if _, err := os.Lstat(filepath.Join(dir, lockName)); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	path := filepath.Join(dir, socketName)
	lock, err := lockDir(ctx, dir)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrBusy) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", ErrStale, err)
	}
	// A keeper whose node wants nothing kept ends with the connection.
	client, left, err := takeOver(path, 0)
	switch {
	case err == nil:
		for _, fd := range left {
			closeFD(fd)
		}
		_ = client.Close()
	case errors.Is(err, ErrBusy):
		return nil, errors.Join(err, lock.Close())
	}
	if err := unreach(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if tidy {
		if err := os.Remove(lock.Name()); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	return lock, nil
}

// lockDir makes this process the one that uses the directory.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	for {
		lock, err := lockFile(ctx, path)
		if err != nil {
			return nil, err
		}
		// The process before may have removed the file while this one waited for it: then another one has a new file, or makes one.
		has, err := lock.Stat()
		is, missing := os.Lstat(path)
		if err == nil && missing == nil && os.SameFile(has, is) {
			return lock, nil
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return nil, err
		}
	}
}

func lockFile(ctx context.Context, path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(busyPatience); ; {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("keeper: flock of %s: %w", lock.Name(), err), lock.Close())
		case time.Now().After(until):
			return nil, errors.Join(fmt.Errorf("%w, which has %s", ErrBusy, lock.Name()), lock.Close())
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		}
	}
}

// unreach removes the socket of a keeper, which is the only way to it. Who calls it has the directory.
func unreach(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// spawn starts a keeper: in a session of its own, with the socket and nothing else of this process.
func spawn(path, program string, args []string) (pid int, err error) {
	socket, err := listen(path)
	if err != nil {
		return 0, fmt.Errorf("keeper: its socket: %w", err)
	}
	defer socket.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("keeper: starting %s: %w", program, err)
	}
	// It is this process's child as long as both live; nobody waits for it after that.
	pid = cmd.Process.Pid
	go func() { _ = cmd.Wait() }()
	return pid, nil
}

// listen makes the socket of a keeper, which its user alone can connect to.
func listen(path string) (*os.File, error) {
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	defer ln.Close()
	// Who has connected between the two is refused by the keeper, if it is of another user.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return ln.File()
}
