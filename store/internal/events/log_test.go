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
