package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPowerCutBesideCalls: cuts of the power beside the calls that deadlock with them in a
// vfs.MemFS, which takes a read lock twice in them.
func TestPowerCutBesideCalls(t *testing.T) {
	d := New()
	create(t, d, "a")
	create(t, d, "log")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	call := func(f func(i int) error) {
		wg.Go(func() {
			for i := range 20_000 {
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	call(func(i int) error { return d.Link("a", fmt.Sprint("b", i)) })
	call(func(int) error {
		l, err := d.Lock("lock")
		if err != nil {
			return err
		}
		return l.Close()
	})
	call(func(i int) error {
		from, to := "log", "log2"
		if i%2 == 1 {
			from, to = to, from
		}
		f, err := d.ReuseForWrite(from, to, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		return f.Close()
	})
	cuts := 0
	cutter := make(chan struct{})
	go func() {
		defer close(cutter)
		for {
			select {
			case <-stop:
				return
			default:
				d.CrashClone(vfs.CrashCloneCfg{})
				cuts++
			}
		}
	}()
	done := make(chan struct{})
	go func() { wg.Wait(); close(stop); <-cutter; close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("a call and a cut of the power wait for each other")
	}
	if cuts == 0 {
		t.Error("the power was never cut")
	}
}

// TestUnsyncedIsGone: a file that was not synced is not there after a cut, one that was is.
func TestUnsyncedIsGone(t *testing.T) {
	d := New()
	create(t, d, "synced")
	dir, err := d.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Sync(); err != nil {
		t.Fatal(err)
	}
	create(t, d, "unsynced")
	after := d.CrashClone(vfs.CrashCloneCfg{})
	names, err := after.List("")
	if err != nil || len(names) != 1 || names[0] != "synced" {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := d.Stat("unsynced"); err != nil {
		t.Errorf("the disk itself: %v", err)
	}
}

func create(t *testing.T, d *Disk, name string) {
	t.Helper()
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLikeMemFS: a disk and a vfs.MemFS of Pebble's that are told the same hold the same, and so
// do what a cut of the power leaves of them where nothing unsynced remains, and where all does.
// Each seed makes, links, renames and removes files, writes them over in places, with zeros and
// behind their ends, and syncs some; what was left by a cut is written to in turn.
func TestLikeMemFS(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		ours, theirs := vfs.FS(New()), vfs.FS(vfs.NewCrashableMem())
		for range 300 {
			step(t, r, ours, theirs)
			if r.IntN(20) > 0 {
				continue
			}
			percent := 100 * r.IntN(2)
			c := func() vfs.CrashCloneCfg {
				return vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))}
			}
			alike(t, fmt.Sprint("seed ", seed), ours, theirs)
			left, of := ours.(*Disk).CrashClone(c()), theirs.(*vfs.MemFS).CrashClone(c())
			alike(t, fmt.Sprintf("seed %d, a cut that leaves %d%%", seed, percent), left, of)
			if r.IntN(4) == 0 {
				ours, theirs = left, of
			}
		}
		alike(t, fmt.Sprint("seed ", seed), ours, theirs)
	}
}

// step does the same to two file systems, by chance, and compares what they say.
func step(t *testing.T, r *rand.Rand, all ...vfs.FS) {
	t.Helper()
	name := func() string { return fmt.Sprintf("/%c/%c", 'a'+r.IntN(2), 'a'+r.IntN(4)) }
	from, to, what := name(), name(), r.IntN(12)
	dir, at := path.Dir(from), int64(r.IntN(20_000))
	data := make([]byte, r.IntN(9000))
	if r.IntN(3) > 0 {
		for i := range data {
			data[i] = byte(r.Uint32())
		}
	}
	var said [2]bool
	for i, fs := range all {
		said[i] = do(fs, what, dir, from, to, at, data) == nil
	}
	if said[0] != said[1] {
		t.Fatalf("call %d of %s and %s: %v, and of Pebble's disk %v", what, from, to, said[0], said[1])
	}
}

func do(fs vfs.FS, what int, dir, from, to string, at int64, data []byte) error {
	on := func(f vfs.File, err error, use func(vfs.File) error) error {
		if err != nil {
			return err
		}
		return errors.Join(use(f), f.Close())
	}
	data = bytes.Clone(data) // a MemFS under the race detector changes it
	switch what {
	case 0:
		return fs.MkdirAll(dir, 0o755)
	case 1:
		f, err := fs.Create(from, vfs.WriteCategoryUnspecified)
		return on(f, err, func(f vfs.File) error { _, err := f.Write(data); return err })
	case 2:
		return fs.Remove(from)
	case 3:
		return fs.Rename(from, from+"x")
	case 4:
		if _, err := fs.Stat(from); err != nil || from == to {
			return nil
		}
		return fs.Link(from, to)
	case 5, 6:
		f, err := fs.OpenDir(dir)
		return on(f, err, vfs.File.Sync)
	case 7:
		f, err := fs.OpenDir("/")
		return on(f, err, vfs.File.Sync)
	case 8:
		f, err := fs.Open(from)
		return on(f, err, func(f vfs.File) error { _, err := f.Write(data); return err })
	default:
		f, err := fs.OpenReadWrite(from, vfs.WriteCategoryUnspecified)
		return on(f, err, func(f vfs.File) error {
			_, err := f.WriteAt(data, at)
			if what > 9 {
				err = errors.Join(err, f.Sync())
			}
			return err
		})
	}
}

// alike compares all files of two file systems.
func alike(t *testing.T, when string, ours, theirs vfs.FS) {
	t.Helper()
	if got, want := contents(t, ours), contents(t, theirs); !maps.Equal(got, want) {
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s: %s has %d bytes, and of Pebble's disk %d", when, name, len(got[name]), len(want[name]))
			}
		}
		t.Fatalf("%s: there is %q, and on Pebble's disk %q", when, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// contents reads all files of a file system, by two ways.
func contents(t *testing.T, fs vfs.FS) map[string]string {
	t.Helper()
	files := make(map[string]string)
	dirs, err := fs.List("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		names, err := fs.List("/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			name = "/" + dir + "/" + name
			f, err := fs.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(f)
			in, statErr := f.Stat()
			if err := errors.Join(err, statErr); err != nil || in.Size() != int64(len(data)) {
				t.Fatalf("%s: %d bytes, %v", name, len(data), err)
			}
			tail := make([]byte, len(data)/2)
			if n, err := f.ReadAt(tail, int64(len(data)-len(tail))); n != len(tail) || len(tail) > 0 && err != nil || string(tail) != string(data[len(data)-len(tail):]) {
				t.Fatalf("%s: the last %d bytes are other ones: %v", name, len(tail), err)
			}
			files[name] = string(data)
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return files
}
