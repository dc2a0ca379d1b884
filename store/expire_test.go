package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/upkeep"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// timedConfig is a store whose time a test moves: nothing happens by the clock.
func timedConfig(c Config) (Config, *fakeTime) {
	f := newFakeTime()
	c.clock, c.noKeeper = f.source, true
	c.LogBytes = MinLogBytes // a file system in memory is copied with all its files
	return c, f
}

// pass lets time go by for a store without a keeper, in steps that its bound
// allows.
func (n *node) pass(f *fakeTime, d time.Duration) {
	for d > 0 {
		step := min(d, time.Second)
		f.pass(step)
		d -= step
		n.tick()
	}
}

// tick does what runClock does.
func (n *node) tick() {
	n.clock.Tick()
}

// listedKeys counts the entries of expiries in Pebble, behind a checkpoint.
func (n *node) listedKeys() (count int) {
	n.t.Helper()
	n.checkpoint()
	for _, sh := range n.shards {
		lower, upper := disk.KindBounds(sh.ID, disk.KindExpiry)
		iter, err := n.disk.ForTests().DB().NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			n.t.Fatal(err)
		}
		for iter.First(); iter.Valid(); iter.Next() {
			if _, err := disk.ParseRecord(iter.Value(), iter.Key()); err != nil {
				n.t.Errorf("entry %x: %v", iter.Key(), err)
			}
			count++
		}
		if err := iter.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	return count
}

// expire runs the expirer until nothing is due of what a checkpoint has listed.
func (n *node) expire() {
	n.t.Helper()
	n.checkpoint()
	for more := true; more; {
		var err error
		if more, err = n.expirer().Remove(3); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestExpiry follows a key through its life in every place where a key can be:
// in memory, in Pebble alone, across a restart.
func TestExpiry(t *testing.T) {
	for _, where := range []string{"memory", "pebble", "restart"} {
		t.Run(where, func(t *testing.T) {
			c, f := timedConfig(testConfig(memFS()))
			if where == "pebble" {
				hold := make(chan struct{})
				defer close(hold)
				c.holdFill = hold
				c.Memory.(*heapMemory).limit = 1 << 20 // the index, and no item
			}
			n := open(t, c)
			if where != "pebble" {
				n.fill()
			}
			n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("v"), TTL: 10 * time.Second}})
			n.do(Write{Op: Op{Key: []byte("touched"), Value: []byte("v"), TTL: 10 * time.Second}})
			n.do(Write{Op: Op{Key: []byte("5"), Value: []byte("5"), TTL: 10 * time.Second}})
			n.put(0, "always", "v")
			n.pass(f, 5*time.Second)
			if w := n.do(Write{Op: Op{Key: []byte("touched"), Kind: OpTouch, TTL: time.Minute}}); w.Err != nil {
				t.Fatal(w.Err)
			}
			if w := n.do(Write{Op: Op{Key: []byte("5"), Kind: OpIncrement, Delta: 1}}); w.Number != 6 {
				t.Fatal(w.Number, w.Err)
			}
			if where == "restart" {
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				n = open(t, c)
				n.fill()
			}
			info, err := n.Stat(t.Context(), 0, []byte("k"))
			if err != nil || info.Expiry == 0 {
				t.Fatal(info, err)
			}
			n.pass(f, 5*time.Second-time.Millisecond)
			n.want(0, "k", "v")
			n.want(0, "5", "6")
			n.pass(f, time.Millisecond)
			for _, key := range []string{"k", "5"} {
				n.wantAbsent(0, key)
				if _, err := n.Stat(t.Context(), 0, []byte(key)); !errors.Is(err, ErrNotFound) {
					t.Errorf("Stat: %v", err)
				}
				if _, err := n.Hold(t.Context(), 0, []byte(key)); !errors.Is(err, ErrNotFound) {
					t.Errorf("Hold: %v", err)
				}
			}
			n.want(0, "touched", "v")
			n.want(0, "always", "v")
			if w := n.do(Write{Op: Op{Key: []byte("k"), If: CondExists}}); w.Err != ErrCondition || w.Actual != 0 {
				t.Errorf("if it exists: %v, %#x", w.Err, w.Actual)
			}
			if w := n.do(Write{Op: Op{Key: []byte("k"), Kind: OpTouch}}); w.Err != ErrCondition {
				t.Errorf("touch: %v", w.Err)
			}
			if w := n.do(Write{Op: Op{Key: []byte("k"), Kind: OpDelete}}); w.Err != nil || w.Existed {
				t.Errorf("delete: %v, existed %v", w.Err, w.Existed)
			}
			if w := n.do(Write{Op: Op{Key: []byte("5"), Kind: OpIncrement, Delta: 1}}); w.Number != 1 {
				t.Errorf("increment of what has expired: %d", w.Number)
			}
			if info, err := n.Stat(t.Context(), 0, []byte("5")); err != nil || info.Expiry != 0 {
				t.Errorf("it has the expiry of the one before: %v, %v", info, err)
			}
			if w := n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("again"), If: CondAbsent, TTL: time.Second}}); w.Err != nil {
				t.Errorf("if it is absent: %v", w.Err)
			}
			n.want(0, "k", "again")
			n.do(Write{Op: Op{Key: []byte("touched"), Kind: OpTouch}}) // for ever
			n.pass(f, 2*time.Minute)
			n.wantAbsent(0, "k")
			n.want(0, "touched", "v")
			n.expire()
			n.want(0, "touched", "v")
			n.want(0, "5", "1")
			n.wantAbsent(0, "k")
			if left := n.listedKeys(); left != 0 {
				t.Errorf("%d entries of expiries are left", left)
			}
			if _, err := n.record(0, "k"); !errors.Is(err, ErrNotFound) {
				t.Errorf("the expired key is still in Pebble: %v", err)
			}
		})
	}
}

