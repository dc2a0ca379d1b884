package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// rid is a request id of one client.
func rid(slot uint16, seq uint64) RequestID {
	return RequestID{Client: [16]byte{7, 1}, Slot: slot, Seq: seq}
}

// sent is the same request sent again after some time.
func sent(id RequestID, age time.Duration) RequestID {
	id.Age = age
	return id
}

// TestRetries sends every kind of write a second time, at once, after a clean
// restart and after a crash. It has taken effect once, and the second answer is
// the first.
func TestRetries(t *testing.T) {
	for _, how := range []string{"at once", "clean", "crash"} {
		t.Run(how, func(t *testing.T) {
			fs := crashfs.New()
			c := testConfig(fs)
			c.PredecessorGone = true
			n := open(t, c)
			n.fill()
			at := n.put(1, "versioned", "v")
			n.put(1, "number", "41")
			n.put(1, "text", "x")
			n.put(1, "gone", "x")
			writes := []Write{
				{Op: Op{Key: []byte("put"), Value: []byte("v")}},
				{Op: Op{Key: []byte("absent"), Value: []byte("v"), If: CondAbsent}},
				{Op: Op{Key: []byte("versioned"), Value: []byte("w"), If: CondVersion, IfVersion: at}},
				{Op: Op{Key: []byte("text"), Value: []byte("w"), If: CondAbsent}}, // refused
				{Op: Op{Key: []byte("gone"), Kind: OpDelete}},
				{Op: Op{Key: []byte("never"), Kind: OpDelete}},
				{Op: Op{Key: []byte("number"), Kind: OpIncrement, Delta: 1}},
				{Op: Op{Key: []byte("text"), Kind: OpIncrement, Delta: 1}}, // refused
				{Op: Op{Key: []byte("text"), Kind: OpTouch, TTL: time.Hour}},
				{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("a"), Value: []byte("1"), If: CondAbsent}, {Key: []byte("b"), Value: []byte("2")}}}},
				{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("c"), Value: []byte("1")}, {Key: []byte("text"), If: CondAbsent}}}}, // refused
			}
			first := make([]*Write, len(writes))
			for i := range writes {
				writes[i].Shard, writes[i].ID = 1, rid(uint16(i), 5)
				first[i] = n.do(writes[i])
			}
			// Somebody else writes them all, so that an effect would show.
			for _, key := range []string{"put", "absent", "versioned", "gone", "number", "a", "b"} {
				n.put(1, key, "42")
			}
			switch how {
			case "clean":
				if err := n.Close(); err != nil {
					t.Fatal(err)
				}
				n = open(t, testConfig(fs))
			case "crash":
				c = testConfig(fs.CrashClone(vfs.CrashCloneCfg{}))
				c.PredecessorGone = true
				n = open(t, c)
			}
			for i := range writes {
				writes[i].ID = sent(writes[i].ID, time.Second)
				got, want := n.do(writes[i]), first[i]
				if got.Err != want.Err || got.Version != want.Version || got.Actual != want.Actual || got.Number != want.Number ||
					got.Existed != want.Existed || got.Part != want.Part {
					t.Errorf("%v of %q again: %v at %#x, actual %#x, number %d, existed %v, part %d; before: %v at %#x, %#x, %d, %v, %d",
						want.Kind, want.Key, got.Err, got.Version, got.Actual, got.Number, got.Existed, got.Part,
						want.Err, want.Version, want.Actual, want.Number, want.Existed, want.Part)
				}
			}
			for _, key := range []string{"put", "absent", "versioned", "gone", "number", "a", "b"} {
				n.want(1, key, "42")
			}
			n.want(1, "text", "x")
			n.wantAbsent(1, "c")
		})
	}
}

