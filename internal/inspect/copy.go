package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/control"
	"github.com/rdmakv/rdmakv/store"
)

// Scope says which stores of a node a backup is of.
type Scope uint8

const (
	Undecided Scope = iota // an error if there is more than the node's own
	MainOnly               // the node's own keys
	All                    // the spaces of tenants, too
)

// Backup copies the store in dir to dest, which must not exist. A running server
// goes on serving meanwhile; a stopped store is locked. Every record of the copy is
// verified. Progress goes to out, in lines. The spaces of tenants are stores of
// their own below dir, and are copied below dest if scope says so: each copy is one
// state of its store, but not all of them are of the same moment.
func Backup(ctx context.Context, out io.Writer, dir, dest string, scope Scope) error {
	if err := apart(dir, dest); err != nil {
		return err
	}
	found := spacesIn(dir)
	if len(found) > 0 && scope == Undecided {
		return fmt.Errorf("%s has %d tenant spaces beside its own keys (%s ...): give --all to back them up too, or --main-only to leave them out",
			dir, len(found), filepath.Base(found[0]))
	}
	if scope == All {
		if err := newDir(dest); err != nil {
			return err
		}
		for _, space := range found {
			fmt.Fprintf(out, "tenant space %s:\n", filepath.Base(space))
			if err := backupOne(ctx, out, space, below(dest, space)); err != nil {
				return fmt.Errorf("tenant space %s: %w", filepath.Base(space), err)
			}
		}
		return backupInto(ctx, out, dir, dest)
	}
	if err := backupOne(ctx, out, dir, dest); err != nil {
		return err
	}
	noteSpaces(out, dir)
	return nil
}

// backupOne copies one store to a directory of its own.
func backupOne(ctx context.Context, out io.Writer, dir, dest string) error {
	if err := newDir(dest); err != nil {
		return err
	}
	return backupInto(ctx, out, dir, dest)
}

// backupInto copies one store to a directory that is there and empty. A running
// server makes the copy consistent; a stopped store is locked meanwhile.
func backupInto(ctx context.Context, out io.Writer, dir, dest string) error {
	from, release, err := control.Backup(ctx, dir)
	switch {
	case errors.Is(err, control.ErrNotRunning):
		fmt.Fprintf(out, "no server runs on %s: copying the stopped store\n", dir)
		if release, err = store.LockStopped(dir, store.InspectOptions{}); err != nil {
			return err
		}
		from = dir
	case err != nil:
		return err
	}
	err = copyStore(ctx, out, from, dest, true)
	if err = errors.Join(err, release()); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return verify(ctx, out, dest)
}

// Restore makes a new store in dir out of the backup in src, which is verified
// before. dir must not exist, or be empty. The copy has a new id. Spaces of tenants
// in the backup are restored with it, before the node's own store: a restore that
// is cut short leaves no store.
func Restore(ctx context.Context, out io.Writer, src, dir string) error {
	if err := apart(src, dir); err != nil {
		return err
	}
	if err := newDir(dir); err != nil {
		return err
	}
	for _, space := range spacesIn(src) {
		fmt.Fprintf(out, "tenant space %s:\n", filepath.Base(space))
		to := below(dir, space)
		err := newDir(to)
		if err == nil {
			err = restoreInto(ctx, out, space, to)
		}
		if err != nil {
			return fmt.Errorf("tenant space %s: %w", filepath.Base(space), err)
		}
	}
	return restoreInto(ctx, out, src, dir)
}

// restoreInto restores one store into a directory that is there and empty.
func restoreInto(ctx context.Context, out io.Writer, src, dir string) error {
	if err := verify(ctx, out, src); err != nil {
		return err
	}
	id, err := os.ReadFile(filepath.Join(src, "STORE"))
	if err != nil {
		return err
	}
	release, err := store.LockStopped(src, store.InspectOptions{})
	if err != nil {
		return err
	}
	// Until Adopt has written a STORE, the copy is no store: so it never has the id
	// of the old one, also if this process is killed here.
	err = copyStore(ctx, out, src, dir, false)
	if err = errors.Join(err, release()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	newID, err := store.Adopt(dir, store.InspectOptions{}, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "restored as store %x\n", newID)
	return verify(ctx, out, dir)
}

// newDir makes a directory, or finds an empty one.
func newDir(dir string) error {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o700)
	}
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%s is not empty: it holds %s", dir, names[0].Name())
	}
	return err
}

