package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/residents"
)

// sweepAll makes passes over every shard that has traces, by hand.
func (n *node) sweepAll() {
	n.t.Helper()
	sw := n.sweeper()
	for range 2 * len(n.shards) {
		if err := sw.Some(1 << 20); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestSweep: keys that are deleted, or expire, while they are out of memory are
// asked for by SEND, until the sweeper has been there; then a reader proves that
// they are absent. Those that are there keep their slots.
func TestSweep(t *testing.T) {
	c, f := timedConfig(testConfig(memFS()))
	n := open(t, c)
	n.fill()
	r := n.reader()
	const keys = 200
	for i := range keys {
		w := Write{Op: Op{Shard: uint16(i % 4), Key: fmt.Appendf(nil, "key-%d", i), Value: []byte("v")}}
		if i%4 == 3 {
			w.TTL = 20e9
		}
		n.do(w)
		n.evictKey(i%4, fmt.Sprintf("key-%d", i))
	}
	n.sweepAll()
	if st := n.Stats(); st.SlotsSwept != 0 || st.SweptKeys != 0 || st.PebbleOnly != keys {
		t.Fatalf("nothing was deleted: %+v", st)
	}
	for i := 0; i < keys; i += 4 { // of shard 0, one by one
		n.del(0, fmt.Sprintf("key-%d", i))
	}
	batch := Write{Op: Op{Shard: 1, Kind: OpBatch}}
	for i := 1; i < keys; i += 4 { // of shard 1, in a batch
		batch.Parts = append(batch.Parts, Part{Key: fmt.Appendf(nil, "key-%d", i), Delete: true})
	}
	n.do(batch)
	n.checkpoint()
	n.pass(f, 30e9) // of shard 3
	n.expire()
	for i := range keys {
		r.wantAsk(i%4, fmt.Sprintf("key-%d", i))
	}
	n.sweepAll()
	for i := range keys {
		if i%4 == 2 {
			r.wantAsk(2, fmt.Sprintf("key-%d", i))
		} else {
			r.wantAbsent(i%4, fmt.Sprintf("key-%d", i))
		}
	}
	if st := n.Stats(); st.SlotsSwept != keys*3/4 || st.PebbleOnly != keys/4 {
		t.Errorf("%d slots swept, %d left", st.SlotsSwept, st.PebbleOnly)
	}
}

// TestSweepMeetsDamage: a block that cannot be read ends a pass with an error. Keys
// behind it keep their slots, although the pass has not met them.
func TestSweepMeetsDamage(t *testing.T) {
	fs := memFS()
	c := testConfig(fs)
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	const keys = 2000
	n.put(0, "zz", "value") // the last of the shard
	n.evictKey(0, "zz")
	n.del(0, "zz") // leaves a trace of the slot
	n.put(0, "zz", "again")
	n.evictKey(0, "zz")
	for i := range keys {
		n.put(0, fmt.Sprintf("key-%04d", i), pattern(disk.SeparateFrom-24, fmt.Sprint(i)))
	}
	n.checkpoint()
	if err := errors.Join(n.disk.ForTests().DB().Flush(), n.disk.ForTests().DB().Compact(t.Context(), []byte{0}, []byte{0xff, 0xff, 0xff}, false)); err != nil {
		t.Fatal(err)
	}
	n.onlyTablesInForce(fs)
	if flip(t, fs, ".sst", 30) == "" {
		t.Fatal("there is no table")
	}
	sw := n.sweeper()
	if !sw.Begin() {
		t.Fatal("there is no trace")
	}
	steps, err := 0, error(nil)
	for ; err == nil && sweeping(sw); steps++ {
		_, err = sw.Step(residents.SweepStep)
	}
	if err == nil || steps == 0 {
		t.Errorf("the pass ended after %d steps: %v", steps, err)
	}
	if st := n.Stats(); st.SlotsSwept != 0 {
		t.Errorf("%d slots swept", st.SlotsSwept)
	}
	n.reader().wantAsk(0, "zz")
	n.want(0, "zz", "again")
}

// onlyTablesInForce waits until Pebble has removed the files of tables that a compaction has
// replaced. It does so in the background, and the largest file may be one of them.
func (n *node) onlyTablesInForce(fs vfs.FS) {
	n.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := fs.List("/store/data")
		if err != nil {
			n.t.Fatal(err)
		}
		files := 0
		for _, name := range names {
			if strings.HasSuffix(name, ".sst") {
				files++
			}
		}
		tables := 0
		for _, level := range n.disk.ForTests().DB().Metrics().Levels {
			tables += int(level.TablesCount)
		}
		if files == tables {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("there are %d files of tables, and %d tables", files, tables)
		}
	}
}

// TestSweepModel runs random puts, deletes, evictions, promotions, checkpoints and leases
// against a few keys while the sweeper goes on, a few keys of Pebble at a time. No
// reader ever calls a key absent that is there, or finds one that is not.
func TestSweepModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := testConfig(memFS())
	c.noKeeper, c.Sync = true, Off
	n := open(t, c)
	n.fill()
	r := n.reader()
	const keys = 24
	want := make([]string, keys)
	key := func(k int) string { return fmt.Sprintf("key-%d", k) }
	check := func(k int, step int) {
		t.Helper()
		_, got, found, ask := r.get(0, key(k))
		if !ask && (found != (want[k] != "") || found && got != want[k]) {
			t.Fatalf("seed %d, step %d: a reader says of %s %q, %v; it is %q", seed, step, key(k), got, found, want[k])
		}
		if got, found := n.get(0, key(k)); found != (want[k] != "") || got != want[k] {
			t.Fatalf("seed %d, step %d: the server says of %s %q, %v; it is %q", seed, step, key(k), got, found, want[k])
		}
	}
	sw := n.sweeper()
	steps, asked, proved := 30_000, 0, 0
	if underRace {
		steps = 8000
	}
	for step := range steps {
		k := rng.IntN(keys)
		switch x := rng.IntN(100); {
		case x < 20:
			want[k] = fmt.Sprint("value ", step)
			n.put(0, key(k), want[k])
		case x < 35:
			want[k] = ""
			n.del(0, key(k))
		case x < 60:
			n.evictKey(0, key(k))
		case x < 62:
			n.lease()
		case x < 63:
			n.checkpoint() // else the base has nothing that a pass could meet
		case x < 85:
			// A part of a pass: what comes next may be behind it or before it.
			if !sweeping(sw) {
				sw.Begin()
			} else if _, err := sw.Step(1 + rng.IntN(8)); err != nil {
				t.Fatal(err)
			}
		default:
			check(k, step)
			if _, _, _, ask := r.get(0, key(k)); ask {
				asked++
			} else if want[k] == "" {
				proved++
			}
		}
		if step%50 == 0 {
			for k := range keys {
				check(k, step)
			}
		}
	}
	if st := n.Stats(); st.SlotsSwept < uint64(steps)/100 || asked == 0 || proved == 0 {
		t.Errorf("met too little: %d slots swept, %d asked, %d proved absent", st.SlotsSwept, asked, proved)
	}
}

