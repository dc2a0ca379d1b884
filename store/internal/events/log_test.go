package events

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// TestWatchIdle: what nobody asks for is not kept.
func TestWatchIdle(t *testing.T) {
	w := New(MinBytes, 5, layout.MakeVersion(1, 0), Cursor{})
	v := layout.MakeVersion(1, 0)
	note := func(key string) {
		v++
		w.Begin()
		w.Add(v, Put, []byte(key), []byte("1"), false)
		w.End()
	}
	page := func(from Cursor) Page {
		return w.Page(Request{From: from, Values: true, MaxBytes: 1 << 20})
	}
	at := page(Cursor{}).Next
	note("a")
	w.now = func() time.Time { return time.Now().Add(2 * idle) }
	note("b")
	if off, kept := w.off, w.ring.bytes(); !off || kept != 0 {
		t.Errorf("off %v, %d bytes kept", off, kept)
	}
	if p := page(at); !p.Skipped {
		t.Error("not told that events were not kept")
	}
	at = page(Cursor{}).Next
	note("c")
	if p := page(at); p.Skipped || len(p.Events) != 1 || string(p.Events[0].Key) != "c" || string(p.Events[0].Value) != "1" {
		t.Errorf("asked again: %+v", p)
	}
}

// TestWatchModel compares random events, batches among them, page by page with
// a plain list.
func TestWatchModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		w := New(MinBytes, 5, layout.MakeVersion(1, 0), Cursor{})
		type event struct {
			v     layout.Version
			key   string
			value string
			batch int
		}
		var all []event
		v := layout.MakeVersion(1, 0)
		for b := range rng.IntN(200) {
			parts := 1
			if rng.IntN(3) == 0 {
				parts = 1 + rng.IntN(9)
			}
			w.Begin()
			for i := range parts {
				v++
				e := event{v, fmt.Sprintf("%c%d", 'a'+rng.IntN(3), rng.IntN(100)), strings.Repeat("v", rng.IntN(50)), b}
				all = append(all, e)
				w.Add(v, Put, []byte(e.key), []byte(e.value), i < parts-1)
			}
			w.End()
		}
		prefix := []string{"", "a", "b", "zz"}[rng.IntN(4)]
		from := Cursor{5, layout.MakeVersion(1, uint64(rng.IntN(len(all)+1)))}
		var want []event
		for _, e := range all {
			if e.v > from.Version && bytes.HasPrefix([]byte(e.key), []byte(prefix)) {
				want = append(want, e)
			}
		}
		for more := true; more; {
			p := w.Page(Request{From: from, Prefix: []byte(prefix), Values: true, MaxBytes: 100 + rng.IntN(400), Overhead: 16})
			if p.Skipped {
				t.Fatalf("seed %d: skipped", seed)
			}
			for _, e := range p.Events {
				if len(want) == 0 {
					t.Fatalf("seed %d: event %v too many", seed, e)
				}
				x := want[0]
				want = want[1:]
				same := len(want) > 0 && want[0].batch == x.batch
				if e.Version != x.v || string(e.Key) != x.key || string(e.Value) != x.value || e.More != same {
					t.Fatalf("seed %d: %v %s=%s more %v, want %+v more %v", seed, e.Version, e.Key, e.Value, e.More, x, same)
				}
			}
			from, more = p.Next, p.More
		}
		if len(want) > 0 || from.Version != v {
			t.Fatalf("seed %d: %d events were not told; at %v of %v", seed, len(want), from.Version, v)
		}
	}
}