// apart refuses a copy inside the directory of the store, because the store might
// take its files for its own.
func apart(dir, dest string) error {
	store, err := os.Stat(dir)
	if err != nil {
		return nil // the code that opens it reports that
	}
	at, err := filepath.Abs(dest)
	if err != nil {
		return err
	}
	for {
		if info, err := os.Stat(at); err == nil && os.SameFile(info, store) {
			return fmt.Errorf("%s lies inside the store in %s: choose a directory elsewhere", dest, dir)
		}
		up := filepath.Dir(at)
		if real, err := filepath.EvalSymlinks(at); err == nil {
			up = filepath.Dir(real)
		}
		if up == at {
			return nil
		}
		at = up
	}
}

// verify reads every record of a store.
func verify(ctx context.Context, out io.Writer, dir string) error {
	if err := checkOne(ctx, io.Discard, out, dir); err != nil {
		return fmt.Errorf("verifying %s: %w", dir, err)
	}
	return nil
}

// progress prints a line now and then.
type progress struct {
	out  io.Writer
	last time.Time
}

// every is the time between two lines.
const every = time.Second

func (p *progress) say(format string, args ...any) {
	if now := time.Now(); now.Sub(p.last) >= every {
		p.last = now
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// copyStore copies the files of a store and makes them durable. STORE, which makes
// it a store, comes last, or not at all if the copy is not whole. If copyStore
// fails it removes what it has copied.
func copyStore(ctx context.Context, out io.Writer, from, to string, whole bool) (err error) {
	names, sizes, err := store.BackupFiles(from, store.InspectOptions{})
	if err != nil {
		return err
	}
	dirs, err := makeDirs(to, names)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, name := range append(names, dirs...) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(to, name)))
		}
	}()
	var total, done int64
	for _, n := range sizes {
		total += n
	}
	p := progress{out: out, last: time.Now()}
	for _, name := range names {
		if name == "STORE" {
			for _, dir := range dirs {
				if err := syncDir(filepath.Join(to, dir)); err != nil {
					return err
				}
			}
			if !whole {
				break
			}
		}
		err := copyFile(ctx, filepath.Join(from, name), filepath.Join(to, name), func(n int64) {
			done += n
			p.say("copied %d of %d MiB", done>>20, total>>20)
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "copied %d files, %d bytes\n", len(names), done)
	return errors.Join(syncDir(to), syncDir(filepath.Dir(filepath.Clean(to))))
}

// makeDirs makes the directories in which files are to stand, and returns their names.
func makeDirs(to string, files []string) (dirs []string, err error) {
	for _, name := range files {
		dir := filepath.Dir(name)
		if dir == "." || slices.Contains(dirs, dir) {
			continue
		}
		if err := os.Mkdir(filepath.Join(to, dir), 0o700); err != nil {
			return dirs, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// copyFile copies one file and syncs it. ctx ends it between pieces.
func copyFile(ctx context.Context, from, to string, note func(int64)) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if err = ctx.Err(); err != nil {
			break
		}
		var n int64
		n, err = io.CopyN(dst, src, 4<<20)
		note(n)
	}
	if err == io.EOF {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Check verifies a stopped store from end to end: the ledger, every file, every
// record, its own facts. A summary goes to w, progress to out. Damage that it
// finds is a *DamagedError.
func Check(ctx context.Context, w, out io.Writer, dir string) error {
	noteSpaces(out, dir)
	return checkOne(ctx, w, out, dir)
}

// checkOne checks one store; w gets the summary, out the progress.
func checkOne(ctx context.Context, w, out io.Writer, dir string) error {
	p := progress{out: out, last: time.Now()}
	var keys, bytes uint64
	return run(ctx, w, dir, Options{}, func(e store.InspectEntry) {
		keys++
		bytes += uint64(e.DiskLen)
		if keys%1024 == 0 {
			p.say("checked %d keys, %d MiB, shard %d", keys, bytes>>20, e.Shard)
		}
	})
}

// noteSpaces says which stores of tenants lie below a node's data directory:
// each is a store of its own, that no command for the node's own keys touches.
// Without this note an operator would learn of them only in a restore.
func noteSpaces(out io.Writer, dir string) {
	for _, space := range spacesIn(dir) {
		fmt.Fprintf(out, "not among them: the keys of tenant space %s; they are a store of their own: %s\n", filepath.Base(space), space)
	}
}

// spacesIn are the directories of those stores.
func spacesIn(dir string) (spaces []string) {
	entries, err := os.ReadDir(filepath.Join(dir, "tenants"))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		space := filepath.Join(dir, "tenants", e.Name())
		if _, err := os.Stat(filepath.Join(space, "STORE")); err == nil {
			spaces = append(spaces, space)
		}
	}
	return spaces
}

// below is where a space lies below another node's directory.
func below(dir, space string) string { return filepath.Join(dir, "tenants", filepath.Base(space)) }
