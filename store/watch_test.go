package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// watchConfig is testConfig with events.
func watchConfig(fs vfs.FS) Config {
	c := testConfig(fs)
	c.WatchBytes = MinWatchBytes
	return c
}

// page asks for events; the defaults have room for many.
func (n *node) page(from WatchCursor, prefix string) WatchPage {
	n.t.Helper()
	p, err := n.Watch(WatchRequest{From: from, Prefix: []byte(prefix), Values: true, MaxBytes: 1 << 20, Overhead: 16})
	if err != nil {
		n.t.Fatalf("Watch: %v", err)
	}
	return p
}

// cursorNow is where the store is.
func (n *node) cursorNow() WatchCursor { return n.page(WatchCursor{}, "").Next }

// story is what a page says, for comparison.
func story(p WatchPage) (out []string) {
	for _, e := range p.Events {
		s := fmt.Sprintf("%v %s", e.Op, e.Key)
		if e.HasValue {
			s += "=" + clip(string(e.Value))
		}
		if e.More {
			s += " +"
		}
		out = append(out, s)
	}
	return out
}

func wantStory(t *testing.T, p WatchPage, want ...string) {
	t.Helper()
	if got := story(p); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestWatch(t *testing.T) {
	n := open(t, watchConfig(memFS()))
	n.put(0, "a/1", "before")
	at := n.cursorNow()
	v := n.put(0, "a/1", "one")
	n.put(1, "b/1", "other")
	n.put(2, "a/2", "")
	n.del(0, "a/1")
	n.del(0, "a/1") // nothing there any more: no event
	p := n.page(at, "a/")
	wantStory(t, p, "put a/1=one", "put a/2=", "delete a/1")
	if p.Skipped || p.More || p.Events[0].Version != v {
		t.Errorf("skipped %v, more %v, first version %v, want %v", p.Skipped, p.More, p.Events[0].Version, v)
	}
	wantStory(t, n.page(p.Next, "a/"))
	wantStory(t, n.page(WatchCursor{Incarnation: at.Incarnation, Version: v}, "a/"), "put a/2=", "delete a/1")

	// Without values, and with room for one event at a time.
	req := WatchRequest{From: at, MaxBytes: 1, Overhead: 16}
	var got []string
	for range 4 {
		p, err := n.Watch(req)
		if err != nil || len(p.Events) != 1 || p.More == (len(got) == 3) {
			t.Fatalf("after %q: %q, more %v, %v", got, story(p), p.More, err)
		}
		got = append(got, story(p)...)
		req.From = p.Next
	}
	if want := []string{"put a/1", "put b/1", "put a/2", "delete a/1"}; !slices.Equal(got, want) {
		t.Errorf("one by one: %q, want %q", got, want)
	}
	if _, err := n.Watch(WatchRequest{Prefix: make([]byte, layout.MaxKeyLen+1)}); !errors.Is(err, ErrKeyTooLarge) {
		t.Errorf("a prefix longer than a key: %v", err)
	}
	off := open(t, testConfig(memFS()))
	if _, err := off.Watch(WatchRequest{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without events: %v", err)
	}
}

// TestWatchEverything follows writers of all shards with small pages: every
// write is told once, in the order of versions, and a mirror that follows the
// events is the store in the end.
func TestWatchEverything(t *testing.T) {
	c := watchConfig(memFS())
	c.WatchBytes = 4 << 20
	n := open(t, c)
	at := n.cursorNow()
	const writers, each = 4, 400
	done := make(chan struct{})
	for w := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			rng := rand.New(rand.NewPCG(7, uint64(w)))
			for i := range each {
				key := fmt.Sprintf("k%d", rng.IntN(20))
				if rng.IntN(3) == 0 {
					n.Delete(t.Context(), uint16(w), fmt.Appendf(nil, "%d/%s", w, key))
				} else {
					n.Put(t.Context(), uint16(w), fmt.Appendf(nil, "%d/%s", w, key), fmt.Appendf(nil, "v%d", i))
				}
			}
		}()
	}
	mirror := map[string]string{}
	var last layout.Version
	follow := func() {
		for {
			p, err := n.Watch(WatchRequest{From: at, Values: true, MaxBytes: 300, Overhead: 16})
			if err != nil || p.Skipped {
				t.Fatalf("skipped %v, %v", p.Skipped, err)
			}
			for _, e := range p.Events {
				if e.Version <= last {
					t.Fatalf("version %v after %v", e.Version, last)
				}
				last = e.Version
				if _, there := mirror[string(e.Key)]; !there && e.Op == EventDelete {
					t.Fatalf("%q is deleted and was not there", e.Key)
				}
				if mirror[string(e.Key)] = string(e.Value); e.Op == EventDelete {
					delete(mirror, string(e.Key))
				}
			}
			if at = p.Next; !p.More {
				return
			}
		}
	}
	for left := writers; left > 0; {
		select {
		case <-done:
			left--
		default:
			follow()
		}
	}
	follow()
	page, err := n.Scan(t.Context(), ScanRequest{})
	if err != nil || page.More {
		t.Fatalf("more %v, %v", page.More, err)
	}
	if len(page.Entries) != len(mirror) {
		t.Errorf("the mirror has %d keys, the store %d", len(mirror), len(page.Entries))
	}
	for _, e := range page.Entries {
		if mirror[string(e.Key)] != string(e.Value) {
			t.Errorf("%s: mirror %q, store %q", e.Key, mirror[string(e.Key)], e.Value)
		}
	}
}

