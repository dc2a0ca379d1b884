package log_test

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 1, "of what is written and of what crashes leave")
	crashEvery = flag.Bool("crash.every", false, "crash at each call of each start, with more seeds")
)

// pair writes frames by two goroutines, so that two are under way.
func (r *run) pair(frames int, always bool) error {
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for range frames {
				if errs[i] = r.put(always); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// overlap returns a hook that makes writes and syncs of segments overlap: one of them is
// held until the next one has begun, or for a moment. With last the first of two ends last.
func overlap() func(logtest.Call) logtest.Fault {
	var mu sync.Mutex
	var waiting chan struct{}
	return func(c logtest.Call) logtest.Fault {
		if c.Op != logtest.OpWrite && c.Op != logtest.OpSync {
			return logtest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		if waiting != nil {
			close(waiting)
			waiting = nil
			return logtest.Fault{}
		}
		ch := make(chan struct{})
		waiting = ch
		time.AfterFunc(200*time.Microsecond, func() {
			mu.Lock()
			defer mu.Unlock()
			if waiting == ch {
				close(ch)
				waiting = nil
			}
		})
		return logtest.Fault{Hold: ch}
	}
}

// trimAll trims the entries but the newest, in a frame of its own.
func (r *run) trimAll(always bool) error {
	r.m.mu.Lock()
	s := r.m.state(len(r.m.frames))
	if s.last <= s.trim+1 {
		r.m.mu.Unlock()
		return nil
	}
	f := r.Begin()
	err := f.AddTrim(entries, s.last-1)
	r.m.ids++
	id := r.m.ids
	rec := log.Record{Kind: log.Write, Stream: writes, Index: id, Body: body(id, 8)}
	if err == nil {
		var b []byte
		b, err = f.Add(&rec, len(rec.Body))
		copy(b, rec.Body)
	}
	if err == nil {
		err = f.Seal()
	}
	if err != nil {
		f.Drop()
		r.m.mu.Unlock()
		return err
	}
	// The log's own record of the trim stands before the write.
	r.m.frames = append(r.m.frames, frame{id: id, at: f.PositionOf(0), recs: []log.Record{rec, {Kind: log.Fact, Name: trimName, Index: s.last - 1}}})
	r.m.mu.Unlock()
	if err = f.Write(); err == nil {
		err = f.Turn()
	}
	if err == nil {
		r.m.mark(id, always)
	}
	f.Pass()
	return err
}

// script is a life that fills segments, frees one, and ends with a clean stop.
func (r *run) script(k kind, d *logtest.Disk) error {
	always := k.sync == log.Always
	r.size = 220 << 10
	if err := r.pair(7, always); err != nil {
		return err
	}
	r.size = 60
	if err := errors.Join(r.pair(3, always), r.sync(), r.trimAll(always), r.sync()); err != nil {
		return err
	}
	before := r.Stats()
	r.release(2)
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		if s := r.Stats(); s.Recycled+s.Removed > before.Recycled+before.Removed {
			break
		}
		if r.Err() != nil || d.Dead() {
			return errors.Join(r.Err(), logtest.ErrCrashed)
		}
		if time.Now().After(until) {
			return fmt.Errorf("%w: no segment was given back: %+v", errWrong, r.Stats())
		}
	}
	r.size = 220 << 10
	if err := r.pair(5, always); err != nil {
		return err
	}
	r.size = 60
	return errors.Join(r.put(always), r.Close(true))
}

// short is a life of a few frames that is killed.
func (r *run) short(k kind) error {
	r.size = 6 << 10
	return errors.Join(r.pair(2, k.sync == log.Always), r.sync())
}

// end closes a log that crashed. What Close says of it does not matter.
func (r *run) end() {
	if r != nil {
		r.Close(false)
	}
}

// TestCrashAtEveryCall cuts the power at each call of a life that fills and frees segments;
// then at each call of the start that follows; then it starts a third time. Each start
// finds one prefix of what was written, with everything in it that was acknowledged or
// told, and nothing that an earlier start has found to be lost.
func TestCrashAtEveryCall(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		t.Parallel()
		inner, step, seeds := 0, 3, uint64(1)
		if *crashEvery {
			step, seeds = 1, 8
		} else if testing.Short() {
			step = 19
		}
		for n := 1 + int(*crashSeed)%step; ; n += step {
			d, m := logtest.New(logtest.Options{Seed: *crashSeed, NoDirect: k.noDirect}), &model{}
			if n%2 == 0 {
				d.OnCall(overlap())
			}
			d.CrashAt(n)
			r, err := m.open(config(d, k.sync), false, *crashSeed)
			if err == nil {
				err = r.script(k, d)
			}
			r.end()
			if err == nil {
				if n < 40 {
					t.Fatalf("only %d calls changed something", n)
				}
				t.Logf("%d calls, %d starts were cut short", n, inner)
				break
			}
			if !crashed(err) {
				t.Fatalf("-crash.seed %d, call %d: %v", *crashSeed, n, err)
			}
			if d.Handles() != 0 {
				t.Fatalf("call %d: %d files were left open", n, d.Handles())
			}
			for s := range seeds {
				seed := s*uint64(step) + uint64(n) + *crashSeed
				if s > 0 {
					seed = seed*0x9e3779b97f4a7c15 + s
				}
				inner += second(t, k, m, d.Crash(seed), n, seed)
			}
		}
	})
}

// second starts a log that the power cut has left, and cuts the power at calls of that
// start; then it starts a third time.
func second(t *testing.T, k kind, m *model, d *logtest.Disk, n int, seed uint64) (starts int) {
	step := 7
	if *crashEvery {
		step = 1
	}
	for c := 1 + n%step; ; c += step {
		d, m := d.Clone(), m.clone()
		where := fmt.Sprintf("-crash.seed %d: call %d, left by %#x, call %d of the next start", *crashSeed, n, seed, c)
		d.CrashAt(c)
		r, err := m.open(config(d, k.sync), false, seed)
		if err == nil {
			err = r.short(k)
		}
		r.end()
		if err != nil && !crashed(err) {
			t.Fatalf("%s: %v", where, err)
		}
		d = d.Crash(seed + uint64(c))
		r, third := m.open(config(d, k.sync), false, seed)
		if third == nil {
			third = errors.Join(r.short(k), r.Close(true))
		}
		if third != nil {
			t.Fatalf("%s, third start: %v", where, third)
		}
		starts++
		if err == nil {
			return starts
		}
	}
}

// TestRandomCrashes writes, syncs, frees, kills and cuts the power by chance, for as long
// as -crash.for says.
func TestRandomCrashes(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		t.Parallel()
		histories := 0
		for until := time.Now().Add(*crashFor); histories == 0 || time.Now().Before(until); histories++ {
			seed := *crashSeed + uint64(histories)
			if err := history(k, seed); err != nil {
				t.Fatalf("-crash.seed %d: %v", seed, err)
			}
		}
		t.Logf("%d histories", histories)
	})
}

var crashFor = flag.Duration("crash.for", time.Second, "how long random histories are tried for each policy")
