package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/log"
)

// The log's directory over a file system of Pebble's kind: for file systems in memory, and
// those that fail or lose what was not synced on purpose. On the machine's own file system
// the log has a directory of its own, which goes past the page cache.

// cutSuffix ends the name of a file that takes the place of a longer one. A crash may leave
// it; the log never sees it.
const cutSuffix = ".cut"

const (
	logBlock  = 4096
	zeroChunk = 1 << 20
)

// A logFS is a log.Dir.
type logFS struct {
	fs  vfs.FS
	dir string
}

// openLogDir makes the directory at path if it is missing, for this user alone, and removes
// from it what a crash left of a Truncate.
func openLogDir(fsys vfs.FS, path string) (log.Dir, error) {
	if err := makeDir(fsys, path); err != nil {
		return nil, err
	}
	names, err := fsys.List(path)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, cutSuffix) {
			if err := fsys.Remove(fsys.PathJoin(path, name)); err != nil {
				return nil, err
			}
		}
	}
	return &logFS{fsys, path}, nil
}

func (d *logFS) path(name string) string { return d.fs.PathJoin(d.dir, name) }

// List returns the names of the log's files.
func (d *logFS) List() ([]string, error) {
	names, err := d.fs.List(d.dir)
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, cutSuffix) }), err
}

// absent returns an error if a name is taken. Between it and what follows nobody makes the
// file: a directory is one log's.
func (d *logFS) absent(op, name string) error {
	_, err := d.fs.Stat(d.path(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = fs.ErrExist
	}
	return &fs.PathError{Op: op, Path: d.path(name), Err: err}
}

// Create writes zeros even if they are not asked for: a vfs.FS can set no room aside.
func (d *logFS) Create(name string, size int64, _ bool, a log.Access) (log.File, error) {
	if a.Direct {
		return nil, &fs.PathError{Op: "create", Path: d.path(name), Err: log.ErrNoDirect}
	}
	if err := d.absent("create", name); err != nil {
		return nil, err
	}
	f, err := d.fs.Create(d.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, min(size, zeroChunk))
	for left := size; left > 0 && err == nil; left -= int64(len(zeros)) {
		// A file may change the bytes that it is given to write.
		clear(zeros)
		_, err = f.Write(zeros[:min(left, int64(len(zeros)))])
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return d.Open(name, a)
}

// Open opens a file that exists.
func (d *logFS) Open(name string, a log.Access) (log.File, error) {
	if a.Direct {
		return nil, &fs.PathError{Op: "open", Path: d.path(name), Err: log.ErrNoDirect}
	}
	f, err := d.open(name, a.Write)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "open", Path: d.path(name), Err: fmt.Errorf("no regular file: %w", fs.ErrInvalid)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &logFile{dir: d, name: name, write: a.Write, file: f, size: info.Size()}, nil
}

func (d *logFS) open(name string, write bool) (vfs.File, error) {
	if !write {
		return d.fs.Open(d.path(name))
	}
	// OpenReadWrite would make a file that is missing.
	if _, err := d.fs.Stat(d.path(name)); err != nil {
		return nil, err
	}
	return d.fs.OpenReadWrite(d.path(name), vfs.WriteCategoryUnspecified)
}

// Rename gives a file a name that no file has.
func (d *logFS) Rename(from, to string) error {
	if err := d.absent("rename", to); err != nil {
		return err
	}
	return d.fs.Rename(d.path(from), d.path(to))
}

// Remove takes a file away.
func (d *logFS) Remove(name string) error { return d.fs.Remove(d.path(name)) }

// Sync makes the names durable.
func (d *logFS) Sync() error { return syncDir(d.fs, d.dir) }

// A logFile is a log.File.
type logFile struct {
	dir   *logFS
	name  string
	write bool

	mu   sync.RWMutex // held for writing while Truncate changes what follows
	file vfs.File
	size int64
}

// ReadAt reads all of p.
func (f *logFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, err := f.file.ReadAt(p, off)
	if n == len(p) {
		err = nil
	}
	return n, err
}

// WriteAt writes all of p, within the file.
func (f *logFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if off < 0 || off > f.size || int64(len(p)) > f.size-off {
		return 0, &fs.PathError{Op: "write", Path: f.dir.path(f.name), Err: fmt.Errorf("%d bytes at %d of %d: %w", len(p), off, f.size, fs.ErrInvalid)}
	}
	n, err := f.file.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

// Sync makes durable what was written.
func (f *logFile) Sync() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.file.Sync()
}

// Truncate puts a shorter file in the place of this one, because a vfs.File cannot become
// shorter: after a crash one of the two is there, whole. Other open files of the same name
// keep the longer one, whose first bytes are the same.
func (f *logFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size == f.size {
		return nil
	}
	if !f.write || size < 0 || size > f.size {
		return &fs.PathError{Op: "truncate", Path: f.dir.path(f.name), Err: fs.ErrInvalid}
	}
	fsys, cut := f.dir.fs, f.dir.path(f.name)+cutSuffix
	out, err := fsys.Create(cut, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.NewSectionReader(f.file, 0, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(cut, f.dir.path(f.name)); err != nil {
		return err
	}
	if err := f.dir.Sync(); err != nil {
		return err
	}
	shorter, err := f.dir.open(f.name, true)
	if err != nil {
		return err
	}
	err = f.file.Close()
	f.file, f.size = shorter, size
	return err
}

// Size is the length in bytes.
func (f *logFile) Size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Block is what file systems write as a whole.
func (f *logFile) Block() int { return logBlock }

// Close closes the file.
func (f *logFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
