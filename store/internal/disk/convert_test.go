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
	"github.com/rdmakv/rdmakv/test/crashfs"
	"github.com/rdmakv/rdmakv/test/oldstores"
)

// TestUpgradeClean: an upgraded store has all that the old one had, its clean stop too; and
// from then on it is one of format 4, which older programs refuse.
func TestUpgradeClean(t *testing.T) {
	for _, name := range servedOld {
		_, c, list := unpackOld(t, name)
		l, fresh, err := begin(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := wantOld(l.Disk, list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		keys := uint64(0)
		for _, n := range l.Keys() {
			keys += n
		}
		incarnation, newest, err := l.Watched()
		if fresh || l.Clean() != list.Clean || l.Epoch() != list.Epoch+1 || list.Clean && keys != uint64(len(list.Keys)) ||
			incarnation != list.Incarnation || uint64(newest) != list.Newest || err != nil {
			t.Errorf("%s: fresh %v, clean %v, epoch %d after %d, %d keys, watched %d %d, %v",
				name, fresh, l.Clean(), l.Epoch(), list.Epoch, keys, incarnation, newest, err)
		}
		clock := l.ClockBound()
		if least := uint64(list.Now().UnixMicro()); list.Format > 1 && (clock < least || clock > least+10e6) || list.Format == 1 && clock != 0 {
			t.Errorf("%s: bound of the clock %d, its clock was at %d", name, clock, least)
		}
		if f, err := readFacts(l.db); f.clean != nil || err != nil {
			t.Errorf("%s: the base tells of a clean stop while the store is served, %v", name, err)
		}
		if err := l.crash(); err != nil {
			t.Fatal(err)
		}

		c.WALFailoverDir = "" // it matters for the upgrade alone
		l = mustBegin(t, c)
		if l.Clean() || l.Epoch() != list.Epoch+2 || l.ClockBound() != clock {
			t.Errorf("%s, after a crash: clean %v, epoch %d, clock %d", name, l.Clean(), l.Epoch(), l.ClockBound())
		}
		format, reader, _, _, err := l.ForTests().Written()
		text, fault := readFile(c.FS, "/store/STORE")
		if format != 4 || reader != 4 || !strings.Contains(string(text), "format 4\nreader 4\n") || err != nil || fault != nil {
			t.Errorf("%s: format %d, reader %d, STORE says %q, %v, %v", name, format, reader, text, err, fault)
		}
		if err := errors.Join(wantOld(l.Disk, list), l.stop(&End{Keys: make([]uint64, c.Shards)})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// servedOld are the stored stores that may be served.
var servedOld = slices.DeleteFunc(slices.Clone(oldstores.Names), func(name string) bool { return strings.HasSuffix(name, "refused") })

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
	mem, c, list := unpackOld(t, "format2-refused")
	c.Shards++
	if _, _, err := begin(c); !errors.Is(err, base.ErrShardCount) {
		t.Errorf("another number of shards: %v", err)
	}
	c.Shards--
	for range 2 {
		if _, _, err := begin(c); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), list.Refused) {
			t.Errorf("a refused store: %v", err)
		}
	}
	text, err := readFile(mem, "/store/STORE")
	if err != nil || !strings.Contains(string(text), "format 2\nreader 2\n") {
		t.Errorf("STORE says %q, %v", text, err)
	}
	c.EpochAbove = list.Epoch
	l := mustBegin(t, c)
	if l.Epoch() <= list.Epoch {
		t.Errorf("epoch %d, %d was accepted to be gone", l.Epoch(), list.Epoch)
	}
	if err := wantOld(l.Disk, list); err != nil {
		t.Error(err)
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
	for _, name := range servedOld {
		mem, c, list := unpackOld(t, name)
		var least atomic.Int64 // epoch that must be behind the store
		least.Store(int64(list.Epoch))
		survive := func(what string, fsys vfs.FS, least int) {
			c := c
			c.FS = fsys
			l, fresh, err := begin(c)
			if err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
				return
			}
			if err := wantOld(l.Disk, list); err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
			}
			begun := least > int(list.Epoch)
			if fresh || int(l.Epoch()) <= least || l.Clean() && (!list.Clean || begun) {
				t.Errorf("%s, crash before %s: fresh %v, clean %v, epoch %d after %d", name, what, fresh, l.Clean(), l.Epoch(), least)
			}
			if err := l.crash(); err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
			}
		}
		crashes := 0
		c.FS = cuts(mem, r, *everyFlag, &least, func(what string, disk *crashfs.Disk, least int) {
			crashes++
			if err := noOldLog(disk, list.Failover); err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
			}
			if r.IntN(4) != 0 {
				survive(what, disk, least)
				return
			}
			// The start behind the crash crashes, too.
			var again *crashfs.Disk
			stop := r.IntN(40)
			second := c
			second.FS = cuts(disk, r, 1, new(atomic.Int64), func(_ string, disk *crashfs.Disk, _ int) {
				if stop--; stop == 0 {
					again = disk
				}
			})
			l, _, err := begin(second)
			if err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
				return
			}
			if err := l.crash(); err != nil {
				t.Errorf("%s, crash before %s: %v", name, what, err)
			}
			if again != nil {
				survive(what+", and again", again, least)
			}
		})
		l, _, err := begin(c)
		if err != nil {
			t.Fatal(err)
		}
		if l.Clean() != list.Clean {
			t.Errorf("a store that was %s is clean: %v", name, l.Clean())
		}
		least.Add(1)
		if err := errors.Join(l.BoundClock(1000), l.crash()); err != nil {
			t.Fatal(err)
		}
		if crashes == 0 {
			t.Error("there were no power cuts")
		}
		t.Logf("%s: %d crashes", name, crashes)
	}
}