// TestExpirer has many keys expire, rewritten and touched meanwhile, and finds
// that those are gone that have expired, no others, and no entry is left over.
func TestExpirer(t *testing.T) {
	c, f := timedConfig(testConfig(memFS()))
	n := open(t, c)
	n.fill()
	const keys = 400
	for i := range keys {
		key := fmt.Appendf(nil, "key-%03d", i)
		w := Write{Op: Op{Shard: uint16(i % 4), Key: key, Value: key, TTL: time.Duration(1+i%30) * time.Second}}
		n.do(w)
		switch i % 5 {
		case 1:
			w.TTL = 0
			n.do(w)
		case 2:
			w.TTL = time.Hour
			n.do(w)
		case 3:
			n.do(Write{Op: Op{Shard: w.Shard, Key: key, Kind: OpTouch}})
		}
	}
	n.expire()
	for range 31 {
		n.pass(f, time.Second)
		n.expire()
	}
	for i := range keys {
		key := fmt.Sprintf("key-%03d", i)
		if i%5 == 0 || i%5 == 4 {
			n.wantAbsent(i%4, key)
		} else {
			n.want(i%4, key, key)
		}
	}
	if left := n.listedKeys(); left != keys/5 {
		t.Errorf("%d entries are left, want those of an hour", left)
	}
	page, err := n.Scan(context.Background(), ScanRequest{KeysOnly: true})
	if err != nil || len(page.Entries) != keys*3/5 {
		t.Errorf("a scan finds %d keys, %v", len(page.Entries), err)
	}
}

// TestExpiredStaysExpired restarts the store, cleanly and by a crash, with a
// wall clock that went back: what was seen as expired is not seen again.
func TestExpiredStaysExpired(t *testing.T) {
	for _, how := range []string{"clean", "crash"} {
		t.Run(how, func(t *testing.T) { expiredAfterRestart(t, how == "crash") })
	}
}

