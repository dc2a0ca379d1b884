// Package wholefile keeps small files that a crash leaves whole: in their old form or in their new one. A file is
// written under another name first, and takes its place when all of it is durable:
//
//	NAME.new: write, sync ──▶ rename to NAME ──▶ sync the directory
//
// Two calls for one name must not run at the same time, because both would write NAME.new.
package wholefile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Read returns the first most+1 bytes of a file: who gets more than most has a file that is too large. Errors:
// fs.ErrNotExist, those of the file system.
func Read(fsys vfs.FS, path string, most int) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// Replace writes a file anew: after a crash the file is whole in its new form or whole in its old one, and once
// Replace has returned nil it is in its new one. After an error it is in either.
func Replace(fsys vfs.FS, dir, name string, content []byte) error {
	fresh := name + ".new"
	if err := Write(fsys, fsys.PathJoin(dir, fresh), content); err != nil {
		return err
	}
	return Install(fsys, dir, fresh, name)
}

// Write makes the content of a file durable. Its name is durable when Install has given it the one under which it is
// to be found: until then a crash may take the file away.
func Write(fsys vfs.FS, path string, content []byte) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Clone(content)) // a vfs.File may overwrite what it is given, and content stays the caller's
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Install gives a file that was written another name, durably. The file that had this name is gone then.
func Install(fsys vfs.FS, dir, from, name string) error {
	if err := fsys.Rename(fsys.PathJoin(dir, from), fsys.PathJoin(dir, name)); err != nil {
		return err
	}
	return SyncDir(fsys, dir)
}

// Remove takes a file away, durably. One that is not there is no error.
func Remove(fsys vfs.FS, dir, name string) error {
	if err := fsys.Remove(fsys.PathJoin(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return SyncDir(fsys, dir)
}

// SyncDir makes the names in a directory durable.
func SyncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
