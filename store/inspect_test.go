package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

func TestInspect(t *testing.T) {
	fs := memFS()
	if _, err := Inspect(t.Context(), "/store", InspectOptions{FS: fs}); !errors.Is(err, ErrNoStore) {
		t.Errorf("of nothing: %v", err)
	}
	n := open(t, testConfig(fs))
	for i := range 20 {
		n.put(i%4, fmt.Sprintf("key-%02d", i), pattern(100*i, "v"))
	}
	n.del(0, "key-00")
	last := n.put(3, "last", "v")
	if _, err := Inspect(t.Context(), "/store", InspectOptions{FS: fs}); !errors.Is(err, ErrLocked) {
		t.Errorf("of an open store: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, fs)
	seen := 0
	in, err := Inspect(t.Context(), "/store", InspectOptions{FS: fs, Each: func(e InspectEntry) error {
		seen++
		if string(e.Key) != "last" && int(e.Shard) != int(e.Key[5]-'0')%4 && len(e.Value) == 0 {
			return fmt.Errorf("%+v", e)
		}
		return nil
	}})
	if err != nil || in.ProblemCount != 0 || in.Keys != 20 || seen != 20 || in.ShardKeys[3] != 6 || in.Newest != last ||
		!in.CleanStop || in.Backup || !in.Ledger || in.Shards != 4 || in.ID != n.ID() || in.Epoch != 2 {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err = Inspect(t.Context(), "/store", InspectOptions{FS: fs, Prefix: []byte("key-1")}); err != nil || in.Keys != 10 {
		t.Errorf("by prefix: %+v, %v", in, err)
	}
	stop := errors.New("enough")
	if _, err = Inspect(t.Context(), "/store", InspectOptions{FS: fs, Each: func(InspectEntry) error { return stop }}); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	if after := snapshot(t, fs); after != before {
		t.Errorf("Inspect changed the store:\n%s\n%s", before, after)
	}
	open(t, testConfig(fs)).want(3, "last", "v")
}

// snapshot lists the files of a store with their sizes.
func snapshot(t *testing.T, fs vfs.FS) (s string) {
	t.Helper()
	for _, dir := range []string{"/store", "/store/data"} {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		for _, name := range names {
			if info, err := fs.Stat(dir + "/" + name); err == nil && !info.IsDir() {
				s += fmt.Sprintf("%s/%s %d\n", dir, name, info.Size())
			}
		}
	}
	return s
}

// TestCheckFinds: damage of every kind is listed.
func TestCheckFinds(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	n.put(1, "good", "v")
	n.put(1, "bad", "v")
	n.setRaw(disk.AppendKey(nil, 1, disk.KindData, []byte("bad")), []byte("gibberish"))
	n.setRaw(disk.AppendKey(nil, 77, disk.KindData, []byte("stray")), []byte("v"))
	future := disk.AppendKey(nil, 2, disk.KindData, []byte("future"))
	rec := make([]byte, disk.RecordSize(1, false))
	disk.PutRecord(rec, future, disk.Record{Version: layout.MakeVersion(9000, 1), Value: []byte("v")})
	n.setRaw(future, rec)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := Check(t.Context(), "/store", fs)
	if !errors.Is(err, ErrCorrupt) || in.ProblemCount != 3 || in.Keys != 3 {
		t.Errorf("%d problems, %d keys: %v", in.ProblemCount, in.Keys, err)
	}
	n = open(t, testConfig(fs))
	n.fill()
	n.want(1, "good", "v")
	_, err = n.Get(t.Context(), 1, []byte("bad"), nil)
	var ce *CorruptError
	if !errors.As(err, &ce) || string(ce.Key) != "bad" || ce.Shard != 1 {
		t.Errorf("Get of a damaged record: %v", err)
	}
	n.reader().wantAsk(1, "bad")
	if _, err := n.Delete(t.Context(), 1, []byte("bad")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Delete of a damaged record: %v", err)
	}
	n.put(1, "bad", "healed")
	n.want(1, "bad", "healed")
}

// TestCheckOtherKinds: what is no data is looked at, too.
func TestCheckOtherKinds(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	// Results of requests and expiries, whole and not.
	ttl := &Write{Op: Op{Shard: 3, Key: []byte("ttl"), Value: []byte("v"), TTL: time.Hour, ID: RequestID{Slot: 1, Seq: 7}}}
	if err := n.Do(t.Context(), ttl); err != nil {
		t.Fatal(err)
	}
	n.setRaw(disk.AppendKey(nil, 2, disk.KindDedup, []byte("short")), []byte("gibberish"))
	n.setRaw(disk.AppendKey(nil, 2, disk.KindExpiry, []byte("short")), nil)
	n.setRaw(disk.AppendKey(nil, 2, 9, []byte("kind")), nil)
	unlisted := disk.AppendKey(nil, 3, disk.KindData, []byte("unlisted"))
	rec := make([]byte, disk.RecordSize(1, true))
	disk.PutRecord(rec, unlisted, disk.Record{Version: ttl.Version, Expiry: 1 << 60, Value: []byte("v")})
	n.setRaw(unlisted, rec)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := Check(t.Context(), "/store", fs)
	if !errors.Is(err, ErrCorrupt) || in.ProblemCount != 4 || in.Keys != 2 {
		t.Errorf("%d problems, %d keys: %v", in.ProblemCount, in.Keys, err)
	}
}

// TestEpochs: a new epoch begins in time, and versions run on into it.
func TestEpochs(t *testing.T) {
	fs := memFS()
	c := testConfig(fs)
	c.noKeeper = true
	n := open(t, c)
	v := n.put(0, "k", "v")
	_, limit := n.pipe.Versions()
	n.pipe.Skip(limit - 2)
	n.keeper().ExtendEpoch()
	for range 5 {
		next := n.put(0, "k", "v")
		if next <= v {
			t.Fatalf("%v after %v", next, v)
		}
		v = next
	}
	if v.Epoch() != n.disk.Epoch()+1 {
		t.Errorf("version %v, epoch at Open %d", v, n.disk.Epoch())
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	if next := n.put(0, "k", "v"); next <= v {
		t.Errorf("%v after %v and a restart", next, v)
	}
	// The very last: refused, not wrapped around.
	_, limit = n.pipe.Versions()
	n.pipe.Skip(limit)
	if _, err := n.Put(t.Context(), 0, []byte("k"), nil); !errors.Is(err, ErrEpochs) {
		t.Errorf("Put without a version left: %v", err)
	}
}

// TestReachNoted: a heartbeat notes in the ledger up to where the log is durable, if that has
// become more, and writes nothing if not.
func TestReachNoted(t *testing.T) {
	fs := memFS()
	var ledgers atomic.Int32
	c := testConfig(errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, "/LEDGER.new") {
			ledgers.Add(1)
		}
		return nil
	})))
	c.noKeeper = true
	n := open(t, c)
	n.put(0, "k", "v")
	durable, before := n.journal.Durable(), ledgers.Load()
	n.disk.Heartbeat()
	if reach := n.disk.Reach(); reach < durable || ledgers.Load() != before+1 {
		t.Errorf("%d ledgers, up to %v; the log is durable to %v", ledgers.Load()-before, reach, durable)
	}
	waitFor(t, "a heartbeat of a log at rest", func() bool {
		n.disk.Heartbeat()
		durable, before := n.journal.Durable(), ledgers.Load()
		n.disk.Heartbeat()
		if n.journal.Durable() != durable {
			return false
		}
		if now := ledgers.Load(); now != before {
			t.Errorf("%d ledgers although nothing was written", now-before)
		}
		return true
	})
	// Open compares with it: a log that ends before is one that has lost its end.
	if !strings.Contains(readText(t, fs, "/store/LEDGER"), fmt.Sprintf("\nlog %d\n", uint64(n.disk.Reach()))) {
		t.Errorf("the ledger does not say %v", n.disk.Reach())
	}
}

