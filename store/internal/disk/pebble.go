package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// pebbleOptions returns what a base (baseOptions) and a Pebble with a log (oldOptions) have in
// common. Each setting that is not Pebble's default says why.
func pebbleOptions(c Config, v *events) *pebble.Options {
	o := &pebble.Options{
		FS: c.FS,
		// The default is the oldest version Pebble can still write.
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             v,
		EventListener:      v.listener(),
		CacheSize:          c.CacheBytes, // default: 8 MiB
		// The tables of an ingest may all stand in L0; it waits at fewer (package tables).
		L0StopWritesThreshold:      24,
		MaxOpenFiles:               c.MaxOpenFiles,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	// Values from 1 KiB on live in blob files: a scan of keys alone is about
	// 90 times faster, a full compaction 4 times.
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled:               true,
			MinimumSize:           SeparateFrom,
			MaxBlobReferenceDepth: 10,
			RewriteMinimumAge:     time.Minute,
			TargetGarbageRatio:    0.2,
		}
	}
	return o
}

// separateFrom is the record size from which Pebble keeps values in blob files.
const SeparateFrom = 1024

// sizeMismatch is how Pebble says that a table has not the size that the manifest says. It
// does not mark that error as one of corruption.
const sizeMismatch = "object size mismatch"

// fileName finds what Pebble calls a file in an error text.
var fileName = regexp.MustCompile(`\b(?:\d{6,}\.(?:log|sst|blob)|file \d{6,}|MANIFEST-\d+|OPTIONS-\d+|marker\.[\w.-]+)`)

// fileNamed returns the file that an error of Pebble's names, or "".
func fileNamed(err error) string {
	return strings.TrimPrefix(fileName.FindString(err.Error()), "file ")
}

// pebbleCorrupt turns an error that Pebble calls corruption into ours. Pebble
// wraps it in lines of its own; the first says it all.
func pebbleCorrupt(err error) *base.CorruptError {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return base.Corrupt(fileNamed(err), text, err)
}

// logFiles returns the names of Pebble's logs: it does not say in which of
// them it met damage.
func logFiles(c Config) string {
	names, _ := c.FS.List(c.FS.PathJoin(c.Dir, dataDir))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	slices.Sort(names)
	return strings.Join(names, " or ")
}

// guard turns a panic out of Pebble into an error. It panics over a blob file
// whose end is damaged. Only calls into Pebble run under it.
func guard(err *error) {
	if r := recover(); r != nil {
		*err = &base.CorruptError{Detail: fmt.Sprintf("pebble panicked over a damaged file: %v", r)}
	}
}

// A fullError is ErrNoSpace at a start. That one's advice, to delete keys, is for
// a server that runs.
type fullError struct {
	err        error
	free, need uint64 // bytes; need 0: free is not known
}

// startBytes is about what a start writes: a manifest, the ledger, and the first segment of
// the log. It is for the operator's eyes; nothing is refused by it.
const startBytes = 1<<20 + 64<<20

// tellSpace completes a fullError in err with what the disk has and a start
// writes: an upgrade moves what Pebble's logs hold into tables.
func tellSpace(c Config, err error) {
	var full *fullError
	if !errors.As(err, &full) {
		return
	}
	free, ok := freeBytes(c.FS, c.Dir)
	if !ok {
		return
	}
	full.free, full.need = free, startBytes
	dir := c.FS.PathJoin(c.Dir, dataDir)
	names, _ := c.FS.List(dir)
	for _, name := range names {
		if info, err := c.FS.Stat(c.FS.PathJoin(dir, name)); err == nil && strings.HasSuffix(name, ".log") {
			full.need += uint64(info.Size())
		}
	}
}

func (e *fullError) Error() string {
	if e.need == 0 {
		return "no disk space left: " + e.err.Error()
	}
	return fmt.Sprintf("no disk space left: %d KiB are free, a start needs about %d KiB: %v", e.free>>10, e.need>>10, e.err)
}

func (e *fullError) Is(target error) bool { return target == base.ErrNoSpace }
func (e *fullError) Unwrap() error        { return e.err }

