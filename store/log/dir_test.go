package log

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// diskDir is an empty directory on a disk: the tests' directory, or where that is memory,
// one below the working directory.
func diskDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if !onDisk(dir) {
		var err error
		if dir, err = os.MkdirTemp(".", "tmp-"); err != nil {
			t.Skipf("no directory on a disk: %v", err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	return dir
}

func openTestDir(t testing.TB) (Dir, string) {
	t.Helper()
	path := diskDir(t)
	d, err := OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d, path
}

// noDirect skips a test that needs direct access, and fails it where that must be there.
func noDirect(t testing.TB, err error) {
	t.Helper()
	if directExpected(diskDir(t)) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// createOr makes a file, and skips the test where the file system refuses direct access.
func createOr(t testing.TB, d Dir, name string, size int64, prewritten bool, a Access) File {
	t.Helper()
	f, err := d.Create(name, size, prewritten, a)
	if errors.Is(err, ErrNoDirect) {
		noDirect(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestAligned: the buffers of direct writes begin where they must, for every length.
func TestAligned(t *testing.T) {
	for _, block := range []int{1, 512, 4096, 64 << 10} {
		for _, n := range []int{0, 1, 511, 4096, 3 * 4096} {
			b := aligned(n, block)
			if len(b) != n || cap(b) != n || n%block == 0 && !isAligned(b, block) {
				t.Errorf("%d bytes aligned to %d: %d of %d", n, block, len(b), cap(b))
			}
			for _, c := range b {
				if c != 0 {
					t.Fatal("not zero")
				}
			}
		}
	}
	b := aligned(8192, 4096)
	if isAligned(b[1:4097], 4096) || isAligned(b[:4095], 4096) || !isAligned(b[4096:], 4096) {
		t.Error("isAligned takes what is not aligned")
	}
}

// TestDirFile writes and reads a file in every way in which the log opens one.
func TestDirFile(t *testing.T) {
	for name, c := range map[string]struct {
		prewritten bool
		a          Access
	}{
		"direct": {true, Access{Write: true, Direct: true}}, "direct, not written before": {false, Access{Write: true, Direct: true}},
		"buffered": {true, Access{Write: true}}, "buffered, not written before": {false, Access{Write: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d, path := openTestDir(t)
			const size = 3<<20 + 64<<10 // the last piece of prewriting is a short one
			f := createOr(t, d, "a.seg", size, c.prewritten, c.a)
			if n, err := f.Size(); n != size || err != nil {
				t.Fatalf("size %d, %v", n, err)
			}
			st, err := os.Stat(filepath.Join(path, "a.seg"))
			if err != nil || st.Size() != size || st.Mode().Perm() != fileMode {
				t.Fatalf("%v, %v", st, err)
			}
			if b := allocatedBytes(st); b < size {
				t.Errorf("%d bytes set aside for a file of %d", b, size)
			}
			block := f.Block()
			if block < minSector || block > maxBlock || block&(block-1) != 0 {
				t.Fatalf("a block of %d", block)
			}
			all := aligned(size, max(block, pageBlock))
			if n, err := f.ReadAt(all, 0); n != size || err != nil || !bytes.Equal(all, make([]byte, size)) {
				t.Fatalf("%d bytes of a new file, %v: not all zero", n, err)
			}
			p := aligned(2*pageBlock, max(block, pageBlock))
			for i := range p {
				p[i] = byte(i * 7)
			}
			if n, err := f.WriteAt(p, 4*pageBlock); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			if err := errors.Join(f.Sync(), d.Sync(), f.Close()); err != nil {
				t.Fatal(err)
			}
			if f, err = d.Open("a.seg", Access{Direct: c.a.Direct}); err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got := aligned(len(p), max(block, pageBlock))
			if n, err := f.ReadAt(got, 4*pageBlock); n != len(got) || err != nil || !bytes.Equal(got, p) {
				t.Fatalf("%d bytes, %v: not what was written", n, err)
			}
			if n, err := f.WriteAt(p, 0); !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EBADF) {
				t.Errorf("%d bytes written to a file that was opened for reading, %v", n, err)
			}
			if n, err := f.ReadAt(got, size-pageBlock); n != pageBlock || err != io.EOF {
				t.Errorf("%d bytes over the end, %v", n, err)
			}
			if n, err := f.ReadAt(got, 2*size); n != 0 || err != io.EOF {
				t.Errorf("%d bytes behind the end, %v", n, err)
			}
		})
	}
}

// TestDirBounds: an access that would make the file longer, or lies before it, is refused;
// so is one that is not aligned, before the kernel sees it.
func TestDirBounds(t *testing.T) {
	d, _ := openTestDir(t)
	f := createOr(t, d, "a", 8*pageBlock, false, Access{Write: true, Direct: true})
	b := aligned(2*pageBlock, maxBlock)
	for _, off := range []int64{-pageBlock, 7 * pageBlock, 8 * pageBlock, 1 << 40, 1<<63 - pageBlock} {
		if n, err := f.WriteAt(b, off); err == nil || n != 0 {
			t.Errorf("%d bytes written at %d", n, off)
		}
	}
	if block := f.Block(); block > 1 {
		if _, err := f.WriteAt(b[1:1+pageBlock], 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("write from an odd address: %v", err)
		}
		if _, err := f.WriteAt(b[:pageBlock], 1); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("write to an odd offset: %v", err)
		}
		if _, err := f.WriteAt(b[:pageBlock-1], 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("write of an odd length: %v", err)
		}
		if _, err := f.ReadAt(b[:pageBlock-1], 0); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("read of an odd length: %v", err)
		}
	}
	if err := f.Truncate(9 * pageBlock); err == nil {
		t.Error("truncated to more")
	}
	if err := errors.Join(f.Truncate(2*pageBlock), f.Sync()); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Size(); n != 2*pageBlock || err != nil {
		t.Errorf("size %d, %v", n, err)
	}
	if n, err := f.WriteAt(b, pageBlock); err == nil {
		t.Errorf("%d bytes written behind where it was truncated", n)
	}
}

// TestDirNames: what a directory does with names.
func TestDirNames(t *testing.T) {
	d, path := openTestDir(t)
	for _, name := range []string{"a", "b"} {
		if err := createOr(t, d, name, pageBlock, false, Access{Write: true}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Create("a", pageBlock, true, Access{Write: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
	if st, err := os.Stat(filepath.Join(path, "a")); err != nil || st.Size() != pageBlock {
		t.Errorf("a Create that failed took the file that was there: %v", err)
	}
	if err := d.Rename("a", "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("renamed to a name that a file has: %v", err)
	}
	if err := checkedRename(filepath.Join(path, "a"), filepath.Join(path, "b")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("renamed to a name that a file has, where the kernel does not help: %v", err)
	}
	if err := errors.Join(d.Rename("a", "c"), checkedRename(filepath.Join(path, "b"), filepath.Join(path, "d")), d.Sync()); err != nil {
		t.Fatal(err)
	}
	names, err := d.List()
	slices.Sort(names)
	if want := []string{"c", "d"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v; expected %v", names, err, want)
	}
	if err := d.Remove("c"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"remove": d.Remove("c"), "rename": d.Rename("c", "e"), "open": second(d.Open("c", Access{}))} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a file that is not there: %v", what, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../a", "a/b", "/etc/passwd", "a\x00b", `a\b`} {
		errs := []error{second(d.Open(name, Access{})), second(d.Create(name, pageBlock, false, Access{Write: true})), d.Remove(name), d.Rename("d", name), d.Rename(name, "e")}
		for i, err := range errs {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("name %q, call %d: %v", name, i, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestDirOpen: a directory is there, or is made for this user alone.
func TestDirOpen(t *testing.T) {
	path := filepath.Join(diskDir(t), "log")
	if _, err := OpenDir(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	for range 2 {
		if _, err := CreateDir(path); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != dirMode {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := CreateDir(filepath.Join(path, "not", "there")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory in one that is not there: %v", err)
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, fileMode); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(string) (Dir, error){OpenDir, CreateDir} {
		if _, err := open(file); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("a file as a directory: %v", err)
		}
	}
}

// TestDirHostile: what is no regular file is refused, and nobody waits for it.
func TestDirHostile(t *testing.T) {
	d, path := openTestDir(t)
	if err := os.Mkdir(filepath.Join(path, "dir"), dirMode); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "file"), make([]byte, 100), fileMode); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	if err := mkfifo(filepath.Join(path, "pipe")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "link", "pipe"} {
		for _, a := range []Access{{}, {Write: true}} {
			if f, err := d.Open(name, a); err == nil {
				t.Errorf("%s was opened as a file of the log: %v", name, f.Close())
			}
		}
	}
	// A length that is no multiple of a block is the end of the file to a direct reader.
	f, err := d.Open("file", Access{Direct: true})
	if errors.Is(err, ErrNoDirect) {
		noDirect(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.ReadAt(aligned(pageBlock, maxBlock), 0); n != 100 || err != io.EOF {
		t.Errorf("%d bytes of 100, %v", n, err)
	}
}

// TestDirNoRoom: a file for which there is no room is not made, and nothing is left of it.
func TestDirNoRoom(t *testing.T) {
	d, _ := openTestDir(t)
	f, err := d.Create("a", 1<<56, false, Access{Write: true})
	if err == nil {
		f.Close()
		t.Skip("there is room for 64 PiB")
	}
	if names, err := d.List(); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
	if !strings.Contains(err.Error(), "a: ") {
		t.Errorf("the error does not name the file: %v", err)
	}
}

// TestFileClosed: calls on a closed file are errors, and a close beside calls lets them end.
func TestFileClosed(t *testing.T) {
	d, _ := openTestDir(t)
	f := createOr(t, d, "a", 64*pageBlock, false, Access{Write: true})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			b := make([]byte, pageBlock)
			for {
				_, err := f.WriteAt(b, int64(i)*pageBlock)
				if err == nil {
					_, err = f.ReadAt(b, int64(i)*pageBlock)
				}
				if err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	for what, err := range map[string]error{"sync": f.Sync(), "truncate": f.Truncate(0), "close": f.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed file: %v", what, err)
		}
	}
}