// TestUpgradeDamage changes a byte of the files of stores that were killed, or cuts them
// short: the upgrade, or whoever reads a record behind it, says that it is damage. Nothing
// is missing, or older, without a word.
func TestUpgradeDamage(t *testing.T) {
	r := seed(t)
	found := make(map[string]int)
	for _, name := range []string{"format1-killed", "format2-killed", "format2-failover"} {
		whole, c, list := unpackOld(t, name)
		var paths []string
		for _, dir := range []string{"/store/data", list.Failover} {
			names, err := whole.List(dir)
			if dir != "" && err != nil {
				t.Fatal(err)
			}
			for _, file := range names {
				if strings.HasPrefix(file, "MANIFEST-") || strings.HasSuffix(file, ".log") || strings.HasSuffix(file, ".sst") || strings.HasSuffix(file, ".blob") {
					paths = append(paths, whole.PathJoin(dir, file))
				}
			}
		}
		for _, path := range paths {
			for range max(1, 60 / *everyFlag) {
				mem := whole.CrashClone(vfs.CrashCloneCfg{})
				content, err := readFile(mem, path)
				if err != nil || len(content) == 0 {
					t.Fatalf("%s: %d bytes, %v", path, len(content), err)
				}
				at := r.IntN(len(content))
				what := fmt.Sprintf("%s: %s changed at %d", name, path, at)
				// Pebble panics on a goroutine of its own when it rewrites a blob file of which
				// a byte was changed, as the base may; of another size, it is not opened.
				if r.IntN(3) == 0 || strings.HasSuffix(path, ".blob") {
					content, what = content[:at], fmt.Sprintf("%s: %s cut to %d bytes", name, path, at)
				} else {
					content[at] ^= 1 << r.IntN(8)
				}
				if err := writeFile(mem, path, content); err != nil {
					t.Fatal(err)
				}
				c.FS = mem
				l, _, err := begin(c)
				if err == nil {
					err = wantOld(l.Disk, list)
					_ = l.crash() // what is damaged may keep Pebble from closing
				} else {
					err = openFault(c.Dir, err)
				}
				if err != nil && !errors.Is(err, base.ErrCorrupt) {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil {
					found[path[len(path)-4:]]++
				}
			}
		}
	}
	t.Logf("found in %v", found)
	if len(found) < 3 {
		t.Errorf("damage was found in %v alone", found)
	}
}

// TestUpgradeRemovesLogs: they are gone durably, in both directories, and nothing else is.
func TestUpgradeRemovesLogs(t *testing.T) {
	mem := crashfs.New()
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
