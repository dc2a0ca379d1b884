package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// TestLogDir: the contract of log.Dir and log.File.
func TestLogDir(t *testing.T) {
	mem := crashfs.New()
	d, err := openLogDir(mem, "/log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create("a", 1<<20, true, log.Access{Write: true, Direct: true}); !errors.Is(err, log.ErrNoDirect) {
		t.Errorf("a file past the page cache: %v", err)
	}
	if _, err := d.Open("a", log.Access{Write: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	const size = zeroChunk + 8192
	f, err := d.Create("a", size, false, log.Access{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil || sizeAfterCrash(t, mem) != size {
		t.Errorf("a new file has %d bytes after a crash, %v", sizeAfterCrash(t, mem), err)
	}
	if _, err := d.Create("a", size, false, log.Access{Write: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	if _, err := d.Open("a", log.Access{Direct: true}); !errors.Is(err, log.ErrNoDirect) {
		t.Errorf("a file past the page cache: %v", err)
	}
	got := make([]byte, size)
	if n, err := f.ReadAt(got, 0); n != size || err != nil || slices.ContainsFunc(got, func(b byte) bool { return b != 0 }) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := f.ReadAt(got[:10], size-5); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	if _, err := f.WriteAt([]byte("0123456789"), size-5); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a write that makes the file longer: %v", err)
	}
	if _, err := f.WriteAt([]byte("0123456789"), 4091); err != nil {
		t.Error(err)
	}
	other, err := d.Open("a", log.Access{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Truncate(4096); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a file that was opened to be read becomes shorter: %v", err)
	}
	if err := f.Truncate(4096); err != nil || sizeAfterCrash(t, mem) != 4096 {
		t.Fatalf("a shorter file has %d bytes after a crash, %v", sizeAfterCrash(t, mem), err)
	}
	if _, err := f.WriteAt([]byte("x"), 4096); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a write behind the new end: %v", err)
	}
	if n, err := f.WriteAt([]byte("y"), 0); n != 1 || err != nil {
		t.Errorf("a write into the shorter file: %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if n, err := other.ReadAt(got[:5], 4091); n != 5 || string(got[:5]) != "01234" || err != nil {
		t.Errorf("an older file reads %q, %v", got[:5], err)
	}
	if err := errors.Join(f.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	crashed, err := openLogDir(mem.CrashClone(vfs.CrashCloneCfg{}), "/log")
	if err != nil {
		t.Fatal(err)
	}
	f, err = crashed.Open("a", log.Access{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Size()
	if _, rerr := f.ReadAt(got[:4096], 0); n != 4096 || err != nil || rerr != nil || got[0] != 'y' || string(got[4091:4096]) != "01234" {
		t.Errorf("after a crash: %d bytes, %q...%q, %v, %v", n, got[0], got[4091:4096], err, rerr)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// sizeAfterCrash returns the length of the file that a crash leaves, in which nothing is
// that was not synced.
func sizeAfterCrash(t *testing.T, mem *crashfs.Disk) int64 {
	t.Helper()
	info, err := mem.CrashClone(vfs.CrashCloneCfg{}).Stat("/log/a")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestLogDirNames: a name that is taken is not given, and what a crash left of a Truncate
// is no file of the log.
func TestLogDirNames(t *testing.T) {
	mem := vfs.NewMem()
	d, err := openLogDir(mem, "/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c" + cutSuffix} {
		f, err := d.Create(name, 4096, true, log.Access{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Rename("a", "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a name that is taken: %v", err)
	}
	if err := d.Rename("a", "d"); err != nil {
		t.Error(err)
	}
	names, err := d.List()
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"b", "d"}) {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := openLogDir(mem, "/log"); err != nil {
		t.Fatal(err)
	}
	if left, err := mem.List("/log"); err != nil || len(left) != 2 {
		t.Errorf("%q, %v", left, err)
	}
	if err := mem.MkdirAll("/log/e", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open("e", log.Access{}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a directory is opened as a file: %v", err)
	}
}

// openLog opens the log in /log and replays it; bodies are those of its records.
func openLog(fsys vfs.FS, create bool) (l *log.Log, bodies [][]byte, err error) {
	d, err := openLogDir(fsys, "/log")
	if err != nil {
		return nil, nil, err
	}
	l, err = log.Open(log.Config{Dir: d, Create: create, SegmentSize: 1 << 20, MaxBytes: 8 << 20, Sync: log.Always})
	if err != nil {
		return nil, nil, err
	}
	err = l.Replay(func(r *log.Record) error {
		if r.Kind == log.Write {
			bodies = append(bodies, bytes.Clone(r.Body))
		}
		return nil
	})
	if err != nil {
		return nil, nil, errors.Join(err, l.Close(false))
	}
	return l, bodies, nil
}

// TestLogDirCrash writes frames in some lives over several segments, and cuts the power
// before some of the calls: a log that opens has every record that was acknowledged, whole
// and in its place, and goes on.
func TestLogDirCrash(t *testing.T) {
	r := seed(t)
	mem := crashfs.New()
	const lives, each = 3, 20
	var all [lives * each][]byte
	for i := range all {
		all[i] = append(fmt.Append(nil, i), bytes.Repeat([]byte{byte(i)}, r.IntN(120<<10))...)
	}
	var acked atomic.Int64 // how many of them; -1: the log has not begun
	acked.Store(-1)
	cut := 0
	fsys := cuts(mem, r, min(6, *everyFlag), &acked, func(what string, disk *crashfs.Disk, acked int) {
		cut++
		l, bodies, err := openLog(disk, acked < 0)
		if err != nil {
			t.Errorf("crash before %s: %v", what, err)
			return
		}
		if len(bodies) < acked || !slices.EqualFunc(bodies, all[:min(len(bodies), len(all))], bytes.Equal) {
			t.Errorf("crash before %s: %d records, %d were acknowledged", what, len(bodies), acked)
		}
		err = l.Start(1)
		if err == nil {
			_, err = l.Append(log.Record{Kind: log.Write, Stream: 1, Body: []byte("more")})
		}
		if err = errors.Join(err, l.Close(true)); err != nil {
			t.Errorf("crash before %s: %v", what, err)
		}
	})
	for life := range lives {
		l, bodies, err := openLog(fsys, life == 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(bodies) != life*each {
			t.Fatalf("%d records, %d were acknowledged", len(bodies), life*each)
		}
		if err := l.Start(1); err != nil {
			t.Fatal(err)
		}
		for i := range each {
			acked.Store(int64(life*each + i))
			body := all[life*each+i]
			if _, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		acked.Store(int64((life + 1) * each))
		if err := l.Close(life%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if cut == 0 {
		t.Error("there were no power cuts")
	}
	t.Logf("%d power cuts", cut)
}

// TestLogDirFault: whatever call of Truncate fails, the file is there, with its old length
// or with the new one.
func TestLogDirFault(t *testing.T) {
	for fail := 1; ; fail++ {
		mem, armed := vfs.NewMem(), 0
		d, err := openLogDir(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed == 0 || op.Kind == errorfs.OpFileClose {
				return nil
			}
			if armed--; armed == 0 {
				return errorfs.ErrInjected
			}
			return nil
		})), "/log")
		if err != nil {
			t.Fatal(err)
		}
		f, err := d.Create("a", 8192, true, log.Access{Write: true})
		if err != nil {
			t.Fatal(err)
		}
		armed = fail
		err = f.Truncate(4096)
		through := armed != 0
		armed = 0
		if through != (err == nil) {
			t.Errorf("call %d fails, and Truncate says %v", fail, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		f, err = d.Open("a", log.Access{})
		if err != nil {
			t.Fatalf("call %d: %v", fail, err)
		}
		if n, err := f.Size(); err != nil || n != 4096 && (n != 8192 || through) {
			t.Errorf("call %d: %d bytes, %v", fail, n, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if through {
			if fail < 6 {
				t.Errorf("only %d calls failed", fail-1)
			}
			return
		}
	}
}
