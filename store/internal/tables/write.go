package tables

import (
	"slices"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Set sets a key. Keys have to rise strictly, because a table is written in
// order; one that does not rise is an OrderError, and the batch is lost.
func (t *Tables) Set(key, value []byte) error {
	return t.add(key, int64(len(value)), func(w *sstable.Writer) error { return w.Set(key, value) })
}

// Delete deletes a key, in the same order as Set. A tombstone is written whether
// the base has the key or not: it hides the key also from levels below.
func (t *Tables) Delete(key []byte) error {
	return t.add(key, 0, func(w *sstable.Writer) error { return w.Delete(key) })
}

// DeleteRange deletes what the base has from a key up to another. Both have to come after all
// ranges before it, and start after what stands in the tables before the one that is open;
// what the same batch sets is not deleted.
func (t *Tables) DeleteRange(start, end []byte) error {
	return t.into(func(w *sstable.Writer) error { return w.DeleteRange(start, end) })
}

// Cut ends the open table before the next key, whatever it has. A caller says so where another
// table stands in between, because no two tables of a batch may overlap.
func (t *Tables) Cut() { t.must = t.must || t.open != nil }

// Take adds a table of values to the batch, as it is. Its keys may not lie between those of a
// table of the batch. The file stays.
func (t *Tables) Take(path string) error {
	if t.over {
		return ErrOver
	}
	if t.err != nil {
		return t.err
	}
	// Pebble removes what it has taken, so it is given a name of its own.
	link := t.cfg.FS.PathJoin(t.cfg.Dir, t.cfg.FS.PathBase(path))
	if err := vfs.LinkOrCopy(t.cfg.FS, path, link); err != nil {
		return t.fail(&FileError{Op: "link", File: path, Err: err})
	}
	t.links = append(t.links, link)
	return nil
}

// CutHere says that a table may end before the next key. A caller says so
// between ranges that are compacted apart, so that few tables span two of them.
func (t *Tables) CutHere() { t.mayBe = true }

// add adds one key to the open table, or to the next.
func (t *Tables) add(key []byte, value int64, write func(*sstable.Writer) error) error {
	if t.over {
		return ErrOver
	}
	if t.err != nil {
		return t.err
	}
	if t.any && t.compare(key, t.last) <= 0 {
		return t.fail(&OrderError{Last: slices.Clone(t.last), Key: slices.Clone(key)})
	}
	if err := t.into(write); err != nil {
		return err
	}
	t.size += int64(len(key)) + value
	t.last, t.any, t.mayBe = append(t.last[:0], key...), true, false
	t.stats.Keys++
	return nil
}

// into writes into the open table, or into the next.
func (t *Tables) into(write func(*sstable.Writer) error) error {
	if t.over {
		return ErrOver
	}
	if t.err != nil {
		return t.err
	}
	if err := t.pace.failed(); err != nil {
		return t.fail(t.fileError("write", err))
	}
	if t.ends() {
		if err := t.finish(); err != nil {
			return err
		}
	}
	if t.open == nil {
		if err := t.begin(); err != nil {
			return err
		}
	}
	if err := write(t.open); err != nil {
		return t.fail(t.fileError("write", err))
	}
	return nil
}

// ends reports whether the open table ends before the next key.
func (t *Tables) ends() bool {
	if t.open == nil || t.must {
		return t.open != nil
	}
	if len(t.paths) >= t.cfg.MaxTables || t.cfg.Cuts {
		return false
	}
	return t.size >= largeTable*t.cfg.TableBytes || t.mayBe && t.size >= t.cfg.TableBytes
}

// begin opens the next table.
func (t *Tables) begin() error {
	path := t.cfg.FS.PathJoin(t.cfg.Dir, nameOf(len(t.paths)+1))
	t.paths = append(t.paths, path)
	f, err := t.cfg.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return t.fail(t.fileError("create", err))
	}
	// A table that ends well is synced by its writer; one that is given up need not be.
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: t.cfg.SyncEach, NoSyncOnClose: true})
	t.open = sstable.NewWriter(objstorageprovider.NewFileWritable(&pacedFile{File: f, pace: &t.pace}), t.format)
	t.size = 0
	return nil
}

// finish ends the open table. Its file is synced: the manifest will name it, and
// a manifest that names a file without its bytes is a base that does not open.
func (t *Tables) finish() error {
	w := t.open
	t.open, t.must = nil, false
	if err := w.Close(); err != nil {
		return t.fail(t.fileError("end", err))
	}
	meta, err := w.Metadata()
	if err != nil {
		return t.fail(t.fileError("end", err))
	}
	t.stats.Tables++
	t.stats.Bytes += int64(meta.Size)
	return nil
}

// fail keeps the first error: a batch that lacks a key must not be committed.
func (t *Tables) fail(err error) error {
	if t.err == nil {
		t.err = err
	}
	return t.err
}

// fileError is an error about the last table, or the directory before there is one.
func (t *Tables) fileError(op string, err error) error {
	file := t.cfg.Dir
	if len(t.paths) > 0 {
		file = t.paths[len(t.paths)-1]
	}
	return &FileError{Op: op, File: file, Err: err}
}
