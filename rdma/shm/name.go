//go:build linux

package shm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errNameTaken: another process listens there.
var errNameTaken = fmt.Errorf("%w: another process listens at this address in shared memory", unix.EADDRINUSE)

// A lockedName is a socket's file with a lock beside it that makes it ours. A
// process that is killed leaves the socket behind, and the next process must know
// whether it may take the socket away. The lock ends with the process, however it
// ends.
type lockedName struct {
	path string
	lock *os.File
}

// listenSocket listens at path. It replaces a socket that no process serves any
// more.
func listenSocket(path string, mode os.FileMode) (*lockedName, *net.UnixListener, error) {
	if len(path) >= len(unix.RawSockaddrUnix{}.Path) {
		return nil, nil, fmt.Errorf("the path of a socket has at most %d bytes, %s has %d: set shm_dir to a shorter one",
			len(unix.RawSockaddrUnix{}.Path)-1, path, len(path))
	}
	n, err := lockName(path)
	// A sweep holds the lock of a dead process for a moment.
	for end := time.Now().Add(lockPatience); errors.Is(err, errNameTaken) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		n, err = lockName(path)
	}
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*lockedName, *net.UnixListener, error) {
		n.release()
		return nil, nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return fail(fmt.Errorf("%s is no socket and is left alone", path))
		}
		if err := os.Remove(path); err != nil {
			return fail(err)
		}
	}
	sock, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fail(err)
	}
	sock.SetUnlinkOnClose(false) // release does it, while the lock is ours
	if err := os.Chmod(path, mode); err != nil {
		_ = sock.Close()
		return fail(err)
	}
	return n, sock, nil
}

// lockPatience is how long a name may seem taken before it is.
const lockPatience = 100 * time.Millisecond

// maxSweep bounds the sockets that sweep looks at.
const maxSweep = 256

// sweep removes the sockets of processes that are gone: those whose lock is free.
func sweep(dir string) {
	locks, err := filepath.Glob(filepath.Join(dir, "*.sock.lock"))
	if err != nil {
		return
	}
	for _, name := range locks[:min(len(locks), maxSweep)] {
		path := strings.TrimSuffix(name, ".lock")
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
			continue
		}
		if n, err := lockName(path); err == nil {
			n.release()
		}
	}
}

// lockName takes the lock of a path.
func lockName(path string) (*lockedName, error) {
	name := path + ".lock"
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: %s", errNameTaken, path)
			}
			return nil, fmt.Errorf("flock of %s: %w", name, err)
		}
		// The last owner may have removed the file between our open and our lock.
		mine, err1 := f.Stat()
		there, err2 := os.Lstat(name)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return &lockedName{path: path, lock: f}, nil
		}
		_ = f.Close()
	}
}

// release takes socket and lock away.
func (n *lockedName) release() {
	_ = os.Remove(n.path)
	_ = os.Remove(n.path + ".lock")
	_ = n.lock.Close()
}

// A proofFile is a descriptor that is held, and nothing else.
type proofFile interface{ Close() error }

func fileOf(fd int) proofFile { return os.NewFile(uintptr(fd), "proof") }

// dupOf is a descriptor for the same open file; -1 if there are none left.
func dupOf(f *os.File) int {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
