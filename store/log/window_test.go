package log_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// TestReadAhead: a Window reads what ReadAt reads, in whatever order it is asked, of records of all
// sizes and of some that were written after the window had come past their block.
func TestReadAhead(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	policies(t, func(t *testing.T, c log.Config, d *logtest.Disk) {
		l, _ := open(t, c)
		w := log.NewWindow(l)
		type record struct {
			at   log.Position
			body []byte
		}
		var all []record
		check := func(r record) {
			t.Helper()
			got, err := w.ReadAt(r.at)
			if err != nil || !bytes.Equal(got.Body, r.body) || got.Position != r.at {
				t.Fatalf("ReadAt(%v) = %d bytes at %v, %v; want %d bytes", r.at, len(got.Body), got.Position, err, len(r.body))
			}
		}
		for range 60 {
			size := 1 + rnd.IntN(200)
			if rnd.IntN(5) == 0 {
				size = 1 + rnd.IntN(100<<10)
			}
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(rnd.Uint32())
			}
			at, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, record{at, body})
			check(all[len(all)-1])
			check(all[rnd.IntN(len(all))])
		}
		for _, r := range all {
			check(r)
		}
		for range 200 {
			check(all[rnd.IntN(len(all))])
		}
		slices.Reverse(all)
		for _, r := range all {
			check(r)
		}
		for _, r := range all[:10] {
			at := r.at + 8
			want, wantErr := l.ReadAt(at)
			got, err := w.ReadAt(at)
			if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got.Body, want.Body) {
				t.Errorf("ReadAt(%v), where no record begins: %v, and the log says %v", at, err, wantErr)
			}
			if damage := new(log.DamageError); err != nil && !errors.As(err, &damage) {
				t.Errorf("ReadAt(%v): %v is no *DamageError", at, err)
			}
		}
	})
}

// TestReadAheadFreed: what a window has read of a segment is not believed when the segment was
// freed, and not when its file is another segment.
func TestReadAheadFreed(t *testing.T) {
	c := small(logtest.New(logtest.Options{}))
	l, _ := open(t, c)
	w := log.NewWindow(l)
	first, err := l.Append(write(1, "first"))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := w.ReadAt(first); err != nil || string(r.Body) != "first" {
		t.Fatalf("%q, %v", r.Body, err)
	}
	var last log.Position
	for last.Segment() < first.Segment()+3 {
		if last, err = l.Append(log.Record{Kind: log.Write, Stream: 1, Body: make([]byte, 90<<10)}); err != nil {
			t.Fatal(err)
		}
		l.Release(1, last)
	}
	var damage *log.DamageError
	for r, err := w.ReadAt(first); !errors.As(err, &damage); r, err = w.ReadAt(first) {
		if err != nil || string(r.Body) != "first" {
			t.Fatalf("%q, %v", r.Body, err)
		}
		l.Release(1, last) // it goes in a moment
	}
	// Another segment has records at the same offsets.
	for segment := last.Segment(); last.Segment() == segment; {
		if last, err = l.Append(log.Record{Kind: log.Write, Stream: 1, Body: make([]byte, 90<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []log.Position{last, last} {
		if r, err := w.ReadAt(at); err != nil || len(r.Body) != 90<<10 {
			t.Fatalf("%d bytes, %v", len(r.Body), err)
		}
		next, err := l.Append(write(1, "after"))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := w.ReadAt(next); err != nil || string(r.Body) != "after" {
			t.Fatalf("%q, %v", r.Body, err)
		}
	}
}
