package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Who meets a fatal fault in Pebble is parked on purpose (internal/disk).
		goleak.IgnoreAnyFunction("github.com/rdmakv/rdmakv/store/internal/disk.(*events).Fatalf"),
		// Pebble leaves these behind when its Open fails, and after a panic or a
		// fence, when it cannot be closed.
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*cleanupManager).mainLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*DB).collectTableStats"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*DB).maybeCollectTableStatsLocked.gowrap1"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/record.(*LogWriter).flushLoop"),
		goleak.IgnoreTopFunction("github.com/cockroachdb/pebble/v2/internal/genericcache.(*shard[...]).releaseLoop"),
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"),
	)
}

// heapMemory is registered memory on the Go heap, so that the race detector
// sees who touches it.
type heapMemory struct {
	mu    sync.Mutex
	live  map[uint32][]byte
	limit int // Alloc fails beyond; 0: none
	used  int
}

func newHeapMemory() *heapMemory { return &heapMemory{live: make(map[uint32][]byte)} }

var errHeapFull = errors.New("heap memory: at its limit")

func (m *heapMemory) Alloc(id uint32, _ layout.RegionKind, size int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 && m.used+size > m.limit {
		return nil, errHeapFull
	}
	if m.live[id] != nil {
		return nil, fmt.Errorf("region %d is there already", id)
	}
	b := make([]byte, size)
	m.live[id], m.used = b, m.used+size
	return b, nil
}

func (m *heapMemory) Free(id uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.live[id] == nil {
		return fmt.Errorf("region %d is not there", id)
	}
	m.used -= len(m.live[id])
	delete(m.live, id)
	return nil
}

func (m *heapMemory) regions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.live)
}

// testConfig is a small store in memory.
func testConfig(fs vfs.FS) Config {
	scrub := int64(0) // the default
	if underRace {
		scrub = 256 << 10 // the default would take a processor of its own
	}
	logBytes := int64(32 << 20)
	if testing.Short() {
		// The first files of the log are written with zeros, which the race detector looks at
		// byte by byte.
		logBytes = 2 * MinLogBytes
	}
	return Config{
		Dir: "/store", FS: fs, Shards: 4, Memory: newHeapMemory(), ScrubRate: scrub,
		MemoryLimit: 64 << 20, RegionSize: 4 << 20, IndexRegionSize: 1 << 20,
		Lease: 20 * time.Millisecond, BeatInterval: 5 * time.Millisecond,
		CacheBytes: 1 << 20, LogBytes: logBytes, groupEntry: 192 << 10,
		bytesFrom: 2500, // as many tests as there are write and read tables of values
	}
}

// virtual is a test whose time is virtual: it goes on when every goroutine waits,
// so what a slow machine takes counts for nothing.
func virtual(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

// A node is a store under test with a clock for its beats.
type node struct {
	*Store
	t    testing.TB
	heap *heapMemory

	expires   *upkeep.Expirer // see expirer
	expiresOf *Store
	now       time.Time
}

// lookedForParts waits until the parts that there were at the start have been looked for. That is
// a scan, which would wait for a test that keeps keys from leaving, and writes would wait for it.
func (n *node) lookedForParts() {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); n.parts.Look(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatal("the look for parts does not end")
		}
	}
}

