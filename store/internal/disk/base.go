package disk

import (
	"context"
	"errors"
	"io/fs"

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
	c.WALFailoverDir, c.MemTableBytes = "", baseMemTable
	o := pebbleOptions(c, v)
	tables.Options(o)
	return o
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

// Values begins a walk over the values that stand apart in the base.
func (b *Base) Values() (*ValueWalk, error) { return NewValueWalk(b.d.db) }

// clearLog removes a log that was never in force, and tables on their way. Whoever reads
// STORE and finds that the log has yet to be made calls it: what is there is left of a
// start that was cut short, and nobody was told anything of it.
func clearLog(c Config) error {
	for _, name := range []string{logDir, tablesDir} {
		if err := c.FS.RemoveAll(c.FS.PathJoin(c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDir(c.FS, c.Dir)
}

// Join joins the base with its log, which was opened and replayed: the facts of the log
// count before those of the base. It says whether the store may be served.
func (b *Base) Join(l FactLog) error { panic("to come") }

// MarkClean notes what a life leaves that ends cleanly. It comes before the last checkpoint,
// and Close, with the same end, behind it and behind the close of the log.
func (b *Base) MarkClean(end *End) error { panic("to come") }