// TestRetryInFlight sends a request again while the first is in flight. The
// second waits for the first and has its result.
func TestRetryInFlight(t *testing.T) {
	fs := newStalledFS()
	n := open(t, testConfig(fs))
	n.fill()
	n.put(0, "n", "1")
	release := fs.stall()
	defer release()
	const copies = 5
	done := make(chan *Write, copies)
	for i := range copies {
		w := &Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(0, 1), time.Duration(i)*time.Millisecond)}, Done: func(w *Write) { done <- w }}
		if err := n.Submit(w); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case w := <-done:
		t.Fatalf("answered before the first was durable: %d, %v", w.Number, w.Err)
	case <-time.After(10 * time.Millisecond):
	}
	release()
	var version = (<-done).Version
	for range copies - 1 {
		if w := <-done; w.Err != nil || w.Number != 2 || w.Version != version {
			t.Errorf("a copy says %d at %#x, %v", w.Number, w.Version, w.Err)
		}
	}
	n.want(0, "n", "2")
}

// TestRequestsTooLate is the table of what is not applied because it may have
// been.
func TestRequestsTooLate(t *testing.T) {
	n := open(t, testConfig(memFS()))
	n.do(Write{Op: Op{Key: []byte("k"), ID: rid(1, 10)}})
	for _, tc := range []struct {
		name string
		id   RequestID
		want error
	}{
		{"lower number", rid(1, 9), ErrOutcomeUnknown},
		{"lower number, first sending", rid(1, 1), ErrOutcomeUnknown},
		{"old, of a known slot", sent(rid(1, 11), MaxRetryAge+1), ErrOutcomeUnknown},
		{"old, of an unknown slot", sent(rid(2, 1), MaxRetryAge+1), ErrOutcomeUnknown},
		{"old enough, of an unknown slot", sent(rid(3, 1), MaxRetryAge), nil},
		{"the same, old", sent(rid(1, 10), time.Hour), nil},
		{"higher number", rid(1, 12), nil},
		{"the one before", rid(1, 10), ErrOutcomeUnknown},
	} {
		w := &Write{Op: Op{Key: []byte("k"), Value: []byte(tc.name), ID: tc.id}}
		if err := n.Do(t.Context(), w); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	n.want(0, "k", "higher number")
}

// TestResultsForgotten lets results go, by silence and because there are too
// many. What is then sent again is not applied; what is new is.
func TestResultsForgotten(t *testing.T) {
	c := testConfig(memFS())
	c.noKeeper, c.dedupEntries = true, dedup.Stripes*8
	n := open(t, c)
	n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: rid(0, 1)}})
	for range dedup.ForgetAfter / dedup.TickEvery {
		n.dedup.Tick()
	}
	// A retry as old as may be is still known, and keeps the result.
	if w := n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(0, 1), dedup.ForgetAfter)}}); w.Number != 1 || w.Err != nil {
		t.Fatalf("after 10 minutes: %d, %v", w.Number, w.Err)
	}
	for range dedup.ForgetAfter/dedup.TickEvery + 1 {
		n.dedup.Tick()
	}
	if n.dedup.Count() != 0 {
		t.Fatalf("%d results are kept after 10 minutes of silence", n.dedup.Count())
	}
	if err := n.Do(t.Context(), &Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(0, 1), dedup.ForgetAfter)}}); err != ErrOutcomeUnknown {
		t.Errorf("after 20 minutes: %v", err)
	}
	// More slots than fit: the oldest go.
	for slot := range uint16(100) {
		n.dedup.Tick()
		n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: rid(slot, 7)}})
	}
	if got := n.dedup.Count(); got > c.dedupEntries {
		t.Errorf("%d results are kept, bound %d", got, c.dedupEntries)
	}
	n.want(0, "n", "101")
	if err := n.Do(t.Context(), &Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(1, 7), 99*dedup.TickEvery)}}); err != ErrOutcomeUnknown {
		t.Errorf("a retry of a dropped result: %v", err)
	}
	if w := n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(99, 7), time.Second)}}); w.Number != 101 {
		t.Errorf("a retry of a kept result: %d", w.Number)
	}
	if w := n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: rid(1000, 1)}}); w.Number != 102 {
		t.Errorf("a new slot: %d", w.Number)
	}
	// On the disk they are removed behind that.
	if got := n.recordsOnDisk(); got < 100 {
		t.Errorf("%d records on the disk", got)
	}
	if err := n.forgetter().Some(); err != nil {
		t.Fatal(err)
	}
	if got := n.recordsOnDisk(); got != n.dedup.Count() {
		t.Errorf("%d records on the disk, %d in the table", got, n.dedup.Count())
	}
	n.want(0, "n", "102")
	// The next incarnation knows that it does not know all.
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	if err := n.Do(t.Context(), &Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(1, 7), time.Second)}}); err != ErrOutcomeUnknown {
		t.Errorf("a retry of a dropped result after a restart: %v", err)
	}
	if w := n.do(Write{Op: Op{Key: []byte("n"), Kind: OpIncrement, Delta: 1, ID: sent(rid(99, 7), time.Second)}}); w.Number != 101 {
		t.Errorf("a retry of a kept result after a restart: %d", w.Number)
	}
	for range 2 * dedup.ForgetAfter / dedup.TickEvery {
		n.dedup.Tick()
	}
	if err := n.disk.NoteShort(n.dedup.Short); err != nil || n.disk.Short() {
		t.Errorf("the mark stays: %v", err)
	}
}

