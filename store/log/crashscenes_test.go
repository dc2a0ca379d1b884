package log_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/internal/format"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// begin opens a log and begins a life, or ends the test.
func (m *model) begin(t *testing.T, d *logtest.Disk, s log.Sync, seed uint64) *run {
	t.Helper()
	r, err := m.open(config(d, s), false, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// held makes the n-th write from now on wait until release is called, or the test ends. It
// is on its way when arrived is closed.
func held(t *testing.T, d *logtest.Disk, n int) (arrived chan struct{}, release func()) {
	arrived = make(chan struct{})
	hold := make(chan struct{})
	d.OnCall(func(c logtest.Call) logtest.Fault {
		if c.Op == logtest.OpWrite {
			if n--; n == 0 {
				close(arrived)
				return logtest.Fault{Hold: hold}
			}
		}
		return logtest.Fault{}
	})
	release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	return arrived, release
}

// started writes a sealed frame in a goroutine, and returns what its turn says.
func started(r *run, f *log.Frame, id uint64) chan error {
	done := make(chan error, 1)
	go func() {
		err := f.Write()
		if err == nil {
			err = f.Turn()
		}
		if err == nil {
			r.m.mark(id, true)
		}
		f.Pass()
		done <- err
	}()
	return done
}

// sealed seals the next frame.
func (r *run) sealed(t *testing.T) (*log.Frame, uint64) {
	t.Helper()
	f, id, err := r.seal()
	must(t, err)
	return f, id
}

// silent fails the test if something is told within a moment.
func silent(t *testing.T, what string, done chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s was told: %v", what, err)
	case <-time.After(20 * time.Millisecond):
	}
}

// TestLaterFrameWaits: the second of two frames that are under way is durable first. It is
// not acknowledged before the first, nor is a frame without records, which has nothing to
// write; and when the power goes all of them are gone.
func TestLaterFrameWaits(t *testing.T) {
	d, m := logtest.New(logtest.Options{}), &model{}
	r := m.begin(t, d, log.Always, 1)
	must(t, r.put(true))
	arrived, release := held(t, d, 1)
	a, idA := r.sealed(t)
	doneA := started(r, a, idA)
	<-arrived
	b, idB := r.sealed(t)
	doneB := started(r, b, idB)
	empty := r.Begin()
	must(t, empty.Seal())
	doneEmpty := started(r, empty, 0)
	silent(t, "the second frame", doneB)
	silent(t, "a frame without records", doneEmpty)

	cut, m2 := d.Clone(), m.clone()
	r2, err := m2.open(config(cut.Crash(0), log.Always), false, 2)
	must(t, err)
	if got := len(m2.frames); got != 1 {
		t.Errorf("%d frames are there after a power cut, want 1: the first of two was not durable", got)
	}
	r2.end()

	release()
	for _, done := range []chan error{doneA, doneB, doneEmpty} {
		must(t, <-done)
	}
}

// TestWindow: no frame is written further ahead of one that is not durable than the window
// says, so damage cannot pass for the end.
func TestWindow(t *testing.T) {
	d, m := logtest.New(logtest.Options{}), &model{}
	r := m.begin(t, d, log.Always, 1)
	arrived, release := held(t, d, 1)
	a, idA := r.sealed(t)
	doneA := started(r, a, idA)
	<-arrived
	before := d.Count(logtest.OpWrite)
	all := make(chan error, 1)
	go func() { all <- r.pair(5, true) }()
	time.Sleep(30 * time.Millisecond)
	if n := d.Count(logtest.OpWrite) - before; n != 1 {
		t.Errorf("%d frames were written ahead of one that is not done, want 1", n)
	}
	release()
	must(t, <-doneA)
	must(t, <-all)
}

// TestOldLifeStaysVoid: a frame of several blocks is cut short, without its first block. The
// next life writes a shorter frame, and is cut short as well. What the third life finds
// holds nothing of the first frame.
func TestOldLifeStaysVoid(t *testing.T) {
	for seed := range uint64(40) {
		d, m := logtest.New(logtest.Options{}), &model{}
		r := m.begin(t, d, log.Always, seed)
		must(t, r.put(true))
		for life := range 3 {
			r.size = 40000 >> (4 * life)
			d.CrashAt(1 + int(seed)%2)
			if err := r.pair(3, true); !crashed(err) {
				t.Fatal(err)
			}
			r.end()
			d = d.Crash(seed + uint64(life)*8)
			var err error
			if r, err = m.open(config(d, log.Always), false, seed); err != nil {
				t.Fatalf("seed %d, life %d: %v", seed, life+2, err)
			}
		}
		r.end()
	}
}

// forged returns the bytes of a frame with one record, as they would be at a position.
func forged(at log.Position, life, number, salt uint64, text string) []byte {
	b := make([]byte, format.FrameHead+format.RecordSize(len(text)))
	copy(format.PutRecord(b[format.FrameHead:], &log.Record{Kind: log.Write, Stream: writes, Index: 1 << 40}, len(text)), text)
	format.SealFrame(b, &format.Frame{Position: at, Life: life, Number: number, Durable: at}, salt)
	return b
}

// zeros is a source of salts as a bug would have it: constant.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestForgedFrame: a client's value holds whole frames for the places at which they stand,
// for every life. When the frame that holds the value is torn, the next start takes none of
// them for the log's, neither as a frame nor as a proof of damage; with a salt that the
// client knows it would.
func TestForgedFrame(t *testing.T) {
	for _, known := range []bool{false, true} {
		d, m := logtest.New(logtest.Options{}), &model{}
		c := config(d, log.Always)
		if known {
			c.Rand = zeros{}
		}
		r, err := m.open(c, false, 1)
		must(t, err)
		must(t, r.put(true))
		const block = 4096
		f := r.Begin()
		rec := log.Record{Kind: log.Write, Stream: writes, Index: 2, Body: make([]byte, 8*block)}
		b, err := f.Add(&rec, len(rec.Body))
		must(t, err)
		must(t, f.Seal())
		// The frame begins at a block; the value behind two heads.
		start := f.PositionOf(0).Add(-format.FrameHead)
		for at := int64(block); at < int64(len(b)); at += block {
			p := start.Add(at)
			copy(b[at-format.FrameHead-format.RecordHead:], forged(p, r.Life(), 2+uint64(at/block), 0, "forged"))
		}
		// A frame for the place of this one: it stands where the first block is lost.
		d.OnCall(func(c logtest.Call) logtest.Fault {
			if c.Op == logtest.OpWrite {
				return logtest.Fault{Crash: true}
			}
			return logtest.Fault{}
		})
		if err := f.Write(); !crashed(err) {
			t.Fatal(err)
		}
		f.Pass()
		r.end()
		d = d.Crash(1) // all of it has landed
		name := fmt.Sprintf("%08x.seg", start.Segment())
		must(t, d.ZeroSector(name, start.Offset()))
		c.Dir, c.From = d, 0
		l, err := log.Open(c)
		must(t, err)
		n := 0
		err = l.Replay(func(r *log.Record) error {
			if r.Index == 1<<40 {
				return errWrong
			}
			n++
			return nil
		})
		l.Close(false)
		switch {
		case known && err == nil && n == len(m.frames[0].recs):
			t.Error("a frame that is forged with the salt proves nothing: the test is blind")
		case !known && err != nil:
			t.Error("a value was taken for a frame:", err)
		}
	}
}

// TestCrashLoop: ten starts in a row, each killed or cut off at once, with a log that is
// full: there is room for the next one, the disk does not fill with empty segments, and
// nothing is lost. Through the page cache a start needs room for what it writes again.
func TestCrashLoop(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		d, m := logtest.New(logtest.Options{NoDirect: k.noDirect, Capacity: 20 << 20}), &model{}
		if k.noDirect {
			d = logtest.New(logtest.Options{NoDirect: true, Capacity: 30 << 20})
		}
		r := m.begin(t, d, k.sync, 1)
		always := k.sync == log.Always
		r.size = 230 << 10
		for room := true; room; {
			n, _ := r.Room(log.Puts)
			if room = n > 0; room {
				must(t, r.put(always))
			}
			if len(m.frames) > 200 {
				t.Fatal("the log does not get full")
			}
		}
		must(t, r.sync())
		frames := len(m.frames)
		for start := range 12 {
			r.end()
			if start%2 == 0 {
				d = d.Kill(uint64(start))
			} else {
				d = d.Crash(uint64(start))
			}
			var err error
			if r, err = m.open(config(d, k.sync), false, uint64(start)); err != nil {
				t.Fatalf("start %d with a full log: %v", start, err)
			}
			if n := len(m.frames); n != frames {
				t.Fatalf("start %d: %d frames, want %d", start, n, frames)
			}
		}
		r.end()
	})
}

