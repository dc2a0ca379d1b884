package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// made returns a file system with a closed store in /store that holds one key.
func made(t *testing.T, shards int) *crashfs.Disk {
	t.Helper()
	fsys := crashfs.New()
	c := testConfig(fsys)
	c.Shards = shards
	n := open(t, c)
	n.put(0, "key", "value")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func writeText(t *testing.T, fsys vfs.FS, path, text string) {
	t.Helper()
	if err := fsys.MkdirAll(fsys.PathDir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := createText(fsys, path, text); err != nil {
		t.Fatal(err)
	}
}

// TestOpenRefuses is the table of directories that are no good.
func TestOpenRefuses(t *testing.T) {
	failing := func(fsys vfs.FS, op func(errorfs.Op) bool, err error) vfs.FS {
		return errorfs.Wrap(fsys, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if op(o) {
				return err
			}
			return nil
		}))
	}
	under := func(kind errorfs.OpKind) func(errorfs.Op) bool {
		return func(o errorfs.Op) bool { return o.Kind == kind && strings.HasPrefix(o.Path, "/store") }
	}
	const start = "66760 KiB" // a MiB, what is to be replayed, and a segment of the log
	for _, tc := range []struct {
		name   string
		fs     func(t *testing.T) vfs.FS
		change func(*Config)
		want   error
		text   string // in the error
	}{
		{name: "a file instead of a directory", want: ErrNotDir, text: `"/store"`,
			fs: func(t *testing.T) vfs.FS {
				fsys := crashfs.New()
				writeText(t, fsys, "/store", "hello")
				return fsys
			}},
		{name: "somebody else's directory", want: ErrForeignDir, text: "letter.txt",
			fs: func(t *testing.T) vfs.FS {
				fsys := crashfs.New()
				writeText(t, fsys, "/store/letter.txt", "hello")
				return fsys
			}},
		{name: "a bare Pebble store", want: ErrForeignDir, text: "choose an empty directory",
			fs: func(t *testing.T) vfs.FS {
				fsys := crashfs.New()
				db, err := pebble.Open("/store", &pebble.Options{FS: fsys, Logger: mute{}})
				if err != nil {
					t.Fatal(err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				return fsys
			}},
		{name: "a newer format", want: ErrFormatVersion, text: "format 9",
			fs: func(t *testing.T) vfs.FS {
				fsys := made(t, 4)
				writeText(t, fsys, "/store/STORE", "rdmakv store\nformat 9\nreader 9\nshards 4\nid 00000000000000000000000000000000\n")
				return fsys
			}},
		{name: "another number of shards", want: ErrShardCount, text: "set shards to 4",
			fs: func(t *testing.T) vfs.FS { return made(t, 4) }, change: func(c *Config) { c.Shards = 8 }},
		{name: "an identity that is not one", want: ErrCorrupt, text: "STORE",
			fs: func(t *testing.T) vfs.FS {
				fsys := made(t, 4)
				writeText(t, fsys, "/store/STORE", "gibberish")
				return fsys
			}},
		{name: "the data gone", want: ErrCorrupt, text: "data is missing",
			fs: func(t *testing.T) vfs.FS {
				fsys := made(t, 4)
				if err := fsys.RemoveAll("/store/data"); err != nil {
					t.Fatal(err)
				}
				return fsys
			}},
		{name: "another store's data", want: ErrCorrupt, text: "belongs to store",
			fs: func(t *testing.T) vfs.FS {
				a, b := made(t, 4), made(t, 4)
				if err := a.RemoveAll("/store/data"); err != nil {
					t.Fatal(err)
				}
				if err := a.Remove("/store/LEDGER"); err != nil {
					t.Fatal(err)
				}
				if ok, err := vfs.Clone(b, a, "/store/data", "/store/data"); err != nil || !ok {
					t.Fatal(ok, err)
				}
				return a
			}},
		{name: "no permission", want: ErrNoAccess, text: "give it to the user",
			fs: func(t *testing.T) vfs.FS { return failing(made(t, 4), under(errorfs.OpList), fs.ErrPermission) }},
		{name: "no permission to write", want: ErrNoAccess,
			fs: func(t *testing.T) vfs.FS { return failing(made(t, 4), under(errorfs.OpCreate), fs.ErrPermission) }},
		{name: "a read-only disk", want: ErrReadOnlyDisk,
			fs: func(t *testing.T) vfs.FS { return failing(made(t, 4), under(errorfs.OpCreate), syscall.EROFS) }},
		{name: "a directory that cannot be made", want: fs.ErrNotExist, text: "choose another data_dir",
			fs: func(t *testing.T) vfs.FS { return noDirs{crashfs.New()} }},
		{name: "a full disk", want: ErrNoSpace, text: "free some on the disk of this directory, or move it to a larger one: every start writes",
			fs: func(t *testing.T) vfs.FS { return failing(made(t, 4), under(errorfs.OpCreate), syscall.ENOSPC) }},
		{name: "a full disk that says what is free", want: ErrNoSpace, text: "no disk space left: 12 KiB are free, a start needs about " + start + ": ",
			fs: func(t *testing.T) vfs.FS {
				fsys := made(t, 4)
				writeText(t, fsys, "/store/data/999999.log", strings.Repeat("x", 200<<10)) // to be replayed
				d := &fakeDisk{FS: failing(fsys, under(errorfs.OpCreate), syscall.ENOSPC)}
				d.avail.Store(12 << 10)
				return d
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testConfig(tc.fs(t))
			if tc.change != nil {
				tc.change(&c)
			}
			s, err := Open(context.Background(), c)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			var oe *OpenError
			if !errors.Is(err, tc.want) || !errors.As(err, &oe) || oe.Dir != c.Dir || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v\nwant %v, with %q", err, tc.want, tc.text)
			}
			if errors.Is(err, ErrCorrupt) && !errors.Is(tc.want, ErrCorrupt) {
				t.Errorf("nothing is corrupt: %v", err)
			}
			if n := c.Memory.(*heapMemory).regions(); n != 0 {
				t.Errorf("%d regions left", n)
			}
		})
	}
}

// noDirs makes no directories, as /proc.
type noDirs struct{ vfs.FS }

func (noDirs) MkdirAll(dir string, _ os.FileMode) error {
	return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOENT}
}

