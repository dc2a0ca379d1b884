package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/google/renameio/v2"
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

// Size implements Target.
func (d *Dir) Size(_ context.Context, name string) (int64, error) {
	info, err := os.Lstat(d.at(name))
	if err != nil {
		return 0, missing(err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%w: %s is no file", ErrTarget, d.at(name))
	}
	return info.Size(), nil
}

// missing makes an ErrNoObject of a file that is not there.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNoObject
	}
	return err
}

// Put implements Target. Files and the directories that name them are synced, the file first, so that after a power cut too a manifest is there only with
// its pieces.
func (d *Dir) Put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := d.at(name)
	dir := filepath.Dir(path)
	for _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist); _, err = os.Stat(dir) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		for up := dir; up != d.path; {
			up = filepath.Dir(up)
			if err := syncDir(up); err != nil {
				return err
			}
		}
		if err := syncDir(filepath.Dir(d.path)); err != nil {
			return err
		}
	}
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir), renameio.WithStaticPermissions(0o600)); err != nil {
		return err
	}
	return syncDir(dir)
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
	size, err := d.Size(ctx, name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d", ErrTooLarge, d.at(name), size, most)
	}
	f, err := os.Open(d.at(name))
	if err != nil {
		return nil, missing(err)
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.at(name), err)
	}
	return b, nil
}

// List implements Target. Files that a run which was cut short has left half written (their names begin with a dot) are not listed.
func (d *Dir) List(ctx context.Context, prefix string, most int) (names []string, err error) {
	root := d.path
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		root = d.at(prefix[:i])
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(d.path, path)
		if name = filepath.ToSlash(name); err == nil && strings.HasPrefix(name, prefix) && !strings.HasPrefix(e.Name(), ".") {
			if names = append(names, name); len(names) == most {
				return fs.SkipAll
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	sort.Strings(names)
	return names, err
}
