package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
)

// makeOld makes a store of format 2 with keys in tables and in Pebble's log, and returns
// them.
func makeOld(t *testing.T, c Config, clean bool) (keys []string, epoch uint16) {
	t.Helper()
	d := beginOld(t, c)
	put := func(key string) {
		putOld(t, d, key, key)
		keys = append(keys, key)
	}
	for i := range 20 {
		put(fmt.Sprintf("table %d", i))
	}
	if err := d.db.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		put(fmt.Sprintf("log %d", i))
	}
	put(strings.Repeat("large", SeparateFrom))
	if err := d.BoundClock(88); err != nil {
		t.Fatal(err)
	}
	d.Heartbeat()
	var end *End
	if clean {
		end = &End{Keys: []uint64{3, 4}, Clock: 99, Watched: true, Incarnation: 5, Newest: 6}
	}
	if err := d.Close(end); err != nil {
		t.Fatal(err)
	}
	return keys, d.Epoch()
}

// crashedOld is makeOld whose process was killed: Pebble has not closed its log. It returns
// what the disk has.
func crashedOld(t *testing.T, c Config) (mem *vfs.MemFS, keys []string, epoch uint16) {
	t.Helper()
	mem = vfs.NewCrashableMem()
	c.FS = mem
	d := beginOld(t, c)
	for i := range 20 {
		key := fmt.Sprint(i)
		putOld(t, d, key, key)
		keys = append(keys, key)
	}
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := d.Close(nil); err != nil {
		t.Fatal(err)
	}
	return clone, keys, d.Epoch()
}