func expiredAfterRestart(t testing.TB, crash bool) {
	t.Helper()
	fs := crashfs.New()
	c, f := timedConfig(testConfig(fs))
	c.PredecessorGone = true
	n := open(t, c)
	n.fill()
	n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("v"), TTL: 20 * time.Second}})
	n.pass(f, 20*time.Second)
	n.wantAbsent(0, "k")
	if crash {
		c.FS = fs.CrashClone(vfs.CrashCloneCfg{})
	} else if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	f.step(-time.Hour, 0)
	c.Memory = newHeapMemory()
	n = open(t, c)
	if got, ok := n.get(0, "k"); ok {
		t.Errorf("it is back after a restart: %q", got)
	}
	n.fill()
	if got, ok := n.get(0, "k"); ok {
		t.Errorf("it is back after the fill: %q", got)
	}
}

// TestTimeWhileClosed: what expired while the store was closed is gone when it
// is opened.
func TestTimeWhileClosed(t *testing.T) {
	c, f := timedConfig(testConfig(memFS()))
	n := open(t, c)
	n.do(Write{Op: Op{Key: []byte("short"), Value: []byte("v"), TTL: time.Minute}})
	n.do(Write{Op: Op{Key: []byte("long"), Value: []byte("v"), TTL: time.Hour}})
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	f.pass(30 * time.Minute)
	c.Memory = newHeapMemory()
	n = open(t, c)
	n.wantAbsent(0, "short")
	n.want(0, "long", "v")
	n.expire()
	if left := n.listedKeys(); left != 1 {
		t.Errorf("%d entries are left", left)
	}
}