// TestBackgroundStorm: errors without end stop the node.
func TestBackgroundStorm(t *testing.T) {
	c := testConfig(memFS())
	fatal := make(chan error, 2)
	c.OnFatal = func(err error) { fatal <- err }
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		// Pebble itself is well; let it go.
		<-s.life.Done()
		if err := s.disk.ForTests().Drop(); err != nil {
			t.Error(err)
		}
	}()
	events := s.disk.ForTests().Listener()
	for range disk.StormErrors - 1 {
		events.BackgroundError(syscall.ENOENT)
	}
	if s.fence.Failed() != nil {
		t.Error("fenced too early")
	}
	events.BackgroundError(syscall.ENOENT)
	events.BackgroundError(syscall.ENOENT)
	if err := <-fatal; !errors.Is(err, syscall.ENOENT) || len(fatal) != 0 {
		t.Errorf("%v, and %d more", err, len(fatal))
	}
	if err := s.Close(); !errors.Is(err, ErrFatal) {
		t.Errorf("Close: %v", err)
	}
}

// TestLargestValue: 64 MiB there and back, in memory and out of Pebble.
func TestLargestValue(t *testing.T) {
	size := layout.MaxValueLen
	if testing.Short() || underRace {
		size = 3 << 20
	}
	fs := memFS()
	c := testConfig(fs)
	c.MemoryLimit = 256 << 20
	n := open(t, c)
	value := pattern(size, "large")
	n.put(2, "large", value)
	n.want(2, "large", value)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	c.holdFill = make(chan struct{})
	n = open(t, c)
	n.want(2, "large", value) // out of Pebble
	held, err := n.Hold(t.Context(), 2, []byte("large"))
	if err != nil {
		t.Fatal(err)
	}
	it, err := layout.ParseItem(n.mem.Table.Bytes(held.Place, held.Size), n.Incarnation(), held.Place)
	if err != nil || it.State != layout.Held && it.State != layout.Live || it.ValLen != size {
		t.Errorf("held copy: %+v, %v", it.State, err)
	}
	held.Release()
	close(c.holdFill)
	n.fill()
	n.reader().want(2, "large", value)
}
