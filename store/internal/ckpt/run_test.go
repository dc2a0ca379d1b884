package ckpt

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A watch is virtual time: who sleeps in it wakes when a test moves it.
type watch struct {
	mu     sync.Mutex
	now    time.Time
	asleep chan nap // who goes to sleep says so here
}

// A nap is one sleep.
type nap struct {
	d     time.Duration
	deaf  bool // nothing but the time wakes it
	again chan struct{}
}

func newWatch() *watch {
	return &watch{now: time.Unix(1_800_000_000, 0), asleep: make(chan nap)}
}

func (w *watch) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *watch) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// Sleep is Config.Sleep.
func (w *watch) Sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	n := nap{d: d, deaf: wake == nil, again: make(chan struct{})}
	select {
	case w.asleep <- n:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-n.again:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newTimed is a rig in virtual time.
func newTimed(t *testing.T, change func(*Config)) (*rig, *watch) {
	w := newWatch()
	return newRig(t, func(c *Config) {
		c.Now, c.Sleep = w.Now, w.Sleep
		if change != nil {
			change(c)
		}
	}), w
}

// TestWhenARoundIsDue goes through what makes a round due, and what does not.
func TestWhenARoundIsDue(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		do     func(*rig, *watch)
		due    bool
		wait   time.Duration
	}{
		{name: "nothing was ever written", do: func(*rig, *watch) {}, wait: lookIdle},
		{name: "one write, just now", do: func(r *rig, _ *watch) { r.write(10, write{key: "k"}) }, wait: lookDirty},
		{name: "one write, 9.9 s ago", do: func(r *rig, w *watch) {
			r.write(10, write{key: "k"})
			r.look()
			w.pass(9900 * time.Millisecond)
		}, wait: lookDirty},
		{name: "one write, 10 s ago", do: func(r *rig, w *watch) {
			r.write(10, write{key: "k"})
			r.look()
			w.pass(10 * time.Second)
		}, due: true, wait: lookDirty},
		{name: "10 s after a fact", do: func(r *rig, w *watch) {
			if _, err := r.log.Append(log.Record{Kind: log.Fact, Stream: stream, Name: 1, Body: []byte("x")}); err != nil {
				r.t.Fatal(err)
			}
			r.look()
			w.pass(time.Minute)
		}, wait: lookIdle},
		{name: "too many writes", change: func(c *Config) { c.DirtyWrites = 16 }, do: func(r *rig, _ *watch) { r.fill(1) }, due: true, wait: lookDirty},
		{name: "not yet too many", change: func(c *Config) { c.DirtyWrites = 17 }, do: func(r *rig, _ *watch) { r.fill(1) }, wait: lookDirty},
		{name: "too much memory", change: func(c *Config) { c.DirtyBytes = 1000 }, do: func(r *rig, _ *watch) { r.fill(bound / 4) }, due: true, wait: lookDirty},
		{name: "no more than each shard's first", change: func(c *Config) { c.DirtyBytes = 1000 }, do: func(r *rig, _ *watch) { r.fill(1) }, wait: lookDirty},
		{name: "the log is half full", do: func(r *rig, _ *watch) { r.fill(bound/2 + segment/2) }, due: true, wait: lookDirty},
		{name: "a third of the log", do: func(r *rig, _ *watch) { r.fill(bound / 3) }, wait: lookDirty},
		{name: "no room, and a segment to be had", do: func(r *rig, _ *watch) { r.fill(2 * segment); r.Want() }, due: true, wait: lookDirty},
		{name: "no room, and no segment to be had", do: func(r *rig, _ *watch) {
			r.fill(2 * segment)
			if _, err := r.round(context.Background(), false); err != nil {
				r.t.Fatal(err)
			}
			r.write(10, write{key: "k"})
			r.Want()
		}, wait: lookDirty},
		{name: "somebody waits", do: func(r *rig, _ *watch) {
			r.write(10, write{key: "k"})
			r.requests = append(r.requests, &request{at: r.log.Stats().Passed, done: make(chan struct{})})
		}, due: true, wait: lookSoon},
		{name: "somebody waits for what has not passed", do: func(r *rig, _ *watch) {
			r.write(10, write{key: "k"})
			r.requests = append(r.requests, &request{at: r.log.Stats().Passed + segment/2, done: make(chan struct{})})
		}, wait: lookSoon},
		{name: "dirty, but nothing has passed", change: func(c *Config) { c.DirtyWrites = 1 }, do: func(r *rig, w *watch) {
			r.write(10, write{key: "k"})
			ahead := r.log.Stats().Passed + segment/2
			r.place = checkpoint.Place{At: ahead, Frame: ahead}
			r.look()
			w.pass(time.Hour)
		}, wait: lookDirty},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, w := newTimed(t, tc.change)
			tc.do(r, w)
			if due, wait := r.look(); due != tc.due || wait != tc.wait {
				t.Errorf("due: %v, look again in %v; want %v, %v", due, wait, tc.due, tc.wait)
			}
		})
	}
}

