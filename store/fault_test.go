package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/internal/reads"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// childEnv names the scenario that a child process of this test runs. A fault
// of the log ends a process; so it is a process of its own that ends.
const childEnv = "RDMAKV_STORE_TEST_CHILD"

// runChild runs this test again in a child and returns its output.
func runChild(t *testing.T, scenario string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+scenario)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", scenario, err, out)
	}
	return string(out)
}

// TestWALFault: when the log cannot be written nothing is acknowledged any
// more, beats stop, OnFatal is called once, and everybody who waits is told.
func TestWALFault(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		walFaultChild()
		return
	}
	for _, scenario := range []string{"always", "interval"} {
		if out := runChild(t, scenario); !strings.Contains(out, "all as it should be") {
			t.Errorf("%s:\n%s", scenario, out)
		}
	}
}

func walFaultChild() {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			fmt.Printf("NOT SO: "+format+"\n", args...)
			os.Exit(1)
		}
	}
	inj := errorfs.InjectorFunc(nil)
	var broken atomic.Bool
	inj = func(op errorfs.Op) error {
		if broken.Load() && inLog(op.Path) && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	}
	c := testConfig(errorfs.Wrap(memFS(), inj))
	var fatals atomic.Int32
	fatal := make(chan error, 1)
	c.OnFatal = func(err error) {
		if fatals.Add(1) == 1 {
			fatal <- err
		}
	}
	c.SyncInterval = 10 * time.Millisecond
	if os.Getenv(childEnv) == "interval" {
		c.Sync = Interval
	}
	s, err := Open(context.Background(), c)
	check(err == nil, "Open: %v", err)
	ctx := context.Background()
	_, err = s.Put(ctx, 0, []byte("before"), []byte("v"))
	check(err == nil, "Put: %v", err)
	s.Beat(time.Now())
	beat := s.mem.Table.Beat(0).Counter

	broken.Store(true)
	var acks atomic.Int32
	w := &Write{Op: Op{Key: []byte("after"), Value: []byte("v")}, Done: func(*Write) { acks.Add(1) }}
	// With an interval the log may have found the fault by itself before, in a sync of its own.
	err = s.Submit(w)
	check(err == nil || c.Sync == Interval && errors.Is(err, ErrFatal), "Submit refused: %v", err)
	_, err = s.Put(ctx, 1, []byte("after"), []byte("v"))
	if c.Sync == Always {
		check(errors.Is(err, ErrFatal), "Put on a broken log: %v", err)
	}
	err = <-fatal
	check(errors.Is(err, ErrFatal) && strings.Contains(err.Error(), "input/output error"), "OnFatal got %v", err)
	if c.Sync == Always {
		check(acks.Load() == 0, "acknowledged %d writes on a broken log", acks.Load())
	}
	s.Beat(time.Now())
	check(s.mem.Table.Beat(0).Counter == beat+1, "a fenced store beat")
	_, err = s.Get(ctx, 0, []byte("before"), nil)
	check(errors.Is(err, ErrFatal), "Get from a fenced store: %v", err)
	check(errors.Is(s.Submit(&Write{Op: Op{Key: []byte("k")}}), ErrFatal), "Submit to a fenced store")
	check(errors.Is(s.Close(), ErrFatal), "Close of a fenced store")
	check(fatals.Load() == 1, "OnFatal called %d times", fatals.Load())
	fmt.Println("all as it should be")
	os.Exit(0)
}

