package disk

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A store of format 3 is a base and a log. The base is a Pebble without a log of its own:
// what it has comes by ingests of tables, one for each checkpoint. The few records that
// are written otherwise, when a base is created or converted, are flushed at once, because
// an ingest needs empty memtables.

// A Base is what a Disk is for the log that stands over it.
type Base struct{ d *Disk }

// baseMemTable is enough for the records of kind meta.
const baseMemTable = 1 << 20

// baseOptions returns the options of the base of a store that has its own log.
func baseOptions(c Config, v *events) *pebble.Options {
	o := pebbleOptions(c, v)
	o.MemTableSize = baseMemTable
	tables.Options(o)
	// No directory has a log of Pebble's that matters, also not the one that the options
	// of a store before its upgrade name: what was in it is in tables.
	o.Unsafe.AllowMissingWALDirs = true
	return o
}

// open opens the base of the directory that was entered, and creates or upgrades it.
func (b *Base) open(created bool) (err error) {
	d := b.d
	c := d.c
	if !created && d.identity.format < logFormat {
		c.Logger.Info("upgrade of the store begins: behind it older programs refuse the directory", "dir", c.Dir, "from_format", d.identity.format, "to_format", formatVersion)
		if err := b.upgrade(); err != nil {
			return err
		}
		c.Logger.Info("upgrade of the store: what its old log had is in the base", "dir", c.Dir)
	}
	if b.NewLog() {
		if err := clearLog(c); err != nil {
			return err
		}
	}
	if _, err = d.openLedger(created); err != nil {
		return err
	}
	if !created && d.identity.format < formatVersion {
		// From here on the log may lead to tables of values, which an older program does not know.
		d.identity.format, d.identity.reader = formatVersion, formatVersion
		if err := writeIdentity(c, d.identity); err != nil {
			return err
		}
		c.Logger.Info("the store has another format from now on: older programs refuse the directory", "dir", c.Dir, "format", formatVersion)
	}
	if err := probeWrites(c.FS, c.Dir); err != nil {
		return err
	}
	if err := clearIncoming(c); err != nil {
		return err
	}
	d.fence.Opening.Store(true)
	d.options = baseOptions(c, d.events)
	d.options.FS = &stopFS{FS: &ledgerFS{FS: c.FS, ledger: d.ledger}, events: d.events}
	d.db, d.stuck, err = openPebble(c.FS.PathJoin(c.Dir, dataDir), d.options, d.fence)
	if err != nil {
		return err
	}
	switch {
	case created:
		err = d.fenceable(b.create)
	case b.NewLog():
		err = d.fenceable(b.convert)
	}
	if err != nil {
		return err
	}
	if d.facts, err = readFacts(d.db); err != nil {
		return err
	}
	if err := d.facts.check(c); err != nil {
		return err
	}
	if err := checkBlobs(d.db, c); err != nil {
		return err
	}
	return d.facts.belongs(d.identity)
}

// create writes the first keys of a new store.
func (b *Base) create() error {
	batch := b.d.db.NewBatch()
	defer batch.Close()
	return b.commit(batch, setFirst(batch, b.d.identity))
}

// NewLog reports whether the store has no log yet: it was created, upgraded or restored.
// Then the log may be made; otherwise one that is missing is damage.
func (b *Base) NewLog() bool { return b.d.identity.unlogged }

// LogDir returns the directory of the log. It is made if it is missing.
func (b *Base) LogDir() (log.Dir, error) {
	path := b.d.c.FS.PathJoin(b.d.c.Dir, logDir)
	if b.d.c.FS == vfs.Default {
		return log.CreateDir(path)
	}
	return openLogDir(b.d.c.FS, path)
}

// Reach returns up to where the log was durable, as the ledger says; 0: it does not know.
func (b *Base) Reach() log.Position {
	if b.d.NewLog() {
		return 0
	}
	return b.d.ledger.reached()
}

