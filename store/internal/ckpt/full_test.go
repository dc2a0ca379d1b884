package ckpt

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// TestFullLog: while no checkpoint succeeds the log fills up to its bound; puts are refused
// then, or wait, and deletes are not. When the disk has room again, everybody goes on.
func TestFullLog(t *testing.T) {
	r := newRig(t, nil)
	g := admit.NewGate(1<<30, 1<<20)
	g.With(admit.Log{Room: r.log, Piece: 64 << 10, Large: segment / 2, Bytes: bound, Left: r.Left, Rate: r.Rate, Want: r.Want})
	var full atomic.Bool
	full.Store(true)
	r.begin = func() error {
		if full.Load() {
			return &tables.FileError{Op: "write", File: "t", Err: syscall.ENOSPC}
		}
		return nil
	}
	r.life.Go(r.Run)
	const size = 32 << 10
	// One writer puts until it has to wait for long.
	puts := 0
	put := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		room, err := g.Enter(ctx, r.life.Fence.Down, size, 1, log.Puts)
		if err != nil {
			return err
		}
		puts++
		r.write(size, write{key: "k"})
		g.Return(room)
		g.Leave(size, 1)
		return nil
	}
	err := error(nil)
	// A put may wait for a slow disk, too: less than half of the log is not taken for full.
	for end := time.Now().Add(30 * time.Second); err == nil && puts < 10_000 ||
		errors.Is(err, context.DeadlineExceeded) && puts < bound/2/size && time.Now().Before(end); {
		err = put(time.Second)
	}
	if !errors.Is(err, context.DeadlineExceeded) || puts < bound/2/size || r.log.Stats().Bytes > bound {
		t.Fatalf("%d puts, %d bytes of %d: %v", puts, r.log.Stats().Bytes, bound, err)
	}
	if _, err := g.TryEnter(size, 1, log.Puts); !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("a put: %v", err)
	}
	for range 10 {
		room, err := g.TryEnter(20, 1, log.Deletes)
		if err != nil {
			t.Fatalf("a delete: %v", err)
		}
		r.write(0, write{key: "k", gone: true})
		g.Return(room)
		g.Leave(20, 1)
	}
	if s := r.Stats(); s.Failed == 0 || s.Checkpoints != 0 || r.fenced.Load() != nil {
		t.Errorf("%+v", s)
	}
	full.Store(false)
	for range 2 * bound / size {
		if err := put(30 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.Stats(); s.Checkpoints == 0 {
		t.Errorf("%+v", s)
	}
}

// TestStartReleases: a start tells the log again what the base has, without a round.
func TestStartReleases(t *testing.T) {
	r := newRig(t, nil)
	r.fill(3 * segment)
	if _, err := r.log.Hold(0); err != nil { // a crash comes before anything is given back
		t.Fatal(err)
	}
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Close(false); err != nil {
		t.Fatal(err)
	}
	c := r.c
	c.Place = r.inBase()
	r.openLog(c.Place.Frame)
	if n := r.log.Stats().Segments; n < 5 {
		t.Fatalf("%d segments", n)
	}
	c.Log = r.log
	next := New(c)
	r.life.Go(next.Run)
	waitFor(t, "segments to be given back", func() bool { return r.log.Stats().Segments <= 2 })
	if s := next.Stats(); s.Checkpoints != 0 || s.Place != c.Place {
		t.Errorf("%+v", s)
	}
}
