package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// asKeeper is the argument by which the program of the tests is a keeper, as kvserver is by one of its commands.
const asKeeper = "be-a-keeper"

func TestMain(m *testing.M) {
	if slices.Contains(os.Args[1:], asKeeper) {
		if err := Serve(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A node is what a test has of a start.
type aNode struct {
	*Client
	left map[string]string // what was kept, by name
	cold error
}

// begin is a node that starts, and whose keeper is gone at the end of the test.
func begin(t *testing.T, dir string, keep time.Duration) aNode {
	t.Helper()
	n, err := tryBegin(t, dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryBegin(t *testing.T, dir string, keep time.Duration) (aNode, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	found, err := Start(t.Context(), dir, keep, self, asKeeper)
	if took := time.Since(begun); took > busyPatience+handOverLimit+spawnLimit+5*time.Second {
		t.Errorf("the start took %v", took)
	}
	if err != nil {
		return aNode{}, err
	}
	t.Cleanup(func() {
		_ = found.Client.Close()
		_ = syscall.Kill(found.Client.PID(), syscall.SIGKILL) // it may hang
		awaitEnd(t, found.Client.PID())
	})
	return aNode{found.Client, readAll(t, found.Left), found.Cold}, nil
}

// readAll reads and closes memory that was handed over.
func readAll(t *testing.T, fds map[string]int) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for name, fd := range fds {
		text := make([]byte, 64)
		n, err := unix.Pread(fd, text, 0)
		if err != nil {
			t.Error(err)
		}
		texts[name] = string(text[:n])
		closeFD(fd)
	}
	return texts
}

// keep has a text kept, in memory of its own.
func (n aNode) keep(t *testing.T, name, text string) {
	t.Helper()
	fd := memoryOf(t, text)
	defer closeFD(fd)
	if err := n.Put(name, fd); err != nil {
		t.Fatal(err)
	}
}

// memoryOf is a sealed memfd.
func memoryOf(t testing.TB, text string) int {
	t.Helper()
	fd := unsealed(t, text)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	return fd
}

func unsealed(t testing.TB, text string) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		_, err = unix.Write(fd, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	await(t, fmt.Sprintf("process %d is there still", pid), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}

// await waits for a condition.
func await(t *testing.T, why string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal(why)
		}
	}
}

// descriptors is how many this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// noneLeft checks at the end of a test that all descriptors are closed that came in it.
func noneLeft(t *testing.T) {
	// The Go runtime takes descriptors of its own with the first file that it waits for.
	r, w, err := os.Pipe()
	if err := errors.Join(err, r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	t.Cleanup(func() {
		await(t, fmt.Sprintf("there were %d descriptors, and are more", before), func() bool { return descriptors(t) <= before })
	})
}

// here runs a keeper in this process, and returns its socket. What it keeps it was given by setUp.
func here(t *testing.T, uid int, setUp func(n aNode)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), socketName)
	f, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.FileListener(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, ln.(*net.UnixListener), uid) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if setUp != nil {
		n, _ := meet(t, path)
		setUp(n)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// meet connects to a keeper once the one before has been let go.
func meet(t *testing.T, path string) (aNode, map[string]string) {
	t.Helper()
	var n aNode
	await(t, "the keeper lets nobody in", func() bool {
		c, left, err := connect(path, time.Minute, os.Geteuid(), time.Now().Add(20*time.Second))
		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}
		if err == nil {
			n = aNode{Client: c, left: readAll(t, left)}
		}
		return err == nil
	})
	return n, n.left
}

// asOther runs f, which makes or opens a socket, as another user if it can, and returns the user that the other end must take for a stranger to this one's
// sockets: who is expected.
func asOther(t *testing.T, f func() error) (expected int) {
	t.Helper()
	if os.Geteuid() != 0 {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		return os.Geteuid() + 1
	}
	done := make(chan error)
	go func() {
		// The thread alone is of the other user, and ends with the goroutine because it is not unlocked.
		runtime.LockOSThread()
		const nobody = 65534
		if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); no != 0 {
			done <- no
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return 0
}
