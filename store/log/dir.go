package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rdmakv/rdmakv/store/log/internal/format"
)

const (
	fileMode = 0o600 // a log has what clients wrote, in clear
	dirMode  = 0o700

	// prewritePiece is what Create writes at once: larger pieces take no less time, and
	// keep a disk from other writes for longer.
	prewritePiece = 1 << 20
	// pageBlock is a file's Block where nothing else is known: what kernels write as a
	// whole, and a multiple of what disks do.
	pageBlock = 4096
	minSector = 512 // bounds of what a kernel may say of the alignment of direct access
	maxBlock  = format.MaxBlock
)

// OpenDir returns the directory at a path of the file system, which must exist.
func OpenDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("log: directory %s: %w", path, err)
	}
	st, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("log: %s is no directory: %w", abs, syscall.ENOTDIR)
	}
	return &osDir{path: abs}, nil
}

// CreateDir is OpenDir for a directory that may be missing: then it is made, for this user
// alone, and is durable in the one above it, which must exist.
func CreateDir(path string) (Dir, error) {
	if err := os.Mkdir(path, dirMode); err == nil {
		if err := syncDir(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("log: %w", err)
	}
	return OpenDir(path)
}

// An osDir is a Dir of the operating system. It holds no descriptor, so nobody must close
// it. What differs between systems is in dir_linux.go and dir_other.go.
type osDir struct{ path string }

// join returns the path of a file of the directory. A name cannot lead out of it.
func (d *osDir) join(op, name string) (string, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(d.path, name), nil
}

// List reads the directory's names.
func (d *osDir) List() ([]string, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Create makes a file. If it fails there is none: a file that is half made would be found
// by the next start.
func (d *osDir) Create(name string, size int64, prewritten bool, a Access) (File, error) {
	path, err := d.join("create", name)
	if err != nil {
		return nil, err
	}
	if err := makeFile(path, size, prewritten, a.Direct); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			err = errors.Join(err, removeMade(path))
		}
		return nil, err
	}
	a.Write = true
	f, err := openFile(path, a)
	if err != nil {
		return nil, errors.Join(err, removeMade(path))
	}
	return f, nil
}

// removeMade takes away a file that was not finished, if it is there at all.
func removeMade(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Open opens a file that exists, and is a regular one: another kind of file might let its
// reader wait for ever.
func (d *osDir) Open(name string, a Access) (File, error) {
	path, err := d.join("open", name)
	if err != nil {
		return nil, err
	}
	return openFile(path, a)
}

// Rename gives a file a name that no file has; it never takes another file's place.
func (d *osDir) Rename(from, to string) error {
	a, err := d.join("rename", from)
	if err != nil {
		return err
	}
	b, err := d.join("rename", to)
	if err != nil {
		return err
	}
	if err := renameNew(a, b); err != nil {
		return &os.LinkError{Op: "rename", Old: a, New: b, Err: err}
	}
	return nil
}

// checkedRename is a rename for systems that have none which refuses to overwrite. Nobody
// else makes files in the directory of a log, so looking before is enough.
func checkedRename(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return syscall.EEXIST
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

// Remove takes a file away.
func (d *osDir) Remove(name string) error {
	path, err := d.join("remove", name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// Sync makes the directory's names durable.
func (d *osDir) Sync() error { return syncDir(d.path) }

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeZeros writes size bytes of zeros in pieces, by writes that are not synced. The
// buffer is good for direct writes, and the last piece is whole blocks if size is.
func writeZeros(write func(p []byte, off int64) error, size int64) error {
	zeros := aligned(prewritePiece, maxBlock)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if err := write(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// shortWrite is the error of a write that took a part of its bytes. It is not completed:
// the log does not know what a disk that behaves so has kept.
func shortWrite(path string, n, want int, off int64) error {
	return &fs.PathError{Op: "write", Path: path, Err: fmt.Errorf("%d of %d bytes at offset %d were taken: %w", n, want, off, io.ErrShortWrite)}
}

// outside is the error of an access that would leave the file.
func outside(op, path string, n int, off, size int64) error {
	return &fs.PathError{Op: op, Path: path, Err: fmt.Errorf("%d bytes at offset %d of a file of %d: %w", n, off, size, fs.ErrInvalid)}
}
