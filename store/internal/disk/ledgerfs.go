package disk

import (
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/log"
)

// How the ledger is kept while the store runs: Pebble's file system goes
// through ledgerFS, which reads along what is written to manifests and logs.
//
// The order is what makes it safe to believe after a crash. A prefix enters
// the ledger only after it was synced, so a crash cannot make the ledger claim
// too much; a file leaves the ledger before it leaves the disk; and a manifest's
// sync returns to Pebble only when the ledger has it, so Pebble deletes nothing
// on the strength of a change that the ledger does not know.

// A ledger is the book while the store is open. Safe for concurrent use.
type ledger struct {
	c Config // with the file system below ledgerFS

	mu    sync.Mutex // one writer of LEDGER; guards all below
	files map[string]*ledgerEntry
	beat  uint64
	reach log.Position
	fresh map[string]bool // directories with files that the ledger never had
	last  []byte          // what LEDGER has
}

// A ledgerEntry is what is synced of one file.
type ledgerEntry struct {
	mu   sync.Mutex
	size int64
	sum  string // empty: nothing synced yet
}

// newLedger continues the ledger that was found at the start.
func newLedger(c Config, found ledgerText) *ledger {
	l := &ledger{c: c, files: make(map[string]*ledgerEntry), fresh: make(map[string]bool), beat: found.beat, reach: found.reach}
	for _, f := range found.lines {
		if followed(c.FS.PathBase(f.name)) && f.sum != noSum {
			l.files[f.name] = &ledgerEntry{size: f.size, sum: f.sum}
		}
	}
	return l
}

// admit takes in the manifest in force without a byte of it.
func (l *ledger) admit() error {
	dir := l.c.FS.PathJoin(l.c.Dir, dataDir)
	desc, err := pebble.Peek(dir, l.c.FS)
	if err == nil && desc.Exists {
		l.files[l.c.FS.PathBase(desc.ManifestFilename)] = &ledgerEntry{sum: sumText(xxh3.Hash(nil))}
	}
	return err
}

// followed says whether the ledger follows a file while it is written.
func followed(base string) bool {
	return strings.HasPrefix(base, "MANIFEST-") || strings.HasSuffix(base, ".log")
}

// write brings LEDGER up to date, if it is not.
func (l *ledger) write() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked()
}

func (l *ledger) writeLocked() error {
	text := ledgerText{state: ledgerRunning, beat: l.beat, reach: l.reach}
	for name, e := range l.files {
		e.mu.Lock()
		if e.sum != "" {
			text.lines = append(text.lines, ledgerLine{name: name, size: e.size, sum: e.sum})
		}
		e.mu.Unlock()
	}
	slices.SortFunc(text.lines, func(a, b ledgerLine) int { return strings.Compare(a.name, b.name) })
	b := text.encode()
	if string(b) == string(l.last) {
		return nil
	}
	// The names of new files must be as durable as the ledger that has them.
	for dir := range l.fresh {
		if err := syncDir(l.c.FS, dir); err != nil {
			return err
		}
	}
	if err := writeLedger(l.c, text); err != nil {
		return err
	}
	clear(l.fresh)
	l.last = b
	return nil
}

// raiseReach notes up to where the store's log is durable, and writes the ledger.
func (l *ledger) raiseReach(reach log.Position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reach = max(l.reach, reach)
	return l.writeLocked()
}

// reached returns up to where the log of the store is known to be durable.
func (l *ledger) reached() log.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reach
}

// drop takes a file out of the ledger, before it is removed.
func (l *ledger) drop(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files[name] == nil {
		return nil
	}
	delete(l.files, name)
	return l.writeLocked()
}

