package disk

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble answers some errors of the file system by a panic on a goroutine of
// its own, with locks held: a directory that cannot be synced, a log that
// cannot be created or ended, a blob file that cannot be finished; and when it
// fails to open, goroutines that it started meet what is closed already. stopFS
// sees these errors first and does what Pebble's Fatalf does: it fences the
// store with the file's name and the disk's reason, and does not return. What
// Pebble copes with (a table for which there is no room: it tries again, and
// puts are refused meanwhile) passes.

// A stopFS is the outermost of the file systems that Pebble is given.
type stopFS struct {
	vfs.FS
	events   *events
	failover bool // logs have a second directory: Pebble copes with the first
}

// stop fences the store over an error and never returns; nil passes.
func (fs *stopFS) stop(op, path string, err error) {
	if err != nil {
		fs.events.Fatalf("%s of %s: %w", op, fs.FS.PathBase(path), err)
	}
}

// vital says whether Pebble does not cope with an error of writing this file.
func (fs *stopFS) vital(path string) bool {
	return strings.HasSuffix(path, ".blob") || strings.HasSuffix(path, ".log") && !fs.failover || fs.events.fence.Opening.Load()
}

// Create stops where Pebble would panic.
func (fs *stopFS) Create(path string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(path, category)
	if fs.vital(path) {
		fs.stop("create", path, err)
	}
	return fs.watch(f, path, err)
}

// ReuseForWrite likewise.
func (fs *stopFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, category)
	if fs.vital(to) {
		fs.stop("reuse", to, err)
	}
	return fs.watch(f, to, err)
}

// watch has an eye on what is written to a file.
func (fs *stopFS) watch(f vfs.File, path string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &stopFile{File: f, fs: fs, path: path}, nil
}

// OpenDir likewise: a directory is opened to be synced.
func (fs *stopFS) OpenDir(path string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &stopFile{File: f, fs: fs, path: path, dir: true}, nil
}

// Rename is among the last calls of Pebble's start, when goroutines of it run.
func (fs *stopFS) Rename(from, to string) error {
	err := fs.FS.Rename(from, to)
	if fs.events.fence.Opening.Load() {
		fs.stop("rename", from, err)
	}
	return err
}

// List likewise.
func (fs *stopFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	if fs.events.fence.Opening.Load() {
		fs.stop("list", dir, err)
	}
	return names, err
}

// Unwrap returns the file system below.
func (fs *stopFS) Unwrap() vfs.FS { return fs.FS }

// A stopFile is a file that is written, or a directory.
type stopFile struct {
	vfs.File
	fs   *stopFS
	path string
	dir  bool
}

func (f *stopFile) stop(op string, err error) {
	if err != nil && (f.dir || f.fs.vital(f.path)) {
		f.fs.stop(op, f.path, err)
	}
}

func (f *stopFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.stop("write", err)
	return n, err
}

func (f *stopFile) Sync() error {
	err := f.File.Sync()
	f.stop("sync", err)
	return err
}

func (f *stopFile) SyncData() error {
	err := f.File.SyncData()
	f.stop("sync", err)
	return err
}

func (f *stopFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	f.stop("sync", err)
	return full, err
}

// Close likewise: an error may be that of an earlier write.
func (f *stopFile) Close() error {
	err := f.File.Close()
	f.stop("close", err)
	return err
}
