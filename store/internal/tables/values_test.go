package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// A stored is a value that was put into a table of values.
type stored struct {
	at    *base.Bytes
	value []byte
}

// TestValues: on the machine's file system, where files are written past the page cache if it can
// be, and in memory, values are read by their offset while their table is open, when it is whole,
// and when it was cut; and by their keys when the base has taken the table, whose file may go then.
func TestValues(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"machine": vfs.Default, "memory": vfs.NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := "/"
			if fs == vfs.Default {
				dir = t.TempDir()
			}
			o := &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}}
			Options(o)
			db, err := pebble.Open(fs.PathJoin(dir, "data"), o)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			cfg := ValuesConfig{FS: fs, Options: o, Dir: fs.PathJoin(dir, "values"), Prefix: []byte("v"), Limit: 12 << 20}
			v, err := OpenValues(cfg)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			var list []stored
			put := func(n int) {
				value := make([]byte, n)
				for i := 0; i < n; i += 511 {
					value[i] = byte(rng.Uint32())
				}
				at, err := v.Put(value, xxh3.Hash(value))
				if err != nil {
					t.Fatal(err)
				}
				v.Used(at, uint64(len(list)+1))
				list = append(list, stored{at, value})
			}
			read := func(v *Values) {
				t.Helper()
				for i, s := range list {
					b := make([]byte, len(s.value))
					if err := v.Read(s.at, b); err != nil || !bytes.Equal(b, s.value) {
						t.Fatalf("value %d, %+v: %v", i, *s.at, err)
					}
				}
			}
			for _, n := range []int{64 << 10, 4095, 4096, 1 << 20, 9 << 20, 5000, 64<<10 + 1, 3 << 20, 20 << 20, 300_000} {
				put(n)
				if rng.IntN(2) == 0 {
					continue
				}
				var wg sync.WaitGroup
				for _, s := range list {
					wg.Go(func() {
						if err := v.Flush(s.at); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				read(v)
			}
			ingest(t, db, o, v, fs.PathJoin(dir, "tables"), len(list))
			for i, s := range list {
				b, closer, err := db.Get(ValueKey(nil, cfg.Prefix, s.at.Table, s.at.Number))
				if err != nil || !bytes.Equal(b, s.value) {
					t.Fatalf("value %d in the base: %d bytes, %v", i, len(b), err)
				}
				if err := closer.Close(); err != nil {
					t.Fatal(err)
				}
			}
			read(v)
			v.Forget(uint64(len(list)+1), uint64(len(list)+1))
			if names, err := fs.List(cfg.Dir); err != nil || len(names) > 0 || v.Waiting() != 0 {
				t.Errorf("%q is left, %d bytes wait, %v", names, v.Waiting(), err)
			}

			// Another life finds what this one has not sealed.
			list = nil
			put(100_000)
			put(7 << 20)
			if err := v.Flush(list[1].at); err != nil {
				t.Fatal(err)
			}
			cfg.Next = v.First()
			v.Close()
			if v, err = OpenValues(cfg); err != nil {
				t.Fatal(err)
			}
			read(v)
			if v.Ingestible(list[0].at.Table) || v.First() <= list[0].at.Table || len(v.Seal()) != 0 {
				t.Errorf("a table that was cut counts as whole, or its number is given out again: %d", v.First())
			}
			if err := v.Found(list[0].at, 5); err != nil {
				t.Fatal(err)
			}
			if v.Forget(5, 5) {
				t.Error("a file is said to stay for a reader, and the base lacks its record")
			}
			read(v)
			if !v.Forget(5, 6) {
				t.Error("a file stays for a reader, and nobody is told")
			}
			read(v)
			if v.Waiting() != 0 {
				t.Errorf("%d bytes wait of a table that was copied", v.Waiting())
			}
			if v.Forget(6, 6) {
				t.Error("a file is said to stay that went")
			}
			err = v.Read(list[0].at, make([]byte, len(list[0].value)))
			if !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("a file that went: %v", err)
			}
			if err := v.Found(list[0].at, 5); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("a file that went is found: %v", err)
			}
		})
	}
}

// ingest has the base take all tables that are sealed.
func ingest(t *testing.T, db *pebble.DB, o *pebble.Options, v *Values, dir string, values int) {
	t.Helper()
	b, err := Begin(context.Background(), db, Config{FS: o.FS, Options: o, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Set([]byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	sealed := v.Seal()
	if len(sealed) < 3 {
		t.Fatalf("%d tables", len(sealed))
	}
	for _, s := range sealed {
		if err := b.Take(s.Path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	v.Taken(sealed)
	n := 0
	for _, s := range sealed {
		count, known := v.Count(s.Number)
		if !known {
			t.Errorf("table %d is not known", s.Number)
		}
		n += count
	}
	if n != values || v.Waiting() != 0 {
		t.Errorf("%d values of %d, %d bytes wait", n, values, v.Waiting())
	}
	for level, m := range db.Metrics().Levels {
		if tables := len(sealed); level == 6 && m.TablesCount < int64(tables) {
			t.Errorf("level 6 has %d tables, want %d at least: %s", m.TablesCount, tables, fmt.Sprint(db.Metrics()))
		}
	}
}
