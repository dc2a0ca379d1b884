package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// A Dir is a target that is a directory.
type Dir struct{ path string }

// OpenDir opens a directory. With new it need not be there, only what is above it: the first Put makes it.
//
// Errors: ErrTarget: it is not there, or no directory.
func OpenDir(path string, new bool) (*Dir, error) {
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && new {
		info, err = os.Stat(filepath.Dir(path))
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrTarget, err)
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s is a file, or is to be in one, and a directory is needed", ErrTarget, path)
	}
	return &Dir{path}, nil
}

// String implements Target.
func (d *Dir) String() string { return d.path }

func (d *Dir) at(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// root opens the directory. Names below it are looked up so that no symbolic link leads out of it: what a stranger has put there is neither read nor written
// through. Its caller closes it. ErrNoObject: it is not there.
func (d *Dir) root() (*os.Root, error) {
	root, err := os.OpenRoot(d.path)
	return root, missing(err)
}

// Size implements Target.
func (d *Dir) Size(_ context.Context, name string) (int64, error) {
	root, err := d.root()
	if err != nil {
		return 0, err
	}
	defer root.Close()
	f, size, err := d.open(root, name)
	if err != nil {
		return 0, err
	}
	return size, f.Close()
}

// open opens a file of the directory, which is its caller's, and says how long it is. Nothing but a file is opened, and a pipe is not waited for.
//
// Errors: ErrNoObject; ErrTarget: it is no file, or stands behind a link that leads out of the directory.
func (d *Dir) open(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Lstat(filepath.FromSlash(name))
	if err == nil && !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%w: %s is no file", ErrTarget, d.at(name))
	}
	if err != nil {
		return nil, 0, d.lost(name, err)
	}
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, d.lost(name, err)
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // it has come meanwhile
		err = fmt.Errorf("%w: %s is no file", ErrTarget, d.at(name))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// lost is an error of a file, as callers know it.
func (d *Dir) lost(name string, err error) error {
	if err = missing(err); errors.Is(err, ErrNoObject) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrTarget, d.at(name), err)
}

// missing makes an ErrNoObject of a file that is not there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoObject
	}
	return err
}

// Same implements Target. A file that cannot be read to its end (its disk may be damaged there) is not the same.
func (d *Dir) Same(ctx context.Context, name string, data []byte) (there, same bool, err error) {
	root, err := d.root()
	if err == nil {
		defer root.Close()
		var f *os.File
		var size int64
		if f, size, err = d.open(root, name); err == nil {
			defer f.Close()
			return true, size == int64(len(data)) && sameBytes(ctx, f, data), ctx.Err()
		}
	}
	if errors.Is(err, ErrNoObject) {
		return false, false, nil
	}
	return false, false, err
}

// sameBytes says whether a file that is as long as data has these bytes. It reads on until the context ends.
func sameBytes(ctx context.Context, f io.Reader, data []byte) bool {
	buf := make([]byte, 256<<10)
	for len(data) > 0 && ctx.Err() == nil {
		b := buf[:min(len(buf), len(data))]
		if _, err := io.ReadFull(f, b); err != nil || !bytes.Equal(b, data[:len(b)]) {
			return false
		}
		data = data[len(b):]
	}
	return len(data) == 0
}

// Put implements Target. The file is written under another name, which begins with a dot, and renamed. Files and the directories that name them are
// synced, the file first, so that after a power cut too a manifest is there only with its pieces. Package renameio does the same, but follows links that
// lead out of the directory.
func (d *Dir) Put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Mkdir(d.path, 0o700); err == nil {
		err = syncDir(filepath.Dir(d.path))
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := d.root()
	if err != nil {
		return err
	}
	defer root.Close()
	dir := path.Dir(name)
	if err := makeDir(root, dir); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTarget, d.at(dir), err)
	}
	temp := path.Join(dir, "."+rand.Text())
	if err := writeFile(root, temp, data); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return syncIn(root, dir)
}

// makeDir makes a directory below the root, with those above it, each synced in the one that names it.
func makeDir(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	err := root.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(root, path.Dir(dir)); err == nil {
			err = root.Mkdir(dir, 0o700)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		_, err := root.Stat(dir) // not behind a link that leads out
		return err
	}
	if err != nil {
		return err
	}
	return syncIn(root, path.Dir(dir))
}

// writeFile writes a new file, and syncs it.
func writeFile(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncIn(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get implements Target.
func (d *Dir) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := d.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, size, err := d.open(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrTooLarge, d.at(name), size, most)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.at(name), err)
	}
	return b, nil
}

// List implements Target. Files that a run which was cut short has left half written (their names begin with a dot) are not listed.
func (d *Dir) List(ctx context.Context, prefix string, most int) (names []string, err error) {
	root, err := d.root()
	if errors.Is(err, ErrNoObject) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	from := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		from = prefix[:i]
	}
	err = fs.WalkDir(root.FS(), from, func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || e.IsDir() {
			return err
		}
		if strings.HasPrefix(name, prefix) && !strings.HasPrefix(e.Name(), ".") {
			if names = append(names, name); len(names) == most {
				return fs.SkipAll
			}
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	sort.Strings(names)
	return names, err
}