// TestLogFlip: a flipped bit in a record of the log, with others behind it, makes
// Open fail, in the first life of a store and in the next.
func TestLogFlip(t *testing.T) {
	if underRace && testing.Short() {
		t.Skip("of one goroutine; make unit runs it, and make race-full")
	}
	for _, lives := range []int{1, 2} {
		for _, at := range []int{0, 50, 250} {
			t.Run(fmt.Sprintf("lives=%d/at=%d", lives, at), func(t *testing.T) {
				fs := crashfs.New()
				c := testConfig(fs)
				c.checkpoints = time.Hour // no checkpoint takes the record into the base
				n := open(t, c)
				for range lives - 1 {
					n.put(0, "before", "v")
					if err := n.Close(); err != nil {
						t.Fatal(err)
					}
					c.Memory = newHeapMemory()
					n = open(t, c)
				}
				for i := range 500 {
					n.put(i%4, fmt.Sprintf("key-%d", i), pattern(200, "v"))
				}
				crashed := fs.CrashClone(vfs.CrashCloneCfg{})
				key := fmt.Sprintf("key-%d", at)
				sh := n.shard(at % 4)
				sh.Mu.Lock()
				e, dirty := sh.Dirty.Find(n.hash(key), []byte(key))
				sh.Mu.Unlock()
				if !dirty {
					t.Fatalf("%s is in the base already", key)
				}
				segment := fmt.Sprintf("%08x.seg", e.At.Segment())
				flipAt(t, crashed, "/store/log/"+segment, e.At.Offset()+100)
				s, err := Open(context.Background(), testConfig(crashed))
				if err == nil {
					s.Close()
					t.Fatal("opened over a damaged log")
				}
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.File != "log/"+segment {
					t.Errorf("%v; want ErrCorrupt that names log/%s", err, segment)
				}
			})
		}
	}
}

// flip flips a bit of the largest file with that suffix, at percent of its
// length, and returns its name.
func flip(t *testing.T, fs vfs.FS, suffix string, percent int64) string {
	t.Helper()
	names, err := fs.List("/store/data")
	if err != nil {
		t.Fatal(err)
	}
	largest, size := "", int64(-1)
	for _, name := range names {
		if info, err := fs.Stat(path.Join("/store/data", name)); err == nil && strings.HasSuffix(name, suffix) && info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	if largest != "" {
		flipAt(t, fs, path.Join("/store/data", largest), size*percent/100)
	}
	return largest
}

func flipAt(t *testing.T, fs vfs.FS, name string, off int64) {
	t.Helper()
	b := []byte(readText(t, fs, name))
	b[off] ^= 0x10
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b[off:off+1], off); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedTable: a damaged block ends a fill with an error, not silently;
// every get is right or says ErrCorrupt, and no reader is told "absent" of a
// key that was lost in it.
func TestDamagedTable(t *testing.T) {
	const keys = 3000
	fs := memFS()
	n := open(t, testConfig(fs))
	for i := range keys {
		n.submit(&Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "key-%04d", i), Value: []byte(pattern(150, fmt.Sprint(i)))}, Done: func(*Write) {}})
	}
	<-n.gateIdle()
	if err := errors.Join(n.disk.ForTests().DB().Flush(), n.disk.ForTests().DB().Compact(t.Context(), []byte{0}, []byte{0xff, 0xff, 0xff}, false), n.Close()); err != nil {
		t.Fatal(err)
	}
	if flip(t, fs, ".sst", 30) == "" {
		t.Fatal("there is no table")
	}

	c := testConfig(fs)
	var mu sync.Mutex
	var last Progress
	var at atomic.Pointer[node]
	c.Progress = func(p Progress) {
		if n := at.Load(); n != nil {
			n.Stats() // whoever is told may ask
		}
		mu.Lock()
		defer mu.Unlock()
		last = p
	}
	c.holdFill = make(chan struct{})
	n = open(t, c)
	at.Store(n)
	close(c.holdFill)
	waitFor(t, "the fault to be reported", func() bool {
		n.lease()
		mu.Lock()
		defer mu.Unlock()
		return last.Err != nil && n.Stats().ShardsFilled == 3
	})
	if n.Filled() || !errors.Is(last.Err, ErrCorrupt) || n.Stats().FillFault == "" {
		t.Errorf("filled %v, progress %+v", n.Filled(), last)
	}
	r := n.reader()
	corrupt := 0
	for i := range keys {
		key := fmt.Sprintf("key-%04d", i)
		got, err := n.Get(t.Context(), uint16(i%4), []byte(key), nil)
		switch {
		case errors.Is(err, ErrCorrupt):
			corrupt++
		case err != nil || string(got.Data) != pattern(150, fmt.Sprint(i)):
			t.Fatalf("Get(%s) = %s, %v", key, clip(string(got.Data)), err)
		}
		if _, _, found, ask := r.get(i%4, key); !found && !ask {
			t.Fatalf("a reader believes that %s is absent", key)
		}
	}
	if corrupt == 0 {
		t.Error("no get met the damage")
	}
	if _, err := n.Scan(t.Context(), ScanRequest{Limit: reads.MaxScanLimit, MaxBytes: reads.MaxScanBytes}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Scan over the damage: %v", err)
	}
	if n.Stats().Corrupt == 0 {
		t.Error("nothing counted")
	}
	// A put over a damaged key heals it.
	n.put(0, "key-0000", "new")
	n.want(0, "key-0000", "new")
}