// openFault turns an error met while opening dir into an OpenError that says
// what it is and what to do.
func openFault(dir string, err error) error {
	if err == nil {
		return nil
	}
	var already *base.OpenError
	if errors.As(err, &already) {
		return err
	}
	err = logFault(err)
	e := &base.OpenError{Dir: dir, Err: err}
	switch {
	case errors.Is(err, base.ErrCorrupt):
		e.Hint = "restore a backup, or a copy of this file"
	case pebble.IsCorruptionError(err), strings.Contains(err.Error(), sizeMismatch):
		e.Err = pebbleCorrupt(err)
		e.Hint = "restore a backup, or a copy of this file"
	case errors.Is(err, fs.ErrPermission):
		e.Err = fmt.Errorf("%w: %w", base.ErrNoAccess, err)
		e.Hint = "give it to the user that runs the server"
	case errors.Is(err, syscall.ENOSPC):
		e.Err = &fullError{err: err}
		e.Hint = "free some on the disk of this directory, or move it to a larger one: every start writes, also where only gets are to be served"
	case errors.Is(err, syscall.EROFS):
		e.Err = fmt.Errorf("%w: %w", base.ErrReadOnlyDisk, err)
	case errors.Is(err, syscall.ENOTDIR):
		e.Err = fmt.Errorf("%w: %w", base.ErrNotDir, err)
	case errors.Is(err, fs.ErrNotExist) && isMkdir(err):
		e.Hint = "the directory cannot be made there: choose another data_dir"
	case errors.Is(err, fs.ErrNotExist):
		e.Err = &base.CorruptError{File: fileNamed(err), Detail: "missing", Err: err}
		e.Hint = "restore a backup, or the missing file"
	}
	return e
}

// logFault turns damage of the log into a CorruptError that names the file.
func logFault(err error) error {
	var damage *log.DamageError
	switch {
	case errors.Is(err, base.ErrCorrupt):
		return err
	case errors.As(err, &damage):
		file := logDir
		if damage.File != "" {
			file += "/" + damage.File
		}
		return base.Corrupt(file, damage.Error(), err)
	case errors.Is(err, log.ErrNoLog):
		return base.Corrupt(logDir, "the log of the store is missing", err)
	case errors.Is(err, log.ErrForeign):
		return base.Corrupt(logDir, "it is the log of another store", err)
	}
	return err
}

// isMkdir reports whether a directory could not be made. Then nothing is missing that
// had been there.
func isMkdir(err error) bool {
	pe := (*fs.PathError)(nil)
	return errors.As(err, &pe) && pe.Op == "mkdir"
}

// openPebble opens the database in dir. Two habits of Pebble's are turned into
// errors: it panics over some damaged files, and where it cannot write it
// tries again for ever, or calls Fatalf. Then the goroutine it runs on stays
// behind (stuck), with Pebble's lock on dir: the process has to end.
func openPebble(dir string, o *pebble.Options, f *base.Fence) (db *pebble.DB, stuck bool, err error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				opened <- result{err: &base.CorruptError{Detail: fmt.Sprintf("pebble panicked: %v", r)}}
			}
		}()
		db, err := pebble.Open(dir, o)
		opened <- result{db, err}
	}()
	select {
	case r := <-opened:
		return r.db, false, r.err
	case <-f.Down:
		return nil, true, f.Failed()
	}
}

// probeWrites tries whether files can be made in dir, because Pebble does not
// give up where they cannot.
func probeWrites(fsys vfs.FS, dir string) error {
	path := fsys.PathJoin(dir, probeFile)
	if err := writeFile(fsys, path, make([]byte, 4096)); err != nil {
		return err
	}
	return fsys.Remove(path)
}

// probeFile is what probeWrites makes, and is left only by a crash.
const probeFile = "PROBE"

// freeBytes returns what the file system of dir still has for us, or ok=false
// where that cannot be told (memory file systems).
func freeBytes(fsys vfs.FS, dir string) (n uint64, ok bool) {
	u, err := fsys.GetDiskUsage(dir)
	if err != nil {
		return 0, false
	}
	return u.AvailBytes, true
}
