//go:build !linux

package log

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// An otherFile is a File of a system on which the log writes through the page cache: it
// works there, and is meant for development.
type otherFile struct {
	*os.File
}

// openFile opens a regular file that exists.
func openFile(path string, a Access) (File, error) {
	if a.Direct {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNoDirect}
	}
	// The open of a pipe would wait for its other end, so its kind is asked before.
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("no regular file: %w", fs.ErrInvalid)}
	}
	flag := os.O_RDONLY
	if a.Write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return &otherFile{File: f}, nil
}

// makeFile makes a file of zeros. It is written, because these systems have no common way
// to set room aside.
func makeFile(path string, size int64, _, direct bool) error {
	if direct {
		return &fs.PathError{Op: "create", Path: path, Err: ErrNoDirect}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	err = writeZeros(func(p []byte, off int64) error {
		n, err := f.WriteAt(p, off)
		if err == nil && n != len(p) {
			err = shortWrite(path, n, len(p), off)
		}
		return err
	}, size)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// renameNew renames a file to a name that no file has.
func renameNew(from, to string) error { return checkedRename(from, to) }

// WriteAt writes all of p, and never makes the file longer.
func (f *otherFile) WriteAt(p []byte, off int64) (int, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if off < 0 || off > size || int64(len(p)) > size-off {
		return 0, outside("write", f.Name(), len(p), off, size)
	}
	return f.File.WriteAt(p, off)
}

// Truncate makes the file shorter.
func (f *otherFile) Truncate(size int64) error {
	now, err := f.Size()
	if err != nil {
		return err
	}
	if size < 0 || size > now {
		return outside("truncate", f.Name(), 0, size, now)
	}
	return f.File.Truncate(size)
}

// Size is the length of the file.
func (f *otherFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Block is what the file system is taken to write as a whole.
func (f *otherFile) Block() int { return pageBlock }

// CopiesOnWrite reports whether the file system of a path needs new room for bytes that are
// written over others. It is known on Linux alone.
func CopiesOnWrite(string) bool { return false }
