package log

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const tmpfsMagic = unix.TMPFS_MAGIC

// onDisk reports whether a directory is on a disk, and not in memory.
func onDisk(path string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return err == nil && st.Type != tmpfsMagic && st.Type != unix.RAMFS_MAGIC
}

// directExpected reports whether a path is on a file system that has direct access, so that
// a test that finds none must fail.
func directExpected(path string) bool {
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	return err == nil && (st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC)
}

// allocatedBytes is the room that a file has.
func allocatedBytes(st os.FileInfo) int64 {
	return st.Sys().(*syscall.Stat_t).Blocks * 512
}

func mkfifo(path string) error { return unix.Mkfifo(path, fileMode) }

// TestMemoryFileSystem: a file system in memory refuses direct access, or takes it and does
// nothing; the log must live with both, so both are errors of no other kind.
func TestMemoryFileSystem(t *testing.T) {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != tmpfsMagic {
		t.Skip("no tmpfs at " + shm)
	}
	path, err := os.MkdirTemp(shm, "rdmakv-log-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(path)
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("a", 1<<20, true, Access{Write: true, Direct: true})
	if errors.Is(err, ErrNoDirect) {
		if names, err := d.List(); err != nil || len(names) > 0 {
			t.Errorf("%v is left of a file that was refused, %v", names, err)
		}
	} else if err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = d.Create("b", 1<<20, true, Access{Write: true}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(second(f.WriteAt(make([]byte, 100), 5)), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if CopiesOnWrite(path) || CopiesOnWrite(filepath.Join(path, "not there")) {
		t.Error("tmpfs copies on write")
	}
}

// TestShortWrite: a write of which the kernel takes a part is an error that says how much,
// and is not completed by a second one.
func TestShortWrite(t *testing.T) {
	d, path := openTestDir(t)
	f, err := d.Create("a", 4*pageBlock, true, Access{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A limit on the size of files stops a write in its middle. It is the process's, so
	// no other test of this package may run beside this one.
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 2*pageBlock + 100, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	n, err := f.WriteAt(make([]byte, 2*pageBlock), pageBlock)
	if e := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, io.ErrShortWrite) || n != 0 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	want := "write " + filepath.Join(path, "a") + ": 4196 of 8192 bytes at offset 4096 were taken: short write"
	if err.Error() != want {
		t.Errorf("%q, expected %q", err, want)
	}
}

// TestNotAllocated: where a file system does not set room aside, the file is written.
func TestNotAllocated(t *testing.T) {
	var pieces []int64
	if err := writeZeros(func(p []byte, off int64) error {
		if !isAligned(p, maxBlock) {
			t.Errorf("%d bytes that are not aligned", len(p))
		}
		pieces = append(pieces, off, int64(len(p)))
		return nil
	}, 2*prewritePiece+maxBlock); err != nil {
		t.Fatal(err)
	}
	want := []int64{0, prewritePiece, prewritePiece, prewritePiece, 2 * prewritePiece, maxBlock}
	if len(pieces) != len(want) {
		t.Fatal(pieces)
	}
	for i := range want {
		if pieces[i] != want[i] {
			t.Fatal(pieces)
		}
	}
	if err := writeZeros(func([]byte, int64) error { return unix.ENOSPC }, 1); err != unix.ENOSPC {
		t.Error(err)
	}
}