// TestWatchOfAGroup: replicas of a group have the same events, whatever each has beside them. A cursor of one is good at the others, by its
// number; one that stands before what a replica has, or behind all that it has, is told a gap; and none that a client has made up does harm.
func TestWatchOfAGroup(t *testing.T) {
	version := func(n uint64) layout.Version { return layout.NumberedVersion(n, uint16(n%3)) }
	note := func(l *Log, from, to uint64) {
		for n := from; n <= to; n++ {
			if n%5 == 0 { // a write that is no event
				l.Pass(version(n))
				continue
			}
			l.Begin()
			l.Add(version(n), Put, fmt.Append(nil, n), nil, false)
			l.End()
		}
	}
	a := NewOfGroup(MinBytes, 7, 0)
	note(a, 1, 40)
	b := NewOfGroup(MinBytes, 7, layout.NumberedVersion(20, 0)) // its base has 20 writes
	note(b, 21, 40)
	c := NewOfGroup(MinBytes, 7, 0)
	note(c, 1, 12)
	page := func(l *Log, from Cursor) (text string) {
		p := l.Page(Request{From: from, MaxBytes: 1 << 20})
		if p.Next.Incarnation != 7 {
			t.Errorf("a cursor of %d", p.Next.Incarnation)
		}
		if p.Skipped {
			text = "gap"
		}
		if len(p.Events) > 0 {
			text += fmt.Sprintf("%s-%s", p.Events[0].Key, p.Events[len(p.Events)-1].Key)
		}
		return text
	}
	for _, x := range []struct {
		n       uint64
		a, b, c string
	}{
		{0, "1-39", "gap21-39", "1-12"},
		{10, "11-39", "gap21-39", "11-12"},
		{12, "13-39", "gap21-39", ""},
		{19, "21-39", "gap21-39", "gap1-12"},
		{20, "21-39", "21-39", "gap1-12"}, // of whichever shard it was
		{33, "34-39", "34-39", "gap1-12"},
		{39, "", "", "gap1-12"},
		{40, "", "", "gap1-12"},
		{41, "gap1-39", "gap21-39", "gap1-12"},
		{1<<52 - 1, "gap1-39", "gap21-39", "gap1-12"},
	} {
		for _, shard := range []uint64{0, 1, layout.MaxShards - 1} {
			from := Cursor{Incarnation: 7, Version: layout.Version(x.n<<12 | shard)}
			if got := [3]string{page(a, from), page(b, from), page(c, from)}; got != [3]string{x.a, x.b, x.c} {
				t.Errorf("behind %d of shard %d: %q, want %q", x.n, shard, got, [3]string{x.a, x.b, x.c})
			}
		}
	}
	if got := page(a, Cursor{Incarnation: 8, Version: version(39)}); got != "gap1-39" {
		t.Errorf("of another group: %q", got)
	}
	// Whoever waits behind the last write, whatever shard it names, waits, and is woken when another state takes the place of this one.
	woken := 0
	at := Cursor{Incarnation: 7, Version: layout.NumberedVersion(12, 2)}
	if c.Await(nil, at, func() { woken++ }) == nil {
		t.Fatal("it does not wait")
	}
	if c.Await(nil, Cursor{Incarnation: 7, Version: version(11)}, func() {}) != nil {
		t.Error("it waits for what is there")
	}
	c.Restart(layout.NumberedVersion(30, 0))
	if woken != 1 || c.Stats().Waiting != 0 || c.Stats().Events != 0 {
		t.Errorf("woken %d times, %+v", woken, c.Stats())
	}
	if got := page(c, at); got != "gap" {
		t.Errorf("behind another state: %q", got)
	}
	note(c, 31, 33)
	if got := page(c, Cursor{Incarnation: 7, Version: version(30)}); got != "31-33" {
		t.Errorf("behind what the state has: %q", got)
	}
	// A replica that does not lead is asked nothing, and keeps its events while it is told that somebody watches.
	c.now = func() time.Time { return time.Now().Add(2 * idle) }
	c.Keep()
	note(c, 34, 34)
	c.now = func() time.Time { return time.Now().Add(3*idle - time.Second) }
	note(c, 36, 36)
	if got := page(c, Cursor{Incarnation: 7, Version: version(33)}); got != "34-36" {
		t.Errorf("kept: %q", got)
	}
	c.now = func() time.Time { return time.Now().Add(5 * idle) }
	note(c, 37, 38)
	if c.Keep(); !c.off && page(c, Cursor{Incarnation: 7, Version: version(37)}) != "gap" {
		t.Error("what nobody was told of is not kept, and no gap is told")
	}
}
