package tables

import (
	"context"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// ingest ingests one table past the package, as a Pebble user would.
func (w *world) ingest(pairs ...string) {
	w.Helper()
	f, err := w.cfg.FS.Create("one", vfs.WriteCategoryUnspecified)
	w.must(err)
	s := sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{TableFormat: w.db.TableFormat()})
	for i := 0; i < len(pairs); i += 2 {
		w.must(s.Set([]byte(pairs[i]), []byte(pairs[i+1])))
	}
	w.must(s.Close())
	w.must(w.db.Ingest(context.Background(), []string{"one"}))
}

// TestPebbleWithoutLog is what Pebble does when its log is off, measured: the
// rules of this package stand on it. When a later Pebble fails a row, the rule
// has to be looked at again.
func TestPebbleWithoutLog(t *testing.T) {
	lazy := func(o *pebble.Options) { o.Experimental.DisableIngestAsFlushable = func() bool { return false } }
	set := func(w *world) { w.must(w.db.Set([]byte("b"), []byte("2"), pebble.NoSync)) }
	for _, row := range []struct {
		name  string
		o     func(*pebble.Options)
		do    func(*world)
		after []string
	}{
		{"a synced commit is refused", nil, func(w *world) {
			if err := w.db.Set([]byte("b"), nil, pebble.Sync); err == nil {
				w.Error("it is not")
			}
		}, nil},
		{"an ingest into empty memtables is durable", lazy,
			func(w *world) { w.ingest("a", "1", "p", "1") }, []string{"a", "1", "p", "1"}},
		{"an ingest over a memtable is lost", lazy,
			func(w *world) { set(w); w.ingest("a", "1", "p", "1", "z", "1") }, nil},
		{"an ingest beside a memtable overtakes it", lazy,
			func(w *world) { set(w); w.ingest("c", "1", "d", "1") }, []string{"c", "1", "d", "1"}},
		{"an ingest that may not stay in memory flushes first", nil,
			func(w *world) { set(w); w.ingest("a", "1", "p", "1", "z", "1") }, []string{"a", "1", "b", "2", "p", "1", "z", "1"}},
		{"Close flushes nothing", nil,
			func(w *world) { set(w); w.must(w.db.Close()); w.db = nil }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			disk := crashfs.New()
			release := make(chan struct{})
			w, err := opened(t, errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if row.o != nil && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
					<-release // no flush ends before the crash
				}
				return nil
			})), row.o)
			w.must(err)
			row.do(w)
			c := crashed(t, disk)
			close(release)
			c.has(row.after...)
			w.must(c.db.Close())
			if w.db != nil {
				w.must(w.db.Close())
			}
		})
	}
	t.Run("Checkpoint has no memtable", func(t *testing.T) {
		w := newWorld(t, vfs.NewMem())
		set(w)
		w.must(w.db.Checkpoint("copy", pebble.WithFlushedWAL()))
		w.must(w.db.Close())
		db, err := pebble.Open("copy", w.o)
		w.must(err)
		w.db = db
		w.has()
		w.must(db.Close())
	})
}
