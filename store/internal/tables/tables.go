// Package tables changes a base by one ingest of tables, and by nothing else.
//
// A base is a Pebble without a log of its own. What it has after a crash is
// what its manifest names, so a change has to come as tables that the manifest
// names all at once:
//
//	Begin -> Set, Delete in rising order of keys -> Commit
//	              |                                  |
//	         files in Config.Dir, paced, synced   one Ingest: after it, and after
//	                                              every crash, all or nothing
//
// A key of the caller's says up to where the base goes. It is set like others,
// and so is right at every moment.
package tables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options sets what a base needs beside the options of the store.
func Options(o *pebble.Options) {
	// The store has a log. A second one would write every byte twice, and what
	// came by it would not be at the position that the base says.
	o.DisableWAL = true
	// Pebble keeps an ingest that overlaps a memtable in memory, and returns. It
	// relies on its log for that, and does not look whether there is one: the
	// next crash would lose what Commit called durable.
	o.Experimental.DisableIngestAsFlushable = func() bool { return true }
}

// A Config is how tables get into a base.
type Config struct {
	FS      vfs.FS          // the file system of the base
	Options *pebble.Options // what the base was opened with: tables are made alike
	// Dir is a directory on the same file system, for tables on their way. Begin
	// makes it, and removes from it what a crash left of earlier batches.
	Dir        string
	Rate       int64           // bytes a second to the disk; 0: no bound
	Burst      int64           // bytes at once after a rest; 0: 1 MiB
	SyncEach   int             // bytes between syncs, each of which waits for the one before; 0: 128 KiB
	Sublevels  int             // Commit waits while L0 has so many; 0: 8
	TableBytes int64           // of keys and values: no table ends with less, the last excepted; 0: 1 MiB
	MaxTables  int             // the last of so many takes all that is left; 0: 32
	Cuts       bool            // tables end where Cut says, and nowhere else: ranges are deleted in which a table may not end
	Down       <-chan struct{} // closed when Pebble's logger was told Fatalf: nothing that Pebble holds is waited for
	// Now and Sleep are the clock, and are called on any goroutine. nil: the real one.
	Now   func() time.Time
	Sleep func(context.Context, time.Duration) error
}

// Defaults of a Config, and sizes that follow from nothing else.
const (
	defaultBurst      = 1 << 20
	defaultSublevels  = 8
	defaultTableBytes = 1 << 20
	defaultMaxTables  = 32
	// largeTable is how many times TableBytes a table may grow where the caller
	// does not say that it may end.
	largeTable = 16
	// A sync of a whole table would hold up those of the log.
	defaultSyncEach = 128 << 10
)

// defaults returns c with what is left out.
func (c Config) defaults() Config {
	if c.Burst <= 0 {
		c.Burst = defaultBurst
	}
	if c.SyncEach <= 0 {
		c.SyncEach = defaultSyncEach
	}
	if c.Sublevels <= 0 {
		c.Sublevels = defaultSublevels
	}
	if c.TableBytes <= 0 {
		c.TableBytes = defaultTableBytes
	}
	if c.MaxTables <= 0 {
		c.MaxTables = defaultMaxTables
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Sleep == nil {
		c.Sleep = sleep
	}
	return c
}

// Tables is a batch on its way into a base. There is one at a time in a directory, and one Commit at a time for a base;
// one goroutine uses it.
type Tables struct {
	db      *pebble.DB
	cfg     Config
	format  sstable.WriterOptions
	compare func(a, b []byte) int
	pace    pacer

	open  *sstable.Writer // nil: the next key begins a table
	size  int64           // bytes of keys and values in the open table
	paths []string        // all tables, the open one included
	links []string        // of tables of values, which come in as they are
	last  []byte          // the last key
	any   bool            // there is a last key: the empty key is one
	mayBe bool            // the open table may end before the next key
	must  bool            // it does
	err   error           // the first error: nothing is committed after it
	over  bool            // Commit or Abort was called
	stats Stats
}

// Begin begins a batch. ctx ends also what Set and Delete wait for.
func Begin(ctx context.Context, db *pebble.DB, cfg Config) (*Tables, error) {
	cfg = cfg.defaults()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := empty(db, cfg.Down); err != nil {
		return nil, err
	}
	if err := clear(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	o := cfg.Options.Clone()
	o.EnsureDefaults()
	return &Tables{
		db: db, cfg: cfg,
		// Tables come in at L0 or below it. Level 0 writes what every level reads.
		format:  o.MakeWriterOptions(0, db.TableFormat()),
		compare: o.Comparer.Compare,
		pace:    pacer{ctx: ctx, rate: cfg.Rate, burst: cfg.Burst, left: cfg.Burst, at: cfg.Now(), now: cfg.Now, sleep: cfg.Sleep},
	}, nil
}

// ours matches the names of the files that this package makes.
var ours = regexp.MustCompile(`^(\d{6,}\.table|\d{6,}\.values)$`)

// nameOf returns the name of the table with a number.
func nameOf(n int) string { return fmt.Sprintf("%06d.table", n) }

// clear makes dir, for nobody else to read, and removes what a crash left there of earlier batches. Files
// with other names stay: a wrong directory costs nothing.
func clear(fsys vfs.FS, dir string) error {
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return &FileError{Op: "make", File: dir, Err: err}
	}
	names, err := fsys.List(dir)
	if err != nil {
		return &FileError{Op: "list", File: dir, Err: err}
	}
	var paths []string
	for _, name := range names {
		if ours.MatchString(name) {
			paths = append(paths, fsys.PathJoin(dir, name))
		}
	}
	return remove(fsys, paths)
}

// remove removes files, all that it can. It returns the first error.
func remove(fsys vfs.FS, paths []string) error {
	var first error
	for _, path := range paths {
		if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && first == nil {
			first = &FileError{Op: "remove", File: path, Err: err}
		}
	}
	return first
}
