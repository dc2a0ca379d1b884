package reads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestExpiredWaits: a key has expired, and a touch that was judged before is in flight. Who
// asks waits for it, and is told the touched value: it never was absent. Nobody waits who can
// be told what is published.
func TestExpiredWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(w *world, key string)
	}{
		{"in memory", func(*world, string) {}},
		{"in the log", func(w *world, key string) { w.evict(key) }},
		{"in the base", func(w *world, key string) { w.evict(key); w.checkpoint() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, vfs.NewMem())
			w.do(base.Op{Key: []byte("k"), Value: []byte("v"), TTL: time.Second})
			w.do(put("other", "o"))
			c.then(w, "k")
			w.order(base.Op{Key: []byte("k"), Kind: base.OpTouch, TTL: time.Hour})
			w.order(put("other", "newer"))
			if v, err := w.reads.Get(t.Context(), 0, []byte("k"), nil); err != nil || string(v.Data) != "v" {
				t.Errorf("before it expires: %q, %v", v.Data, err)
			}
			w.wall = w.wall.Add(2 * time.Second)
			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if _, err := w.reads.Get(short, 0, []byte("k"), nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an answer while the touch is in flight: %v", err)
			}
			if v, err := w.reads.Get(t.Context(), 0, []byte("other"), nil); err != nil || string(v.Data) != "o" {
				t.Errorf("another key: %q, %v", v.Data, err)
			}
			told := make(chan error, 3)
			ask := func(f func() (string, error)) {
				got, err := f()
				if err == nil && got != "v" {
					err = fmt.Errorf("%q", got)
				}
				told <- err
			}
			go ask(func() (string, error) {
				v, err := w.reads.Get(t.Context(), 0, []byte("k"), nil)
				return string(v.Data), err
			})
			go ask(func() (string, error) {
				_, err := w.reads.Stat(t.Context(), 0, []byte("k"))
				return "v", err
			})
			go ask(func() (string, error) {
				p, err := w.reads.Scan(t.Context(), ScanRequest{})
				if err != nil || len(p.Entries) != 1 || !p.More {
					return "", fmt.Errorf("%+v, %w", p, errors.Join(err, errors.New("want one entry, of a later moment")))
				}
				return string(p.Entries[0].Value), nil
			})
			time.Sleep(10 * time.Millisecond)
			w.publish()
			for range 3 {
				if err := <-told; err != nil {
					t.Errorf("the touch is published: %v", err)
				}
			}
		})
	}
}

// TestViewCounts: of a key that the base and the view both have, the view's entry is told,
// though the base may be newer than the view is old: an ingest came in between.
func TestViewCounts(t *testing.T) {
	w := newWorld(t, 1, vfs.NewMem())
	w.do(put("a", "old"))
	w.do(put("b", "old"))
	w.do(put("c", "old"))
	w.checkpoint()
	w.do(put("a", "new"))
	w.do(del("b"))
	w.do(put("d", "new"))
	for _, brought := range []bool{false, true} {
		if brought {
			w.bring(len(w.history), false)
		}
		for _, cold := range []bool{false, true} {
			if cold {
				for _, key := range []string{"a", "c", "d"} {
					w.evict(key)
				}
			}
			p, err := w.reads.Scan(t.Context(), ScanRequest{})
			if err != nil || tell(p) != "a=new, c=old, d=new" {
				t.Errorf("brought %v, cold %v: %s, %v", brought, cold, tell(p), err)
			}
			for key, want := range map[string]string{"a": "a=new, c=old, d=new", "b": "c=old, d=new", "d": "d=new"} {
				p, err := w.reads.Scan(t.Context(), ScanRequest{After: []byte(key), From: true})
				if err != nil || tell(p) != want {
					t.Errorf("from %s: %s, %v; want %s", key, tell(p), err, want)
				}
			}
		}
	}
}

func tell(p ScanPage) string {
	var out []string
	for _, e := range p.Entries {
		out = append(out, fmt.Sprintf("%s=%s", e.Key, clip(string(e.Value))))
	}
	return strings.Join(out, ", ")
}