func TestOpenBadConfig(t *testing.T) {
	_, err := Open(context.Background(), Config{Shards: 5000, MemoryLimit: 1, Sync: 9, InflightBytes: -1})
	if err == nil {
		t.Fatal("opened")
	}
	for _, want := range []string{"no directory", "no memory", "shards = 5000", "memory limit", "sync policy", "in-flight"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
}

// TestOpenTwice: the second is refused by name, the first goes on, and its
// lock goes with it.
func TestOpenTwice(t *testing.T) {
	for _, tc := range []struct {
		name string
		fs   vfs.FS
		dir  string
	}{{"memory", crashfs.New(), "/store"}, {"disk", vfs.Default, t.TempDir()}} {
		t.Run(tc.name, func(t *testing.T) {
			c := testConfig(tc.fs)
			c.Dir, c.MinFreeBytes = tc.dir, -1
			n := open(t, c)
			c.Memory = newHeapMemory()
			_, err := Open(context.Background(), c)
			if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), tc.dir) {
				t.Fatalf("second Open: %v", err)
			}
			n.put(0, "k", "v")
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			n = open(t, c)
			n.want(0, "k", "v")
		})
	}
}

// TestOpenOnDisk creates missing directories, in a path with odd characters.
func TestOpenOnDisk(t *testing.T) {
	c := testConfig(nil)
	c.Dir, c.MinFreeBytes = t.TempDir()+"/not yet/ü'\" %s", -1
	n := open(t, c)
	n.put(1, "k", "v")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Dir + "/STORE"); err != nil {
		t.Error(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	n.want(1, "k", "v")
}

// TestLostAndFound: an empty file system is an empty directory.
func TestLostAndFound(t *testing.T) {
	fsys := crashfs.New()
	if err := fsys.MkdirAll("/store/lost+found", 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, testConfig(fsys)).put(0, "k", "v")
}

// TestCreationCutShort kills the creation at every operation on the file
// system. Whatever is left opens again, as a new store; or not at all while
// the fault lasts.
func TestCreationCutShort(t *testing.T) {
	for op := int32(0); ; op++ {
		fsys := crashfs.New()
		ii := errorfs.OnIndex(op)
		inj := &writesOnly{ii}
		c := testConfig(errorfs.Wrap(fsys, inj))
		fatal := make(chan error, 1)
		c.OnFatal = func(err error) { fatal <- err }
		opened := make(chan error, 1)
		go func() {
			s, err := Open(context.Background(), c)
			if err == nil {
				err = s.Close()
			}
			opened <- err
		}()
		var err error
		select {
		case err = <-opened:
		case err = <-fatal:
		}
		if err == nil {
			if op < 10 {
				t.Fatalf("only %d operations", op)
			}
			return // the fault lies beyond
		}
		n, err := tryOpen(t, testConfig(fsys.CrashClone(vfs.CrashCloneCfg{})))
		if err != nil {
			t.Fatalf("after a fault at operation %d: %v", op, err)
		}
		n.put(0, "k", "v")
		n.want(0, "k", "v")
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// writesOnly passes only writing operations on to the injector.
type writesOnly struct{ errorfs.Injector }

func (w *writesOnly) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	return w.Injector.MaybeError(op)
}

// TestPredecessorWait: after a crash no write is acknowledged or seen before
// the old leases are over; after a clean stop, or told that the old memory is
// gone, at once. Reads do not wait. Time is virtual: a slow machine is not taken
// for a wait.
func TestPredecessorWait(t *testing.T) {
	for _, tc := range []struct {
		name  string
		clean bool
		gone  bool
		waits bool
	}{
		{"crash", false, false, true},
		{"clean stop", true, false, false},
		{"memory gone", false, true, false},
	} {
		t.Run(tc.name, virtual(func(t *testing.T) {
			fsys := crashfs.New()
			c := testConfig(fsys)
			n := open(t, c)
			n.put(0, "key", "old")
			if tc.clean {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
			}
			c = testConfig(fsys.CrashClone(vfs.CrashCloneCfg{}))
			c.PredecessorGone = tc.gone
			c.Lease, c.BeatInterval = time.Minute, 10*time.Millisecond
			before := time.Now()
			n = open(t, c)
			acked := make(chan time.Time, 1)
			w := &Write{Op: Op{Key: []byte("key"), Value: []byte("new")}, Done: func(*Write) { acked <- time.Now() }}
			if err := n.Submit(w); err != nil {
				t.Fatal(err)
			}
			if tc.waits {
				// Another key's get does not wait; this key's tells the old
				// or the new value, but the new one not before its time.
				n.wantAbsent(0, "other")
			}
			waited := (<-acked).Sub(before)
			if tc.waits && waited < c.predecessorWait() {
				t.Errorf("acknowledged after %v, leases last %v", waited, c.predecessorWait())
			}
			if !tc.waits && waited >= c.predecessorWait() {
				t.Errorf("acknowledged after %v", waited)
			}
			n.want(0, "key", "new")
		}))
	}
}