// TestUpgradeClean: an upgraded store has all that the old one had, its clean stop too; and
// from then on it is one of format 3, which older programs refuse.
func TestUpgradeClean(t *testing.T) {
	for _, failover := range []string{"", "/aside"} {
		mem := vfs.NewCrashableMem()
		c := testConfig(mem)
		c.WALFailoverDir = failover
		keys, epoch := makeOld(t, c, true)
		l, fresh, err := begin(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := wantKeys(l.Disk, keys); err != nil {
			t.Error(err)
		}
		incarnation, newest, err := l.Watched()
		if fresh || !l.Clean() || l.Epoch() != epoch+1 || l.ClockBound() != 99 || !slices.Equal(l.Keys(), []uint64{3, 4}) || incarnation != 5 || newest != 6 || err != nil {
			t.Errorf("fresh %v, clean %v, epoch %d after %d, clock %d, keys %v, watched %d %d, %v",
				fresh, l.Clean(), l.Epoch(), epoch, l.ClockBound(), l.Keys(), incarnation, newest, err)
		}
		if f, err := readFacts(l.db); f.clean != nil || err != nil {
			t.Errorf("the base tells of a clean stop while the store is served, %v", err)
		}
		id := l.ID()
		if err := l.crash(); err != nil {
			t.Fatal(err)
		}

		old := c
		old.Own = false
		d := New(old, base.NewFence(old.WithDefaults().Logger, func(error) {}), new(base.Counters))
		_, _, err = d.Open()
		if !errors.Is(err, base.ErrFormatVersion) || !strings.Contains(d.OpenFault(err).Error(), "run the kvserver that wrote it, or a newer one") {
			t.Errorf("a program for format 2 says %v", err)
		}

		c.WALFailoverDir = "" // it matters for the upgrade alone
		l = mustBegin(t, c)
		if l.Clean() || l.Epoch() != epoch+2 || l.ID() != id || l.ClockBound() != 99 {
			t.Errorf("after a crash: clean %v, epoch %d, clock %d", l.Clean(), l.Epoch(), l.ClockBound())
		}
		format, reader, _, _, err := l.ForTests().Written()
		if format != ownFormat || reader != ownFormat || err != nil {
			t.Errorf("format %d, reader %d, %v", format, reader, err)
		}
		if err := errors.Join(wantKeys(l.Disk, keys), l.stop(&End{Keys: []uint64{3, 4}})); err != nil {
			t.Error(err)
		}
	}
}

// noOldLog returns an error if STORE says format 3 and Pebble's log is still there: an
// older log than the tables could be replayed over them. Pebble makes an empty one.
func noOldLog(fsys vfs.FS, failover string) error {
	text, err := readFile(fsys, "/store/STORE")
	if err != nil || !strings.Contains(string(text), "reader 3\n") {
		return err
	}
	for _, dir := range []string{"/store/data", failover} {
		if dir == "" {
			continue
		}
		names, err := fsys.List(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			if info, err := fsys.Stat(fsys.PathJoin(dir, name)); err != nil || strings.HasSuffix(name, ".log") && info.Size() > 11 {
				return fmt.Errorf("STORE says format 3, and %s has %d bytes, %w", name, info.Size(), err)
			}
		}
	}
	return nil
}

// TestUpgradeRefused: what keeps an old store from being served is found before it is
// changed.
func TestUpgradeRefused(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := testConfig(mem)
	makeOld(t, c, true)
	c.Shards++
	if _, _, err := begin(c); !errors.Is(err, base.ErrShardCount) {
		t.Errorf("another number of shards: %v", err)
	}
	c.Shards--
	d := beginOld(t, c) // it was not touched
	if err := d.Refuse(Refusal{Cause: "another one", Other: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(&End{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := begin(c); !errors.Is(err, ErrRefused) {
		t.Errorf("a refused store: %v", err)
	}
	text, err := readFile(mem, "/store/STORE")
	if err != nil || !strings.Contains(string(text), "reader 2\n") {
		t.Errorf("STORE says %q, %v", text, err)
	}
	c.EpochAbove = d.Epoch()
	l := mustBegin(t, c)
	if l.Epoch() <= d.Epoch() {
		t.Errorf("epoch %d, %d was accepted to be gone", l.Epoch(), d.Epoch())
	}
	c.EpochAbove = 0
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	if err := mustBegin(t, c).crash(); err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeCrash cuts the power before every call of an upgrade, of stores that ended
// cleanly or not; then again in the middle of the start behind it. All data is there, the
// clean stop is believed exactly where it was one, and the epoch rises.
func TestUpgradeCrash(t *testing.T) {
	r := seed(t)
	for _, kind := range []string{"clean", "closed", "crashed"} {
		for _, failover := range []string{"", "/aside"} {
			mem := vfs.NewCrashableMem()
			c := testConfig(mem)
			c.WALFailoverDir = failover
			var keys []string
			var epoch uint16
			if kind == "crashed" {
				mem, keys, epoch = crashedOld(t, c)
			} else {
				keys, epoch = makeOld(t, c, kind == "clean")
			}
			var least atomic.Int64 // epoch that must be behind the store
			least.Store(int64(epoch))
			survive := func(what string, fsys vfs.FS, least int) {
				c := c
				c.FS = fsys
				l, fresh, err := begin(c)
				if err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
					return
				}
				if err := wantKeys(l.Disk, keys); err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
				}
				begun := least > int(epoch)
				if fresh || int(l.Epoch()) <= least || l.Clean() && (kind != "clean" || begun) {
					t.Errorf("%s, crash before %s: fresh %v, clean %v, epoch %d after %d", kind, what, fresh, l.Clean(), l.Epoch(), least)
				}
				if err := l.crash(); err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
				}
			}
			crashes := 0
			c.FS = cuts(mem, r, *everyFlag, &least, func(what string, disk *vfs.MemFS, least int) {
				crashes++
				if err := noOldLog(disk, failover); err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
				}
				if r.IntN(4) != 0 {
					survive(what, disk, least)
					return
				}
				// The start behind the crash crashes, too.
				var again *vfs.MemFS
				stop := r.IntN(40)
				second := c
				second.FS = cuts(disk, r, 1, new(atomic.Int64), func(_ string, disk *vfs.MemFS, _ int) {
					if stop--; stop == 0 {
						again = disk
					}
				})
				l, _, err := begin(second)
				if err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
					return
				}
				if err := l.crash(); err != nil {
					t.Errorf("%s, crash before %s: %v", kind, what, err)
				}
				if again != nil {
					survive(what+", and again", again, least)
				}
			})
			l, _, err := begin(c)
			if err != nil {
				t.Fatal(err)
			}
			if l.Clean() != (kind == "clean") {
				t.Errorf("a store that was %s is clean: %v", kind, l.Clean())
			}
			least.Add(1)
			if err := errors.Join(l.BoundClock(1000), l.crash()); err != nil {
				t.Fatal(err)
			}
			if crashes == 0 {
				t.Error("there were no power cuts")
			}
			t.Logf("%s: %d crashes", kind, crashes)
		}
	}
}

// TestUpgradeRemovesLogs: they are gone durably, in both directories, and nothing else is.
func TestUpgradeRemovesLogs(t *testing.T) {
	mem := vfs.NewCrashableMem()
	c := testConfig(mem)
	c.WALFailoverDir = "/aside"
	for _, dir := range []string{"/store", "/store/data", "/aside"} {
		if err := makeDir(mem, dir); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"000001.log", "000002-001.log", "000003.sst"} {
			if err := writeFile(mem, mem.PathJoin(dir, name), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := removeLogs(c); err != nil {
		t.Fatal(err)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	for _, dir := range []string{"/store/data", "/aside"} {
		if names, err := after.List(dir); err != nil || !slices.Equal(names, []string{"000003.sst"}) {
			t.Errorf("%s has %q, %v", dir, names, err)
		}
	}
	if names, err := after.List("/store"); err != nil || len(names) != 4 {
		t.Errorf("/store has %q, %v", names, err)
	}
}

// TestConvertCopy: a copy of a base whose log was left behind gets a log of its own, in
// which the position of the other means nothing; its epoch is not lost with it.
func TestConvertCopy(t *testing.T) {
	mem := vfs.NewMem()
	c := testConfig(mem)
	l := mustBegin(t, c)
	into, err := l.Tables(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	place := make([]byte, positionLen)
	binary.LittleEndian.PutUint64(place, 1<<40)
	binary.LittleEndian.PutUint64(place[positionEpoch:], 40)
	key := metaKey(metaPosition)
	rec := make([]byte, RecordSize(len(place), false))
	PutRecord(rec, key, Record{Value: place})
	if err := into.Set(key, rec); err != nil {
		t.Fatal(err)
	}
	if _, err := into.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Heartbeat()
	if err := l.BoundClock(77); err != nil { // in the log alone
		t.Fatal(err)
	}
	id := l.identity
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	id.unlogged = true
	if err := writeIdentity(c, id); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if l.ClockBound() != 0 {
		t.Error("the log that was left behind counts")
	}
	if l.Clean() {
		t.Error("a copy of a store that was served says that it ended cleanly")
	}
	raw, err := l.Place()
	if raw != nil || err != nil || l.Epoch() != 41 || l.NewLog() {
		t.Errorf("position %x, epoch %d, log still new %v, %v", raw, l.Epoch(), l.NewLog(), err)
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
	l = mustBegin(t, c)
	if l.Epoch() != 42 {
		t.Errorf("epoch %d after 41", l.Epoch())
	}
	if err := l.crash(); err != nil {
		t.Fatal(err)
	}
}