// recordsOnDisk counts the records of results, behind a checkpoint.
func (n *node) recordsOnDisk() (count int) {
	n.t.Helper()
	n.checkpoint()
	for _, sh := range n.shards {
		if err := n.disk.EachResult(sh.ID, nil, func([]byte, base.SlotKey, dedup.Result) bool { count++; return true }); err != nil {
			n.t.Fatal(err)
		}
	}
	return count
}

// TestSlotMovesBetweenShards: a slot has one entry, whatever shards its requests
// went to, and after a restart the newest is the one that counts.
func TestSlotMovesBetweenShards(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	for seq := range uint64(20) {
		n.do(Write{Op: Op{Shard: uint16(seq % 4), Key: fmt.Appendf(nil, "k%d", seq%4), Kind: OpIncrement, Delta: 1, ID: rid(3, seq+1)}})
	}
	if n.dedup.Count() != 1 || n.recordsOnDisk() != 4 {
		t.Errorf("%d entries, %d records", n.dedup.Count(), n.recordsOnDisk())
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, testConfig(fs))
	for seq := uint64(1); seq < 20; seq++ {
		if err := n.Do(t.Context(), &Write{Op: Op{Shard: uint16((seq - 1) % 4), Key: []byte("x"), ID: sent(rid(3, seq), 1)}}); err != ErrOutcomeUnknown {
			t.Errorf("request %d again: %v", seq, err)
		}
	}
	if w := n.do(Write{Op: Op{Shard: 3, Key: []byte("k3"), Kind: OpIncrement, Delta: 1, ID: sent(rid(3, 20), 1)}}); w.Number != 5 {
		t.Errorf("the newest again: %d", w.Number)
	}
	n.checkpoint()
	if err := n.forgetter().Some(); err != nil {
		t.Fatal(err)
	}
	if got := n.recordsOnDisk(); got != 1 {
		t.Errorf("%d records are left", got)
	}
}

// TestDamagedRecordRefused: with a record that cannot be read a retry could be
// applied twice, so the store does not open.
func TestDamagedRecordRefused(t *testing.T) {
	fs := memFS()
	n := open(t, testConfig(fs))
	n.do(Write{Op: Op{Key: []byte("k"), ID: rid(3, 1)}})
	n.checkpoint()
	k := base.SlotKey{Client: rid(3, 1).Client, Slot: 3}
	pkey := k.Append(disk.AppendKey(nil, 0, disk.KindDedup, nil))
	value, closer, err := n.disk.ForTests().DB().Get(pkey)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), value...)
	closer.Close()
	bad[len(bad)-1] ^= 1
	db := n.disk.ForTests().DB()
	if err := errors.Join(db.Set(pkey, bad, pebble.NoSync), db.Flush()); err != nil { // a base has no log
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, testConfig(fs)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
}