// Tables begins an ingest into the base, of rate bytes a second at most.
func (b *Base) Tables(ctx context.Context, rate int64) (*tables.Tables, error) {
	return tables.Begin(ctx, b.d.db, tables.Config{
		FS: b.d.c.FS, Options: b.d.options, Dir: b.d.c.FS.PathJoin(b.d.c.Dir, tablesDir), Rate: rate, Down: b.d.fence.Down,
	})
}

// Incoming begins an ingest that takes the place of a group's keys, of rate bytes a second at most. It stands in a
// directory of its own, so it may be made beside checkpoints; its Commit may not run beside theirs. Its tables end where the caller cuts them.
func (b *Base) Incoming(ctx context.Context, group uint64, rate int64) (*tables.Tables, error) {
	fs := b.d.c.FS
	dir := fs.PathJoin(b.d.c.Dir, tablesDir, incomingName+strconv.FormatUint(group, 10))
	return tables.Begin(ctx, b.d.db, tables.Config{FS: fs, Options: b.d.options, Dir: dir, Rate: rate, SyncEach: incomingSync, Cuts: true, Down: b.d.fence.Down})
}

// incomingSync is how much of what takes the place of a group's keys is written between syncs. While a piece is written the disk is given the next one, so it has
// twice as much to do at most, which a sync of the log has to wait for: 1 MiB, as much as may come at once after a rest anyway. With
// pieces of 128 KiB, as checkpoints have, a replica comes as fast as a busy disk answers for such a piece, however high the rate is (docs/decisions/2026-11-30-live-change.md).
const incomingSync = 512 << 10

// incomingName begins the names of these directories.
const incomingName = "group."

// clearIncoming removes what a crash has left of such ingests.
func clearIncoming(c Config) error {
	names, err := c.FS.List(c.FS.PathJoin(c.Dir, tablesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, incomingName) {
			err = errors.Join(err, c.FS.RemoveAll(c.FS.PathJoin(c.Dir, tablesDir, name)))
		}
	}
	return err
}

// ValueTables opens the tables of values, which the log leads to; each is finished with so many
// bytes. A table of values is never
// numbered as one that the base has.
func (b *Base) ValueTables(limit int64) (*tables.Values, error) {
	newest, err := newestTable(b.d.db)
	if err != nil {
		return nil, err
	}
	mark, err := b.ValuesMark()
	if err != nil {
		return nil, err
	}
	newest = max(newest, mark.Table)
	v, err := tables.OpenValues(tables.ValuesConfig{
		FS: b.d.c.FS, Options: b.d.options, Dir: b.d.c.FS.PathJoin(b.d.c.Dir, valuesDir), Prefix: BytesPrefix(), Next: newest + 1, Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	return v, syncDir(b.d.c.FS, b.d.c.Dir)
}

// newestTable returns the largest number of a table of values of which a base has anything.
func newestTable(db pebble.Reader) (n uint64, err error) {
	lower, upper := KindBounds(StoreShard, KindBytes)
	it, err := recordsOf(db, lower, upper)
	if err != nil {
		return 0, err
	}
	if it.iter.Last() {
		if table, _, ok := parseBytesKey(it.Key()); ok {
			n = table
		}
	}
	return n, it.Close()
}

// Values begins a walk over the values that stand apart in the base.
func (b *Base) Values() (*ValueWalk, error) { return NewValueWalk(b.d.db) }

// OpenLogDir returns the directory of the log of a stopped store, to look at. It changes
// nothing. fsys may be nil: the machine's.
func OpenLogDir(dir string, fsys vfs.FS) (log.Dir, error) {
	c := Config{Dir: dir, FS: fsys}.WithDefaults()
	path := c.FS.PathJoin(c.Dir, logDir)
	if c.FS == vfs.Default {
		return log.OpenDir(path)
	}
	_, err := c.FS.Stat(path)
	return &logFS{c.FS, path}, err
}

// clearLog removes a log that was never in force, and tables on their way. Whoever reads
// STORE and finds that the log has yet to be made calls it: what is there is left of a
// start that was cut short, and nobody was told anything of it.
func clearLog(c Config) error {
	for _, name := range []string{logDir, tablesDir, valuesDir} {
		if err := c.FS.RemoveAll(c.FS.PathJoin(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(c.FS, c.Dir)
}