// TestRests: a round that fails is tried again, later each time, and somebody who finds no room
// does not make it come sooner. The next one that succeeds ends that.
func TestRests(t *testing.T) {
	r, w := newTimed(t, func(c *Config) { c.DirtyWrites = 1 })
	var mu sync.Mutex
	fault := error(&tables.FileError{Op: "write", File: "t", Err: syscall.ENOSPC})
	r.begin = func() error {
		mu.Lock()
		defer mu.Unlock()
		return fault
	}
	r.write(10, write{key: "k"})
	r.life.Go(r.Run)
	var rests []time.Duration
	for len(rests) < 8 {
		n := <-w.asleep
		if !n.deaf {
			t.Fatalf("it looks again in %v", n.d)
		}
		rests = append(rests, n.d)
		r.Want()
		select {
		case <-w.asleep:
			t.Fatal("who finds no room has it try without pause")
		case <-time.After(time.Millisecond):
		}
		if len(rests) == 8 {
			mu.Lock()
			fault = nil
			mu.Unlock()
		}
		close(n.again)
	}
	ms := time.Millisecond
	if want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10000 * ms, 10000 * ms}; !slices.Equal(rests, want) {
		t.Errorf("it rests %v, want %v", rests, want)
	}
	if n := <-w.asleep; n.deaf {
		t.Errorf("it rests %v", n.d)
	}
	if s := r.Stats(); s.Failed != 8 || s.Checkpoints != 1 || s.DirtyWrites != 0 {
		t.Errorf("%+v", s)
	}
	if err := r.fenced.Load(); err != nil {
		t.Error(*err)
	}
}

// TestFatal: what no other round mends fences the store, with a text that says what to do.
func TestFatal(t *testing.T) {
	for _, tc := range []struct {
		err  error
		text string // "": it is tried again
	}{
		{&tables.FenceError{Cause: "pebble has given up"}, "store: durability is gone: checkpoint: pebble has given up: the base is in no known state: restart the node"},
		{&tables.OrderError{}, `store: durability is gone: checkpoint: key "" does not come after key "": sort the keys of a batch: the program has an error: keep the directory and report it`},
		{&checkpoint.RecordError{At: 4097, Err: errors.New("kind 9")}, "store: durability is gone: checkpoint: kind 9: record of the log at 0+1001: run the version that wrote it, or a newer one"},
		{&log.DamageError{File: "f"}, "store: durability is gone: checkpoint: log: damaged file f: check the disk, and keep the directory: the next start says what is lost"},
		{log.ErrFailed, "store: durability is gone: checkpoint: log: failed: nothing more can be made durable"},
		{&tables.FileError{Op: "write", File: "t", Err: syscall.EROFS}, ""},
		{&tables.WaitError{Sublevels: 9, Err: context.DeadlineExceeded}, ""},
	} {
		r, w := newTimed(t, func(c *Config) { c.DirtyWrites = 1 })
		r.begin = func() error { return tc.err }
		r.write(10, write{key: "k"})
		r.life.Go(r.Run)
		if tc.text == "" {
			if n := <-w.asleep; !n.deaf {
				t.Errorf("%v: it does not rest", tc.err)
			}
			continue
		}
		<-r.life.Fence.Down
		waitFor(t, "the fence", func() bool { return r.fenced.Load() != nil })
		if err := *r.fenced.Load(); err.Error() != tc.text {
			t.Errorf("fenced: %v\nwant    %s", err, tc.text)
		}
	}
}

