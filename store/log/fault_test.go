package log_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// TestFaultAtEveryCall lets one call of a life fail, for each call: with an error, with a
// short write, or with a sync after which the pages are clean and not on the disk. From
// then on every call succeeds, so a second try would pass. A log that has failed
// acknowledges nothing any more, and the next opening finds everything that was
// acknowledged, after a kill and after a power cut.
func TestFaultAtEveryCall(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		t.Parallel()
		step := 2
		if *crashEvery {
			step = 1
		} else if testing.Short() {
			step = 13
		}
		faults := []logtest.Fault{{Err: syscall.EIO}, {Err: syscall.EIO, Lost: true}, {Short: 1000}, {Err: syscall.ENOSPC}}
		failed := 0
		for n := 1 + int(*crashSeed)%step; ; n += step {
			where := fmt.Sprintf("-crash.seed %d, call %d", *crashSeed, n)
			d, m := logtest.New(logtest.Options{Seed: *crashSeed + uint64(n), NoDirect: k.noDirect}), &model{}
			var hit *logtest.Call
			fault := faults[n/step%len(faults)]
			d.OnCall(func(c logtest.Call) logtest.Fault {
				// The overlap of writes is a matter of chance, the number of the call is not.
				if c.N != n {
					return logtest.Fault{}
				}
				hit = &c
				f := fault
				if f.Short > 0 && (c.Op != logtest.OpWrite || c.Len <= f.Short) {
					f = logtest.Fault{Err: syscall.EIO}
				}
				return f
			})
			r, err := m.open(config(d, k.sync), false, *crashSeed)
			if err == nil {
				err = r.faulty(k, d)
			}
			r.end()
			if hit == nil {
				if err != nil {
					t.Fatalf("%s was not made: %v", where, err)
				}
				if failed < n/step/3 {
					t.Fatalf("only %d of %d faults have made the log fail", failed, n/step)
				}
				break
			}
			where += fmt.Sprintf(" (%v)", *hit)
			if errors.Is(err, errWrong) {
				t.Fatalf("%s: %v", where, err)
			}
			if errors.Is(err, log.ErrFailed) {
				failed++
			}
			if got := d.Handles(); got != 0 {
				t.Fatalf("%s: %d files were left open", where, got)
			}
			for i, next := range []*logtest.Disk{d.Clone().Kill(uint64(n)), d.Clone().Crash(0), d.Clone().Crash(uint64(n))} {
				m := m.clone()
				// After a failure the kernel may have lost what it had taken.
				r, err := m.open(config(next, k.sync), i == 0 && !fault.Lost && fault.Short == 0, *crashSeed)
				if err == nil {
					err = errors.Join(r.short(k), r.Close(true))
				}
				if err != nil {
					t.Fatalf("%s, opening %d: %v", where, i, err)
				}
			}
		}
	})
}

// faulty is script, but goes on where the log has failed: nothing may be acknowledged then.
func (r *run) faulty(k kind, d *logtest.Disk) error {
	err := r.script(k, d)
	if !errors.Is(r.Err(), log.ErrFailed) {
		return err
	}
	for range 3 {
		if r.put(k.sync == log.Always) == nil || r.Sync() == nil {
			return fmt.Errorf("%w: after %w it has acknowledged a frame", errWrong, r.Err())
		}
	}
	return r.Err()
}

// TestOneFailureIsTheLast: after one write or sync that failed not one more byte is written
// and no sync is tried again, although the disk would take both.
func TestOneFailureIsTheLast(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, op := range []logtest.Op{logtest.OpWrite, logtest.OpSync} {
			d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
			r, err := m.open(config(d, k.sync), false, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.put(false), r.sync()); err != nil {
				t.Fatal(err)
			}
			met, after := atomic.Bool{}, atomic.Int64{}
			d.OnCall(func(c logtest.Call) logtest.Fault {
				// Files that are being made are no segments yet, and may fail.
				if strings.HasSuffix(c.Name, ".new") {
					return logtest.Fault{}
				}
				if c.Op == logtest.OpWrite || c.Op == logtest.OpSync {
					after.Add(1)
				}
				if c.Op == op && met.CompareAndSwap(false, true) {
					after.Store(0)
					return logtest.Fault{Err: syscall.EIO, Lost: op == logtest.OpSync}
				}
				return logtest.Fault{}
			})
			err = r.put(false)
			if err == nil {
				err = r.sync()
			}
			if !met.Load() {
				if op == logtest.OpWrite || k.sync != log.Always || k.noDirect {
					t.Errorf("no %v was made", op)
				}
				r.end()
				continue // a direct write needs no sync
			}
			if !errors.Is(err, log.ErrFailed) || !errors.Is(err, syscall.EIO) || !errors.Is(r.Err(), log.ErrFailed) {
				t.Errorf("%v that fails: %v; the log says %v", op, err, r.Err())
			}
			for range 3 {
				if err := r.put(false); !errors.Is(err, log.ErrFailed) {
					t.Errorf("a frame after the failure: %v", err)
				}
				if err := r.Sync(); !errors.Is(err, log.ErrFailed) {
					t.Errorf("a sync after the failure: %v", err)
				}
			}
			if err := r.Close(true); !errors.Is(err, log.ErrFailed) {
				t.Errorf("a clean stop after the failure: %v", err)
			}
			if n := after.Load(); n != 0 {
				t.Errorf("%d writes and syncs after the failure", n)
			}
			if r, err = m.open(config(d.Clone().Crash(1), k.sync), false, 2); err != nil {
				t.Error("after a power cut:", err)
			} else if r.Found().Clean {
				t.Error("a log that failed has ended by a clean stop")
			}
			r.end()
		}
	})
}

// TestDiskFull: a disk without room for the next segment is no failure. What is asked for
// is refused, and once there is room the log goes on.
func TestDiskFull(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
		r, err := m.open(config(d, k.sync), false, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { r.end() }()
		always := k.sync == log.Always
		d.OnCall(func(c logtest.Call) logtest.Fault {
			if c.Op == logtest.OpCreate {
				return logtest.Fault{Err: syscall.ENOSPC}
			}
			return logtest.Fault{}
		})
		r.size = 220 << 10
		for n := 0; ; n++ {
			if err = r.put(always); err != nil {
				break
			}
			if n == 200 {
				t.Fatal("the log has room without end on a full disk")
			}
		}
		if !errors.Is(err, log.ErrFull) || errors.Is(err, log.ErrFailed) || r.Err() != nil {
			t.Fatalf("a full disk: %v; the log says %v", err, r.Err())
		}
		d.OnCall(nil)
		if err := errors.Join(r.put(always), r.pair(10, always), r.sync(), r.Close(true)); err != nil {
			t.Fatal("with room again:", err)
		}
		if r, err = m.open(config(d.Crash(0), k.sync), false, 2); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLostWhileRunning: the file of a segment is gone when the segment is given back. The
// log fails; if it went on, a name without a file would count as free.
func TestLostWhileRunning(t *testing.T) {
	d := logtest.New(logtest.Options{})
	l, _ := open(t, small(d))
	var at log.Position
	for l.Stats().Changes < 2 {
		var err error
		at, err = l.Append(write(1, "%s", make([]byte, 100<<10)))
		must(t, err)
	}
	d.Lose("00000001.seg")
	l.Release(1, at)
	for deadline := time.Now().Add(10 * time.Second); l.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", l.Stats())
		}
	}
	if err := l.Err(); !errors.Is(err, log.ErrFailed) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}
