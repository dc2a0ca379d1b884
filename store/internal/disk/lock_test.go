package disk

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lingeringFS is a directory whose last server is still being taken apart: its
// lock is refused so many times.
type lingeringFS struct {
	vfs.FS
	refusals int
	err      error
	tries    int
}

func (f *lingeringFS) Lock(name string) (io.Closer, error) {
	if f.tries++; f.tries <= f.refusals {
		return nil, f.err
	}
	return f.FS.Lock(name)
}

// TestLockPatience: a start outlasts the lock of a server that was killed, and
// does not wait where waiting cannot help.
func TestLockPatience(t *testing.T) {
	f := &lingeringFS{FS: vfs.NewMem(), refusals: 3, err: syscall.EAGAIN}
	lock, err := takeLock(f, "LOCK")
	if err != nil || f.tries != 4 {
		t.Fatalf("%v after %d tries, want the lock at the fourth", err, f.tries)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	f = &lingeringFS{FS: vfs.NewMem(), refusals: 3, err: syscall.EACCES}
	if _, err := takeLock(f, "LOCK"); !errors.Is(err, syscall.EACCES) || f.tries != 1 {
		t.Errorf("%v after %d tries, want EACCES at the first", err, f.tries)
	}
}