// follow begins with a file that was just created. Its first bytes count from
// their first sync on.
func (l *ledger) follow(path, name string, f vfs.File) vfs.File {
	e := &ledgerEntry{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[name] = e
	l.fresh[l.c.FS.PathDir(path)] = true
	return &ledgerWriter{File: f, ledger: l, entry: e, hash: xxh3.New(), manifest: !strings.HasSuffix(name, ".log")}
}

// A ledgerFS is the file system that Pebble is given.
type ledgerFS struct {
	vfs.FS
	ledger *ledger
}

// name returns what the ledger calls a file, if it follows it.
func (l *ledger) name(path string) (name string, ok bool) {
	base := l.c.FS.PathBase(path)
	if !followed(base) {
		return "", false
	}
	switch dir := l.c.FS.PathDir(path); dir {
	case l.c.FS.PathJoin(l.c.Dir, dataDir):
		return base, true
	case l.c.WALFailoverDir:
		return path, true
	}
	return "", false // a checkpoint's
}

// Create follows manifests and logs. One that was there before is gone.
func (fs *ledgerFS) Create(path string, category vfs.DiskWriteCategory) (vfs.File, error) {
	name, ok := fs.ledger.name(path)
	if !ok {
		return fs.FS.Create(path, category)
	}
	if err := fs.ledger.drop(name); err != nil {
		return nil, err
	}
	f, err := fs.FS.Create(path, category)
	if err != nil {
		return nil, err
	}
	return fs.ledger.follow(path, name, f), nil
}

// ReuseForWrite is how Pebble makes a new log out of an old one.
func (fs *ledgerFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if name, ok := fs.ledger.name(from); ok {
		if err := fs.ledger.drop(name); err != nil {
			return nil, err
		}
	}
	f, err := fs.FS.ReuseForWrite(from, to, category)
	if err != nil {
		return nil, err
	}
	if name, ok := fs.ledger.name(to); ok {
		return fs.ledger.follow(to, name, f), nil
	}
	return f, nil
}

// Remove takes a file out of the ledger first.
func (fs *ledgerFS) Remove(path string) error {
	if name, ok := fs.ledger.name(path); ok {
		if err := fs.ledger.drop(name); err != nil {
			return err
		}
	}
	return fs.FS.Remove(path)
}

// Rename likewise.
func (fs *ledgerFS) Rename(from, to string) error {
	if name, ok := fs.ledger.name(from); ok {
		if err := fs.ledger.drop(name); err != nil {
			return err
		}
	}
	return fs.FS.Rename(from, to)
}

// Unwrap returns the file system below.
func (fs *ledgerFS) Unwrap() vfs.FS { return fs.FS }

// A ledgerWriter reads along what Pebble writes to one file. Pebble writes and
// syncs a file from one goroutine at a time.
type ledgerWriter struct {
	vfs.File
	ledger   *ledger
	entry    *ledgerEntry
	hash     *xxh3.Hasher
	written  int64
	broken   bool // a write failed: what stands in the file is not known
	manifest bool
}

// Write writes and reads along.
func (w *ledgerWriter) Write(p []byte) (int, error) {
	// Before: the file may change the bytes it is given.
	_, _ = w.hash.Write(p) // never fails
	n, err := w.File.Write(p)
	if err != nil || n != len(p) {
		w.broken = true
	}
	w.written += int64(n)
	return n, err
}

// synced notes that all that was written is on the disk.
func (w *ledgerWriter) synced() error {
	if w.broken {
		return nil
	}
	w.entry.mu.Lock()
	w.entry.size, w.entry.sum = w.written, sumText(w.hash.Sum64())
	w.entry.mu.Unlock()
	if w.manifest {
		return w.ledger.write()
	}
	return nil
}

// Sync is the file's, and then the ledger's.
func (w *ledgerWriter) Sync() error {
	if err := w.File.Sync(); err != nil {
		return err
	}
	return w.synced()
}

// SyncData likewise.
func (w *ledgerWriter) SyncData() error {
	if err := w.File.SyncData(); err != nil {
		return err
	}
	return w.synced()
}

// SyncTo likewise, where it syncs all.
func (w *ledgerWriter) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = w.File.SyncTo(length)
	if err == nil && fullSync {
		err = w.synced()
	}
	return fullSync, err
}