// TestNow: on return the base has all that was published at the call.
func TestNow(t *testing.T) {
	r := newRig(t, nil)
	r.life.Go(r.Run)
	if err := r.Now(t.Context()); err != nil {
		t.Error(err)
	}
	for range 20 {
		r.write(10, write{shard: 1, key: "k"})
		if err := r.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := readBase(r.db, 1, []byte("k")); err != nil || v != r.next-1 {
			t.Fatalf("the base has version %v, want %v; %v", v, r.next-1, err)
		}
	}
	// What is published, and has not passed.
	f := r.log.Begin()
	if err := errors.Join(f.AddFact(stream, 1, []byte("fact")), f.Seal(), f.Write(), f.Turn()); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- r.Now(context.Background()) }()
	select {
	case err := <-over:
		t.Fatalf("the base is said to have what has not passed: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	f.Pass()
	if err := <-over; err != nil {
		t.Error(err)
	}
	// Whoever waits is told that it does not come.
	r.begin = func() error { return &tables.FileError{Op: "write", File: "t", Err: syscall.ENOSPC} }
	r.write(10, write{key: "k"})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if err := r.Now(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	go func() { over <- r.Now(context.Background()) }()
	waitFor(t, "the call", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.requests) == 1 })
	r.life.End()
	if err := <-over; !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
	if len(r.requests) != 0 {
		t.Error("somebody waits still")
	}
}

// TestLast: at a stop everything that has passed goes into the base, in as many rounds as it
// takes and without pace; its context bounds it.
func TestLast(t *testing.T) {
	r := newRig(t, nil)
	r.fill(5 * segment)
	passed := r.log.Stats().Passed
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := r.Stats()
	if p := r.inBase(); p.At < passed || s.Place != p || s.DirtyWrites != 0 || s.Behind > segment {
		t.Errorf("the base is at %v of %v; %+v", p.At, passed, s)
	}
	if s.Checkpoints < 2 || s.BytesIn < 4*segment || s.Records == 0 || s.BytesOut == 0 || s.Took == 0 {
		t.Errorf("%+v", s)
	}
	for _, rate := range r.rate {
		if rate != 0 {
			t.Errorf("it is kept to %d bytes a second", rate)
		}
	}
	// An idle log adds an empty frame by itself, and then there is something to do.
	for range 2 {
		if err := r.Last(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := r.Stats().Checkpoints - s.Checkpoints; n > 1 {
		t.Errorf("%d rounds for nothing", n)
	}
	r.write(10, write{key: "k"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Last(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.begin = func() error { return &tables.FenceError{Cause: "planted"} }
	if err := r.Last(t.Context()); !errors.Is(err, tables.ErrFence) || r.fenced.Load() == nil {
		t.Error(err)
	}
}

// TestPace: a round writes at 20 MB/s, or half as fast again as the log grows, or without
// pace when the log is nearly full.
func TestPace(t *testing.T) {
	r, w := newTimed(t, func(c *Config) { c.LogBytes = 2 * bound })
	if rate := r.pace(true); rate != leastRate {
		t.Errorf("%d bytes a second", rate)
	}
	grew := r.log.Stats()
	r.fill(5 * segment)
	s := r.log.Stats()
	n := int64(s.Written + s.Padding - grew.Written - grew.Padding)
	w.pass(100 * time.Millisecond)
	if rate := r.pace(true); rate != leastRate {
		t.Errorf("%d bytes a second, by a look that is too short", rate)
	}
	w.pass(400 * time.Millisecond)
	// An idle log may have added a block or two by itself.
	if rate := r.pace(true); rate < max(leastRate, 3*n) || rate > max(leastRate, 3*n+3*16<<10) {
		t.Errorf("%d bytes a second behind a growth of %d in half a second", rate, n)
	}
	if rate := r.pace(false); rate != 0 {
		t.Errorf("%d bytes a second without pace", rate)
	}
	r.c.LogBytes = int64(float64(s.Bytes) / 0.76)
	if rate := r.pace(true); rate != 0 {
		t.Errorf("%d bytes a second with a log that is nearly full", rate)
	}
}