// TestWatchRestart: behind a clean stop a watch goes on where it was, if it was
// at the end; else, and after a crash, it is told.
func TestWatchRestart(t *testing.T) {
	fs := crashfs.New()
	n := open(t, watchConfig(fs))
	early := n.cursorNow()
	n.put(0, "k", "one")
	end := n.cursorNow()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n = open(t, watchConfig(fs))
	n.put(1, "k2", "two")
	for _, c := range []struct {
		name    string
		from    WatchCursor
		skipped bool
	}{
		{"at the end", end, false},
		{"before it", early, true},
		{"behind it", WatchCursor{Incarnation: end.Incarnation, Version: end.Version + 1}, true},
		{"of another store", WatchCursor{Incarnation: end.Incarnation + 1, Version: end.Version}, true},
		{"of a future of this one", WatchCursor{Incarnation: n.mem.Incarnation, Version: end.Version + 1<<45}, true},
		{"of this life, from its beginning", WatchCursor{Incarnation: n.mem.Incarnation, Version: 0}, false},
	} {
		p := n.page(c.from, "")
		if p.Skipped != c.skipped {
			t.Errorf("%s: skipped %v", c.name, p.Skipped)
		}
		wantStory(t, p, "put k2=two")
	}
	at := n.cursorNow()
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	n = open(t, watchConfig(crashed))
	if p := n.page(at, ""); !p.Skipped || len(p.Events) != 0 {
		t.Errorf("after a crash: skipped %v, %q", p.Skipped, story(p))
	}
	// A life that ended cleanly, but not the one before this.
	if p := n.page(end, ""); !p.Skipped {
		t.Error("two lives later: not told that there was one between")
	}
}

// TestWatchPublished: an event is a promise like a reply. While its write could
// still be lost, nobody is told.
func TestWatchPublished(t *testing.T) {
	fs := newStalledFS()
	n := open(t, watchConfig(fs))
	n.put(0, "k", "old")
	at := n.cursorNow()
	release := fs.stall()
	defer release()
	done := make(chan struct{})
	woken := make(chan struct{}, 1)
	n.AwaitEvents(nil, at, func() { woken <- struct{}{} })
	if err := n.Submit(&Write{Op: Op{Key: []byte("k"), Value: []byte("new")}, Done: func(*Write) { close(done) }}); err != nil {
		t.Fatal(err)
	}
	n.atSync()
	select {
	case <-woken:
		t.Error("woken by what a crash would undo")
	case <-time.After(20 * time.Millisecond): // spent to the end if the rule holds
	}
	if p := n.page(at, ""); len(p.Events) > 0 || p.Next != at {
		t.Fatalf("told %q, which a crash would undo", story(p))
	}
	release()
	<-done
	<-woken
	wantStory(t, n.page(at, ""), "put k=new")
}

// TestWatchRing overruns the ring with values of all sizes: its memory stays
// within its bound, and who was too slow is told.
func TestWatchRing(t *testing.T) {
	n := open(t, watchConfig(memFS()))
	at := n.cursorNow()
	for i, size := range []int{0, 100, n.Events.log.MaxValue(), n.Events.log.MaxValue() + 1, 1 << 20} {
		n.put(i%4, fmt.Sprintf("k%d", i), pattern(size, "x"))
	}
	p := n.page(at, "")
	for i, kept := range []bool{true, true, true, false, false} {
		if e := p.Events[i]; e.HasValue != kept || kept && len(e.Value) != e.ValLen {
			t.Errorf("value of %d bytes: there %v, want %v", e.ValLen, e.HasValue, kept)
		}
	}
	for i := range 2000 {
		n.put(i%4, fmt.Sprintf("k%d", i), pattern(i%5000, "x"))
		if got := n.WatchStats().Bytes; got > MinWatchBytes {
			t.Fatalf("the ring has %d bytes, its bound is %d", got, MinWatchBytes)
		}
	}
	if p = n.page(at, ""); !p.Skipped || len(p.Events) == 0 {
		t.Errorf("far behind: skipped %v, %d events", p.Skipped, len(p.Events))
	}
	if p = n.page(p.Next, ""); p.Skipped {
		t.Error("skipped although it went on where it was")
	}
}