// TestFactsMoveForward: facts stand in a segment that goes because nothing else in it is
// needed. They are there after the next start, and an older value does not come back.
func TestFactsMoveForward(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
		r := m.begin(t, d, k.sync, 1)
		vote := func(n uint64) {
			t.Helper()
			f := r.Begin()
			must(t, f.AddFact(9, 1, binary.LittleEndian.AppendUint64(nil, n)))
			must(t, f.Seal())
			must(t, <-started(r, f, 0))
		}
		vote(1)
		vote(2)
		r.size = 230 << 10
		for range 40 {
			must(t, r.put(k.sync == log.Always))
		}
		must(t, errors.Join(r.trimAll(true), r.sync()))
		r.release(1)
		for until := time.Now().Add(5 * time.Second); r.Stats().Segments > 2; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("segments were not given back: %+v", r.Stats())
			}
		}
		if r.Stats().Carried == 0 {
			t.Error("no fact was written again")
		}
		r.end()
		r = m.begin(t, d.Crash(0), k.sync, 2)
		if b, _ := r.Fact(9, 1); !slices.Equal(b, binary.LittleEndian.AppendUint64(nil, 2)) {
			t.Errorf("after the segment has gone the vote is %x", b)
		}
	})
}

// look opens a log, replays it, and goes away without beginning a life.
func (m *model) look(t *testing.T, d *logtest.Disk, s log.Sync) (told int) {
	t.Helper()
	l, err := log.Open(config(d, s))
	must(t, err)
	must(t, errors.Join(m.replay(l, false), l.Close(false)))
	return len(m.frames)
}