// fakeDisk is a file system with a free space of our choice.
type fakeDisk struct {
	vfs.FS
	avail atomic.Uint64
}

func (d *fakeDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.avail.Load(), TotalBytes: 1 << 40}, nil
}

// TestDiskFloor: below the floor puts are refused, deletes go on down to half
// of it, gets always; and it ends when there is room again.
func TestDiskFloor(t *testing.T) {
	d := &fakeDisk{FS: memFS()}
	d.avail.Store(1 << 30)
	c := testConfig(d)
	c.MinFreeBytes, c.noKeeper = 1<<20, true
	n := open(t, c)
	n.put(0, "a", "v")
	n.put(0, "b", "v")
	for _, tc := range []struct {
		avail    uint64
		put, del error
	}{
		{1 << 19, ErrNoSpace, nil},
		{1<<19 - 1, ErrNoSpace, ErrNoSpace},
		{1 << 20, ErrNoSpace, nil}, // not to and fro at the edge
		{2 << 20, nil, nil},
	} {
		d.avail.Store(tc.avail)
		n.disk.LookSpace()
		if _, err := n.Put(t.Context(), 0, []byte("k"), nil); !errors.Is(err, tc.put) {
			t.Errorf("%d bytes free: Put: %v, want %v", tc.avail, err, tc.put)
		}
		if _, err := n.Delete(t.Context(), 0, []byte("k")); !errors.Is(err, tc.del) {
			t.Errorf("%d bytes free: Delete: %v, want %v", tc.avail, err, tc.del)
		}
		n.want(0, "a", "v")
	}
}

// TestDiskErrors: what Pebble meets in the background reaches the writers.
func TestDiskErrors(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	events := n.disk.ForTests().Listener()
	for range 1000 {
		events.BackgroundError(fmt.Errorf("flush: %w", syscall.ENOSPC))
	}
	if _, err := n.Put(t.Context(), 0, []byte("k"), nil); !errors.Is(err, ErrNoSpace) {
		t.Errorf("Put after ENOSPC: %v", err)
	}
	if st := n.Stats(); !st.PutsRefused || st.Pebble.BackgroundErrors != 1000 {
		t.Errorf("%+v", st)
	}
	n.disk.LookSpace()
	n.put(0, "k", "v")
	events.BackgroundError(fmt.Errorf("flush: %w", syscall.EROFS))
	if _, err := n.Delete(t.Context(), 0, []byte("k")); !errors.Is(err, ErrReadOnlyDisk) {
		t.Errorf("Delete on a read-only disk: %v", err)
	}
	n.want(0, "k", "v")
}

// TestNoMemoryAtAll: with no room for a single item everything is answered
// out of Pebble, and large answers cannot be held.
func TestNoMemoryAtAll(t *testing.T) {
	c := testConfig(memFS())
	mem := c.Memory.(*heapMemory)
	c.MemoryLimit, c.IndexRegionSize = 4<<20, 1<<20
	mem.limit = 1 << 20
	n := open(t, c)
	n.fill()
	r := n.reader()
	for i := range 300 {
		n.put(i%4, fmt.Sprintf("key-%d", i), pattern(100, fmt.Sprint(i)))
	}
	for i := range 300 {
		n.want(i%4, fmt.Sprintf("key-%d", i), pattern(100, fmt.Sprint(i)))
		r.wantAsk(i%4, fmt.Sprintf("key-%d", i))
	}
	if !n.del(1, "key-1") || n.del(1, "key-1") {
		t.Error("deletes of a key without a slot")
	}
	n.wantAbsent(1, "key-1")
	if _, err := n.Hold(t.Context(), 0, []byte("key-0")); !errors.Is(err, ErrOverloaded) {
		t.Errorf("Hold: %v", err)
	}
	if st := n.Stats(); st.Keys != 0 || st.NoMemory == 0 {
		t.Errorf("%+v", st)
	}
}