// TestWaiter: whoever waits for a prefix is woken by a key of that prefix, once.
func TestWaiter(t *testing.T) {
	n := open(t, watchConfig(memFS()))
	at := n.cursorNow()
	woken := make(chan string, 10)
	await := func(prefix string) *EventWaiter {
		return n.AwaitEvents([]byte(prefix), at, func() { woken <- prefix })
	}
	gone := await("a")
	for _, prefix := range []string{"", "a", "ab", "b"} {
		if await(prefix) == nil {
			t.Fatalf("%q does not wait", prefix)
		}
	}
	n.ForgetEvents(gone)
	n.ForgetEvents(gone)
	n.put(0, "a", "1")
	got := []string{<-woken, <-woken}
	if slices.Sort(got); !slices.Equal(got, []string{"", "a"}) {
		t.Errorf("woken: %q", got)
	}
	if await("zzz") != nil {
		t.Error("waits although there may be an event already")
	}
	n.put(0, "abc", "1")
	if w := <-woken; w != "ab" {
		t.Errorf("woken: %q, want ab", w)
	}
	n.put(0, "abc", "2")
	// Of a batch each key wakes, the first as well as the last.
	at = n.cursorNow()
	await("c")
	await("d")
	n.do(Write{Op: Op{Kind: OpBatch, Parts: []Part{{Key: []byte("c"), Value: []byte("3")}, {Key: []byte("d"), Value: []byte("3")}}}})
	if n := len(woken); n != 2 {
		t.Fatalf("a batch of two keys that are waited for woke %d", n)
	}
	got = []string{<-woken, <-woken}
	if slices.Sort(got); !slices.Equal(got, []string{"c", "d"}) {
		t.Errorf("woken: %q", got)
	}
	if len(woken) > 0 || n.WatchStats().Waiting != 1 {
		t.Errorf("%d more woken, %d prefixes waited for", len(woken), n.WatchStats().Waiting)
	}
}

// TestWatchBatch: the effects of a batch are told together, marked as one, and
// what had no effect is not told.
func TestWatchBatch(t *testing.T) {
	n := open(t, watchConfig(memFS()))
	at := n.cursorNow()
	part := func(key, value string) Part { return Part{Key: []byte(key), Value: []byte(value)} }
	w := n.do(Write{Op: Op{Shard: 1, Kind: OpBatch, Parts: []Part{
		part("a1", "1"), part("b1", "1"), part("a2", "2"), {Key: []byte("a3"), Delete: true},
	}}})
	n.do(Write{Op: Op{Shard: 1, Kind: OpBatch, Parts: []Part{part("a1", "3"), {Key: []byte("b1"), Value: []byte("3"), If: CondAbsent}}}})
	n.do(Write{Op: Op{Shard: 1, Key: []byte("n"), Kind: OpIncrement, Delta: 7}})
	n.do(Write{Op: Op{Shard: 1, Key: []byte("n"), Kind: OpTouch, TTL: time.Hour}})
	n.do(Write{Op: Op{Shard: 1, Key: []byte("n"), If: CondAbsent, Value: []byte("no")}})
	p := n.page(at, "")
	wantStory(t, p, "put a1=1 +", "put b1=1 +", "put a2=2", "put n=7", "touch n")
	if v := p.Events[2].Version; v > w.Version || p.Events[0].Version != v-2 {
		t.Errorf("versions %v to %v of a batch of version %v", p.Events[0].Version, v, w.Version)
	}
	wantStory(t, n.page(at, "a"), "put a1=1 +", "put a2=2")
	wantStory(t, n.page(at, "b"), "put b1=1")
	one, err := n.Watch(WatchRequest{From: at, Prefix: []byte("a"), MaxBytes: 20, Overhead: 16})
	if err != nil {
		t.Fatal(err)
	}
	wantStory(t, one, "put a1 +")
	wantStory(t, n.page(one.Next, "a"), "put a2=2")
}

// TestWatchExpiry: a key that expires is told of as that.
func TestWatchExpiry(t *testing.T) {
	n := open(t, watchConfig(memFS()))
	at := n.cursorNow()
	n.do(Write{Op: Op{Key: []byte("k"), Value: []byte("v"), TTL: time.Millisecond}})
	n.checkpoint() // lists it
	waitFor(t, "the key to be removed", func() bool { return len(n.page(at, "").Events) == 2 })
	wantStory(t, n.page(at, ""), "put k=v", "expire k")
}