// open opens a store and closes it with the test.
func open(t testing.TB, c Config) *node {
	t.Helper()
	n, err := tryOpen(t, c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return n
}

func tryOpen(t testing.TB, c Config) (*node, error) {
	s, err := Open(context.Background(), c)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && s.fence.Failed() == nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &node{Store: s, t: t, heap: c.Memory.(*heapMemory), now: time.Now()}, nil
}

// shard is one of the store's shards, to look into it.
func (n *node) shard(i int) *shard.Shard { return n.shards[i] }

// hash is the hash of a key in this store.
func (n *node) hash(key string) layout.Hash { return layout.HashKey(n.mem.Seed, []byte(key)) }

// record is the value that the base has for a key.
func (n *node) record(shard int, key string) (string, error) {
	rec, closer, err := n.disk.Read(uint16(shard), []byte(key))
	if err != nil {
		return "", err
	}
	defer closer.Close()
	return string(rec.Value), nil
}

// lease lets a lease pass by the clock of Beat: what waits for one is freed.
func (n *node) lease() {
	for range 3 {
		n.now = n.now.Add(time.Minute)
		n.Beat(n.now)
	}
}

// checkpoint returns when the base has all that is published.
func (n *node) checkpoint() {
	n.t.Helper()
	if err := n.ckpt.Now(context.Background()); err != nil {
		n.t.Fatalf("checkpoint: %v", err)
	}
}

// submit hands a write over, and again as long as there is no room for it.
func (n *node) submit(w *Write) {
	n.t.Helper()
	waitFor(n.t, "room for a write", func() bool {
		err := n.Submit(w)
		if err != nil && !errors.Is(err, ErrOverloaded) {
			n.t.Fatalf("Submit: %v", err)
		}
		return err == nil
	})
}

// intoTables has the base write into tables what is published.
func (n *node) intoTables() {
	n.t.Helper()
	n.checkpoint()
	if err := n.disk.ForTests().DB().Flush(); err != nil {
		n.t.Fatal(err)
	}
}

// setRaw writes a record into the base as a bug, or a bad disk, could leave it there.
func (n *node) setRaw(pkey, value []byte) {
	n.t.Helper()
	n.checkpoint() // else one comes later, and puts the right record over it
	db := n.disk.ForTests().DB()
	if err := errors.Join(db.Set(pkey, value, pebble.NoSync), db.Flush()); err != nil {
		n.t.Fatal(err)
	}
}

// fill waits until the fill has read everything, then lets its lease pass.
func (n *node) fill() {
	n.t.Helper()
	waitFor(n.t, "fill", func() bool { n.lease(); return n.Filled() })
}

// waitFor polls a condition that other goroutines bring about.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(testPatience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (n *node) put(shard int, key, value string) layout.Version {
	n.t.Helper()
	v, err := n.Put(context.Background(), uint16(shard), []byte(key), []byte(value))
	if err != nil {
		n.t.Fatalf("Put(%s): %v", base.QuoteKey([]byte(key)), err)
	}
	return v
}

func (n *node) del(shard int, key string) bool {
	n.t.Helper()
	existed, err := n.Delete(context.Background(), uint16(shard), []byte(key))
	if err != nil {
		n.t.Fatalf("Delete(%s): %v", base.QuoteKey([]byte(key)), err)
	}
	return existed
}

func (n *node) get(shard int, key string) (string, bool) {
	n.t.Helper()
	v, err := n.Get(context.Background(), uint16(shard), []byte(key), nil)
	if errors.Is(err, ErrNotFound) {
		return "", false
	}
	if err != nil {
		n.t.Fatalf("Get(%s): %v", base.QuoteKey([]byte(key)), err)
	}
	return string(v.Data), true
}

func (n *node) want(shard int, key, value string) {
	n.t.Helper()
	if got, ok := n.get(shard, key); !ok || got != value {
		n.t.Fatalf("Get(%s) = %q, %v; want %q", base.QuoteKey([]byte(key)), clip(got), ok, clip(value))
	}
}

func (n *node) wantAbsent(shard int, key string) {
	n.t.Helper()
	if got, ok := n.get(shard, key); ok {
		n.t.Fatalf("Get(%s) = %q; want nothing", base.QuoteKey([]byte(key)), clip(got))
	}
}

func clip(s string) string {
	if len(s) > 60 {
		return fmt.Sprintf("%s… (%d bytes)", s[:60], len(s))
	}
	return s
}

// pattern is a value of n bytes that tells which one it is.
func pattern(n int, seed string) string {
	return string(bytes.Repeat([]byte(seed+"."), n/(len(seed)+1)+1)[:n])
}

func memFS() *crashfs.Disk { return crashfs.New() }

// deleteIf is the operation of a write that is a delete or a put.
func deleteIf(del bool) Kind {
	if del {
		return OpDelete
	}
	return OpPut
}

// readText returns the content of a small file.
func readText(t testing.TB, fsys vfs.FS, path string) string {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// createText makes a file with this content, and makes it and its name durable.
func createText(fsys vfs.FS, path, text string) error {
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Sync(), f.Close(), syncNames(fsys, fsys.PathDir(path)))
}

// syncNames makes the names in a directory durable.
func syncNames(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// mute is a logger of Pebble's that says nothing.
type mute struct{}

func (mute) Infof(string, ...any)           {}
func (mute) Errorf(string, ...any)          {}
func (mute) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// expirer and forgetter return ones whose steps the test makes. There is one expirer for each
// opening, because it knows how far it has come.
func (n *node) expirer() *upkeep.Expirer {
	if n.expires == nil || n.expiresOf != n.Store {
		n.expires, n.expiresOf = &upkeep.Expirer{Env: n.upkeep()}, n.Store
	}
	return n.expires
}

func (n *node) forgetter() *upkeep.Forgetter {
	return upkeep.NewForgetter(n.upkeep(), n.dedup, n.cfg.Logger)
}

// sweeper returns one whose steps the test makes.
func (n *node) sweeper() residents.SweepForTests {
	return residents.NewSweep(n.residents(), n.filler).ForTests()
}