// TestPageOfLogIsBounded: keys that memory does not have are read from the log, and each costs
// a block of it at least. A page ends when it has read some megabytes, goes on where it ended, and
// keys that were deleted count as keys that it looked at.
func TestPageOfLogIsBounded(t *testing.T) {
	w := newWorld(t, 2, vfs.NewMem())
	w.full = true
	const keys = MaxScanApart/leastRead + 50
	for i := range keys {
		w.do(put(fmt.Sprintf("%c%05d", 'a'+i%2, i), "v"))
	}
	p, err := w.reads.Scan(t.Context(), ScanRequest{Limit: MaxScanLimit})
	if err != nil || len(p.Entries) != MaxScanApart/leastRead+1 || !p.More {
		t.Errorf("%d entries, more %v, %v", len(p.Entries), p.More, err)
	}
	rest, err := w.reads.Scan(t.Context(), ScanRequest{Limit: MaxScanLimit, After: p.Next})
	if err != nil || len(p.Entries)+len(rest.Entries) != keys || rest.More {
		t.Errorf("%d entries behind it, more %v, %v", len(rest.Entries), rest.More, err)
	}
	large := strings.Repeat("x", 100_000)
	for i := range 50 {
		w.do(put(fmt.Sprintf("large%03d", i), large))
	}
	req := ScanRequest{Prefix: []byte("large"), KeysOnly: true}
	if p, err = w.reads.Scan(t.Context(), req); err != nil || len(p.Entries) != MaxScanApart/100_000+1 || !p.More {
		t.Errorf("keys of large values: %d, more %v, %v", len(p.Entries), p.More, err)
	}
	// Values that are asked for count for the page itself.
	req = ScanRequest{Prefix: []byte("large"), MaxBytes: MaxScanBytes}
	if p, err = w.reads.Scan(t.Context(), req); err != nil || len(p.Entries) != 50 || p.More {
		t.Errorf("large values: %d, more %v, %v", len(p.Entries), p.More, err)
	}
	for i := range keys {
		w.do(del(fmt.Sprintf("%c%05d", 'a'+i%2, i)))
	}
	page, err := OpenForTests(w.reads, ScanRequest{}, 100)
	w.fatal(err)
	defer page.Close()
	paused := 0
	p, err = page.Read(t.Context(), ScanRequest{Limit: 10, MaxBytes: 1000, Pause: func() { paused++ }})
	if err != nil || len(p.Entries) != 0 || !p.More || p.Next == nil || paused != 1 {
		t.Errorf("deleted keys: %d entries, more %v behind %q, %d pauses, %v", len(p.Entries), p.More, p.Next, paused, err)
	}
}

// TestDamageInLogIsTold: a record that cannot be read is an error of the answer, counted once,
// and an item of exactly that version stands in for it.
func TestDamageInLogIsTold(t *testing.T) {
	w := newWorld(t, 1, vfs.NewMem())
	w.do(put("k", "v"))
	w.log.err = &log.DamageError{File: "some.log", Detail: "no good record"}
	if p, err := w.reads.Scan(t.Context(), ScanRequest{}); err != nil || tell(p) != "k=v" {
		t.Errorf("with its item: %s, %v", tell(p), err)
	}
	w.evict("k")
	before := w.mem.Counts.Corrupt.Load()
	if _, err := w.reads.Scan(t.Context(), ScanRequest{}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("scan: %v", err)
	}
	if n := w.mem.Counts.Corrupt.Load() - before; n != 1 {
		t.Errorf("it is counted %d times", n)
	}
	if _, err := w.reads.Get(t.Context(), 0, []byte("k"), nil); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("get: %v", err)
	}
	w.log.err = log.ErrClosed
	if _, err := w.reads.Scan(t.Context(), ScanRequest{}); err != base.ErrClosed {
		t.Errorf("a log that was closed: %v", err)
	}
	if n := len(w.log.holds); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