// TestExpirerHeldUp: while the gate is full the expirer removes nothing, and
// comes back to it.
func TestExpirerHeldUp(t *testing.T) {
	fs := newStalledFS()
	c, f := timedConfig(testConfig(fs))
	c.InflightWrites = 3
	n := open(t, c)
	for i := range 10 {
		n.do(Write{Op: Op{Key: fmt.Appendf(nil, "%d", i), TTL: time.Second}})
	}
	n.pass(f, 2*time.Second)
	n.checkpoint()
	release := fs.stall()
	defer release()
	done := make(chan struct{}, c.InflightWrites)
	for range c.InflightWrites {
		if err := n.Submit(&Write{Op: Op{Key: []byte("k")}, Done: func(*Write) { done <- struct{}{} }}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.expirer().Remove(upkeep.ExpireChunk); !errors.Is(err, ErrOverloaded) {
		t.Errorf("with a full gate: %v", err)
	}
	release()
	for range c.InflightWrites {
		<-done
	}
	for range 10 { // three at a time
		n.pass(f, upkeep.ExpireRetry*time.Second)
		if _, err := n.expirer().Remove(upkeep.ExpireChunk); err != nil && !errors.Is(err, ErrOverloaded) {
			t.Fatal(err)
		}
	}
	if left := n.listedKeys(); left != 0 {
		t.Errorf("%d entries are left", left)
	}
}

// TestTouchHides holds a touch between its order and its publishing, while the
// old expiry passes. Nobody may then see the key as expired: neither by SEND,
// nor by the item in memory, which must not be live.
func TestTouchHides(t *testing.T) {
	for _, before := range []string{"nothing", "put", "increment", "put and increment"} {
		t.Run(before+" in flight", func(t *testing.T) {
			inflight := strings.HasPrefix(before, "put")
			fs := newStalledFS()
			c, f := timedConfig(testConfig(fs))
			n := open(t, c)
			n.fill()
			n.do(Write{Op: Op{Key: []byte("warm"), Value: []byte("v"), TTL: time.Hour}})
			put := Write{Op: Op{Key: []byte("k"), Value: []byte("1"), TTL: 3 * time.Second}}
			if !inflight {
				n.do(put)
			}
			stalled := fs.stall()
			published, resume := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { stalled(); close(resume) })
			defer release()
			if inflight {
				// The put is published while the touch behind it is in flight:
				// its callback holds the publisher up.
				put.Done = func(*Write) { close(published); <-resume }
				if err := n.Submit(&put); err != nil {
					t.Fatal(err)
				}
				n.atSync()
			}
			value := "1"
			if strings.HasSuffix(before, "increment") {
				value = "2" // and what it found is still there, published or in flight
				if err := n.Submit(&Write{Op: Op{Key: []byte("k"), Kind: OpIncrement, Delta: 1}, Done: func(*Write) {}}); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan error, 1)
			w := &Write{Op: Op{Key: []byte("k"), Kind: OpTouch, TTL: time.Minute}, Done: func(w *Write) { done <- w.Err }}
			if err := n.Submit(w); err != nil {
				t.Fatal(err)
			}
			if inflight {
				stalled()
				<-published
			}
			f.pass(4 * time.Second)
			n.liveItem("k", false)
			got := make(chan string, 1)
			go func() {
				v, err := n.Get(context.Background(), 0, []byte("k"), nil)
				got <- fmt.Sprintf("%s %v", v.Data, err)
			}()
			select {
			case answer := <-got:
				t.Fatalf("the get did not wait for the touch: %s", answer)
			case <-time.After(20 * time.Millisecond):
			}
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if answer := <-got; answer != value+" <nil>" {
				t.Errorf("get: %s", answer)
			}
			n.liveItem("k", true)
		})
	}
}

// liveItem checks whether there is a live item of a key in memory.
func (n *node) liveItem(key string, want bool) {
	n.t.Helper()
	sh := n.shard(0)
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	it, ok := sh.Resident(n.hash(key), []byte(key))
	if ok != want || ok && !bytes.Equal(it.Key(), []byte(key)) {
		n.t.Errorf("key %q has a live item: %v, want %v", key, ok, want)
	}
}

// TestCrashesDoNotAddUp kills a store forty times in a row. Its time is at most
// 6 s ahead of the wall clock after any of them, so that a key lives for all but
// 6 s of its time; and it meets the wall clock soon after.
func TestCrashesDoNotAddUp(t *testing.T) {
	kills := 40
	if underRace && testing.Short() {
		kills = 10
	}
	for _, life := range []time.Duration{0, 700 * time.Millisecond, 3 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			fs := crashfs.New()
			c, f := timedConfig(testConfig(fs))
			c.PredecessorGone = true
			n := open(t, c)
			n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("v"), TTL: 3 * time.Minute}})
			var passed time.Duration
			for kill := range kills {
				for d := time.Duration(0); d < life; d += 100 * time.Millisecond {
					f.pass(100 * time.Millisecond)
					if d%clock.Every == 0 {
						n.clock.Tick()
					}
				}
				f.pass(50 * time.Millisecond)
				passed += life + 50*time.Millisecond
				fs = fs.CrashClone(vfs.CrashCloneCfg{})
				c.FS, c.Memory = fs, newHeapMemory()
				n = open(t, c)
				if ahead := n.Stats().ClockAhead; ahead > clock.BoundAhead {
					t.Fatalf("kill %d: %v ahead", kill+1, ahead)
				}
				if _, ok := n.get(0, "k"); !ok && passed < 3*time.Minute-clock.BoundAhead {
					t.Fatalf("kill %d: a key of 3 minutes is gone after %v", kill+1, passed)
				}
			}
			n.pass(f, 30*time.Second)
			if ahead := n.Stats().ClockAhead; ahead > 10*time.Millisecond {
				t.Errorf("still %v ahead after half a minute", ahead)
			}
		})
	}
}

// TestRestoredClock: a copy that was made of a live store, whatever crashes that
// has behind it, begins at most 6 s ahead.
func TestRestoredClock(t *testing.T) {
	fs := crashfs.New()
	c, f := timedConfig(testConfig(fs))
	c.PredecessorGone = true
	n := open(t, c)
	n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("v"), TTL: time.Hour}})
	crashes := 20
	if underRace && testing.Short() {
		crashes = 5
	}
	for range crashes {
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
		c.FS, c.Memory = fs, newHeapMemory()
		n = open(t, c)
		f.pass(clock.Every)
		n.clock.Tick()
	}
	if err := n.Backup(t.Context(), "/copy"); err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Memory = "/copy", newHeapMemory()
	n = open(t, c)
	if ahead := n.Stats().ClockAhead; ahead > clock.BoundAhead {
		t.Errorf("a copy begins %v ahead", ahead)
	}
	n.want(0, "k", "v")
}