// TestSweepCountsDeletedKeys: deleted keys that Pebble still has are read a few at a
// time, as others are: neither the rate nor the end of the store waits for the next key
// behind all of them.
func TestSweepCountsDeletedKeys(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.Sync = true, Off
	n := open(t, c)
	n.fill()
	const gone = 8 * residents.SweepStep
	n.put(0, "zz", "value")
	n.evictKey(0, "zz")
	n.put(0, "key", "value")
	n.evictKey(0, "key")
	n.del(0, "key") // leaves the trace
	for i := range gone {
		key := fmt.Sprintf("key-%05d", i)
		n.put(0, key, "value")
		n.del(0, key)
	}
	sw := n.sweeper()
	if !sw.Begin() {
		t.Fatal("there is no trace")
	}
	steps, all := 0, 0
	for ; sweeping(sw); steps++ {
		read, err := sw.Step(residents.SweepStep)
		if err != nil {
			t.Fatal(err)
		}
		if read > residents.SweepStep {
			t.Errorf("%d keys in one step", read)
		}
		all += read
	}
	_, counted := sw.Pass()
	if steps < gone/residents.SweepStep || all < gone || counted != all {
		t.Errorf("%d keys in %d steps, %d counted, and %d were deleted", all, steps, counted, gone)
	}
	if st := n.Stats(); st.SlotsSwept != 1 || st.SweptKeys != 1 {
		t.Errorf("%d slots swept, %d keys met", st.SlotsSwept, st.SweptKeys)
	}
	n.reader().wantAsk(0, "zz")
}

// TestSweepWaitsForFlight: a key in Pebble only is deleted, and that is not durable
// yet. Its slot was traced by an earlier delete. The sweeper
// leaves it: a crash may bring the key back, so nobody may be told yet that it is
// absent.
func TestSweepWaitsForFlight(t *testing.T) {
	fs := newStalledFS()
	c := testConfig(fs)
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	n.put(0, "k", "first")
	n.evictKey(0, "k")
	n.del(0, "k")
	n.put(0, "k", "second")
	n.evictKey(0, "k")
	release := fs.stall()
	defer release()
	done := make(chan struct{})
	if err := n.Submit(&Write{Op: Op{Key: []byte("k"), Kind: OpDelete}, Done: func(*Write) { close(done) }}); err != nil {
		t.Fatal(err)
	}
	n.atSync()
	n.sweepAll()
	r := n.reader()
	r.wantAsk(0, "k")
	n.want(0, "k", "second") // what is published, which a crash leaves
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := n.Get(ctx, 0, []byte("k"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Get = %q, %v before the delete is durable", v.Data, err)
	}
	release()
	<-done
	n.sweepAll()
	r.wantAbsent(0, "k")
	n.wantAbsent(0, "k")
}

// TestSweepKeepsShared: a slot whose trace was left by one key stays while
// another that it stands for, too, is there.
func TestSweepKeepsShared(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper = true
	n := open(t, c)
	n.fill()
	r := n.reader()
	n.put(0, "k", "value")
	n.evictKey(0, "k")
	// As a delete of a key leaves it whose hash agrees with k's in the 56 bits.
	sh, h := n.shard(0), n.hash("k")
	sh.Mu.Lock()
	sh.Trace(h)
	sh.Mu.Unlock()
	n.sweepAll()
	r.wantAsk(0, "k")
	n.want(0, "k", "value")
	if st := n.Stats(); st.SlotsSwept != 0 || st.SweptKeys == 0 {
		t.Errorf("%d slots swept, %d keys read", st.SlotsSwept, st.SweptKeys)
	}
}

// TestSweepRuns: the background pass works by itself.
func TestSweepRuns(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.fill()
	n.put(1, "k", "value")
	n.evictKey(1, "k")
	n.del(1, "k")
	waitFor(t, "the slot to be cleared", func() bool { return n.Stats().PebbleOnly == 0 })
	n.reader().wantAbsent(1, "k")
}

// sweeping says whether there is a pass.
func sweeping(sw residents.SweepForTests) bool {
	on, _ := sw.Pass()
	return on
}