// TestReadIsDurable: what a start has told stays, also when the process before was killed
// with everything in the page cache, or when its last sync has failed and left pages there
// that the disk does not have.
func TestReadIsDurable(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for seed := range uint64(16) {
			d, m := logtest.New(logtest.Options{Seed: seed, NoDirect: k.noDirect, DriveCache: seed%2 == 1 && !k.noDirect}), &model{}
			r := m.begin(t, d, k.sync, seed)
			must(t, r.pair(3, false))
			if seed%4 >= 2 {
				d.OnCall(func(c logtest.Call) logtest.Fault {
					if c.Op == logtest.OpSync {
						return logtest.Fault{Err: errors.New("the disk has failed"), Lost: true}
					}
					return logtest.Fault{}
				})
				if r.put(false) == nil {
					r.Sync()
				}
			}
			r.end()
			// The model calls sure what this start tells.
			d = d.Kill(seed)
			told := m.look(t, d, k.sync)
			r, err := m.open(config(d.Crash(seed), k.sync), false, seed)
			if err != nil {
				t.Fatalf("seed %d: %v (%d frames were told)", seed, err, told)
			}
			r.end()
		}
	})
}

// TestFramesAreWhole: a frame of many records that was cut short is not there in part.
func TestFramesAreWhole(t *testing.T) {
	const seeds = 64
	cut := 0
	defer func() {
		if cut < seeds/2 {
			t.Errorf("only %d of %d frames were cut short", cut, seeds)
		}
	}()
	for seed := range uint64(seeds) {
		d, m := logtest.New(logtest.Options{}), &model{}
		r := m.begin(t, d, log.Always, seed)
		must(t, r.put(true))
		d.CrashAt(1)
		f := r.Begin()
		for i := range uint64(30) {
			rec := log.Record{Kind: log.Write, Stream: writes, Index: 1000 + i}
			b, err := f.Add(&rec, 1000)
			must(t, err)
			b[0] = 1
		}
		must(t, f.Seal())
		// The call in which the power goes can be one of the maker's, beside which the
		// frame is written.
		if err := f.Write(); crashed(err) {
			cut++
		} else {
			must(t, err)
			d.PowerOff()
		}
		f.Pass()
		r.end()
		l, err := log.Open(config(d.Crash(seed), log.Always))
		must(t, err)
		n := 0
		must(t, l.Replay(func(r *log.Record) error {
			if r.Index >= 1000 {
				n++
			}
			return nil
		}))
		must(t, l.Close(false))
		if n != 0 && n != 30 {
			t.Fatalf("seed %d: %d records of 30", seed, n)
		}
	}
}

// TestLeftSegments: with an interval, a sync covers the segments that were left since the
// last one.
func TestLeftSegments(t *testing.T) {
	for _, k := range kinds[2:] {
		t.Run(k.name, func(t *testing.T) {
			d, m := logtest.New(logtest.Options{NoDirect: k.noDirect}), &model{}
			r := m.begin(t, d, k.sync, 1)
			r.size = 230 << 10
			for r.Stats().Changes < 2 {
				must(t, r.put(false))
			}
			must(t, r.sync())
			must(t, r.put(false))
			r.end()
			n := len(m.frames)
			m.begin(t, d.Crash(0), k.sync, 2).end()
			if len(m.frames) < n-1 {
				t.Errorf("%d frames, want the %d that were synced at least", len(m.frames), n-1)
			}
		})
	}
}