// TestPromotedFromLog: a get brings a key back from the log, unless a write comes in between.
func TestPromotedFromLog(t *testing.T) {
	w := newWorld(t, 1, vfs.NewMem())
	w.do(put("k", "old"))
	for _, write := range []bool{false, true} {
		w.evict("k")
		want := "old"
		if write {
			w.log.before = func(log.Position) {
				w.log.before = nil
				w.full = true // so it is not linked: what the get has read would be
				w.do(put("k", "new"))
				w.full = false
			}
		}
		if v, err := w.reads.Get(t.Context(), 0, []byte("k"), nil); err != nil || string(v.Data) != want {
			t.Fatalf("%q, %v", v.Data, err)
		}
		reads := w.log.reads
		if write {
			want = "new"
		}
		if v, err := w.reads.Get(t.Context(), 0, []byte("k"), nil); err != nil || string(v.Data) != want {
			t.Errorf("behind it: %q, %v; want %s", v.Data, err, want)
		}
		if again := w.log.reads > reads; again != write {
			t.Errorf("it was read again: %v, want %v", again, write)
		}
	}
}

// TestReadersBesideCheckpoints: a writer raises the same number in two keys by batches, while
// checkpoints go on and keys lose their memory. No reader sees a number fall, and no page has
// half of a batch.
func TestReadersBesideCheckpoints(t *testing.T) {
	w := newWorld(t, 1, vfs.NewMem())
	pair := func(n int) base.Op {
		v := fmt.Appendf(nil, "%06d", n)
		return base.Op{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("a"), Value: v}, {Key: []byte("b"), Value: v}}}
	}
	w.do(pair(0))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	reader := func(look func(last string) (string, error)) {
		readers.Go(func() {
			for last := ""; ; {
				select {
				case <-stop:
					return
				default:
				}
				now, err := look(last)
				if err != nil || now < last {
					t.Errorf("%q behind %q, %v", now, last, err)
					return
				}
				last = now
			}
		})
	}
	get := func(string) (string, error) {
		v, err := w.reads.Get(t.Context(), 0, []byte("a"), nil)
		return string(v.Data), err
	}
	reader(get)
	reader(get)
	reader(func(string) (string, error) {
		p, err := w.reads.Scan(t.Context(), ScanRequest{})
		if err == nil && (len(p.Entries) != 2 || string(p.Entries[0].Value) != string(p.Entries[1].Value)) {
			err = fmt.Errorf("half of a batch: %s", tell(p))
		}
		if err != nil {
			return "", err
		}
		return string(p.Entries[0].Value), nil
	})
	for n := 1; n < 1500; n++ {
		w.full = n%3 != 0
		w.do(pair(n))
		if n%2 == 0 {
			w.evict("a")
		}
		if n%5 == 0 {
			w.bring(len(w.history)-n%3, false)
		}
		for n%5 == 2 && w.leave(1) {
		}
	}
	close(stop)
	readers.Wait()
}

// TestBounds: the span of a request has exactly the keys that are asked for.
func TestBounds(t *testing.T) {
	keys := []string{"\x00"}
	for _, a := range []byte("\x00ab\xfe\xff") {
		for _, b := range []string{"", "\x00", "a", "\xff", "\xff\xff", "b\x00"} {
			keys = append(keys, string([]byte{a})+b)
		}
	}
	options := append([]string{""}, keys...)
	for _, prefix := range options {
		for _, after := range options {
			for _, end := range options {
				for _, from := range []bool{false, true} {
					req := ScanRequest{Prefix: []byte(prefix), After: []byte(after), From: from, End: []byte(end)}
					lower, upper, none := req.bounds()
					for _, key := range keys {
						want := strings.HasPrefix(key, prefix) && (after == "" || key > after || from && key == after) && (end == "" || key < end)
						if got := !none && key >= string(lower) && (upper == nil || key < string(upper)); got != want {
							t.Fatalf("prefix %q, after %q (from %v), end %q: %q is in it: %v; from %q to %q", prefix, after, from, end, key, got, lower, upper)
						}
					}
				}
			}
		}
	}
}
