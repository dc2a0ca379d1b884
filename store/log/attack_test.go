package log_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// within fails the test if f does not hold soon.
func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// closed reports whether a channel was closed.
func closed(c <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

// TestNoPromiseOfDroppedStream: a stream that was dropped promises nothing. If its promise
// were taken, it would be acknowledged, and be gone after the next start.
func TestNoPromiseOfDroppedStream(t *testing.T) {
	l, _ := open(t, small(logtest.New(logtest.Options{})))
	if _, err := l.Append(write(3, "x")); err != nil {
		t.Fatal(err)
	}
	if err := l.DropStream(3); err != nil {
		t.Fatal(err)
	}
	f := l.Begin()
	if err := f.AddState(3, log.State{Term: 1}); err != nil {
		t.Fatal(err)
	}
	if err := f.Seal(); err == nil {
		_ = errors.Join(f.Write(), f.Turn()) // so that the log can be closed
		f.Pass()
		t.Fatal("a stream that was dropped promises")
	} else if !errors.Is(err, log.ErrNoStream) {
		t.Fatal(err)
	}
	f.Drop()
	if s, ok := l.State(3); ok {
		t.Fatalf("%+v", s)
	}
}

// manyFacts appends n facts of 256 bytes each, of as many streams as that takes.
func manyFacts(t *testing.T, l *log.Log, first, n int) {
	t.Helper()
	const perFrame, perStream = 400, 16
	for i := 0; i < n; i += perFrame {
		var rs []log.Record
		for k := i; k < min(i+perFrame, n); k++ {
			rs = append(rs, log.Record{Kind: log.Fact, Stream: uint64(first + k/perStream), Name: uint16(k % perStream), Body: bytes.Repeat([]byte{byte(k)}, 256)})
		}
		if _, err := l.Append(rs...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFactsAloneGiveRoomBack: nobody trims in a log of facts alone, and its
// segments go all the same. Otherwise a node whose replicas promise and write nothing fills
// its log.
func TestFactsAloneGiveRoomBack(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		l, _ := open(t, c)
		l.Release(1, log.Position(1<<62)) // once: nobody says it again
		for range 25 {
			manyFacts(t, l, 1, 400)
		}
		within(t, "segments stay", func() bool { return l.Stats().Segments <= 2 })
	})
}

// TestFactsComeToRest: facts that do not fit in one segment are not written again and
// again while nothing else happens.
func TestFactsComeToRest(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		l, _ := open(t, c)
		l.Release(1, log.Position(1<<62))
		manyFacts(t, l, 1, 8000)
		var before uint64
		within(t, "facts are written again without end", func() bool {
			was := before
			before = l.Stats().Frames
			time.Sleep(200 * time.Millisecond)
			return was == before && l.Stats().Frames == before
		})
	})
}

// TestRoomEndsWithLog: who waits for room is woken when the log fails, and when it is
// closed: there will never be more.
func TestRoomEndsWithLog(t *testing.T) {
	d := logtest.New(logtest.Options{})
	l, _ := open(t, small(d))
	_, more := l.Room(log.Puts)
	d.OnCall(func(c logtest.Call) logtest.Fault {
		if c.Op == logtest.OpWrite {
			return logtest.Fault{Err: io.ErrUnexpectedEOF}
		}
		return logtest.Fault{}
	})
	if _, err := l.Append(write(1, "x")); !errors.Is(err, log.ErrFailed) {
		t.Fatal(err)
	}
	within(t, "nobody is told that the log has failed", closed(more))
	l, _ = open(t, small(logtest.New(logtest.Options{})))
	_, more = l.Room(log.Puts)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	within(t, "nobody is told that the log was closed", closed(more))
}

// TestEpochBesideFrames: an epoch is raised while frames are sealed and segments begin. It
// is the race detector that sees whether they share what they read.
func TestEpochBesideFrames(t *testing.T) {
	c := small(logtest.New(logtest.Options{}))
	c.Sync = log.Off
	l, _ := open(t, c)
	epoch := l.Found().Epoch + 1
	var tasks sync.WaitGroup
	tasks.Add(1)
	go func() {
		defer tasks.Done()
		for range 50 {
			if _, err := l.Append(write(1, "%100000d", 1)); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 20 {
		epoch++
		if err := l.SetEpoch(epoch); err != nil {
			t.Error(err)
		}
	}
	tasks.Wait()
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	if l, err := log.Open(c); err != nil || l.Found().Epoch != epoch {
		t.Fatal(err, epoch)
	} else if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
}

// rot spoils a byte of a file for good.
func rot(t *testing.T, d *logtest.Disk, at log.Position) {
	t.Helper()
	name := "0000000" + at.String()[:1] + ".seg"
	b, err := d.Contents(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at.Offset()] ^= 1
	d.Put(name, b)
}

// damaged opens and replays a log that is expected to be damaged.
func damaged(t *testing.T, c log.Config) {
	t.Helper()
	l, err := log.Open(c)
	if err == nil {
		err = errors.Join(l.Replay(nil), l.Close(false))
	}
	if !errors.Is(err, log.ErrDamaged) {
		t.Fatalf("%v, expected damage", err)
	}
}

// TestWitnessAtTheBound: a frame that lies as far behind a damaged one as can be, because
// the frame before it ended just behind the beginning of a block and the window was full
// of the largest frames, still tells that the damaged one was durable.
func TestWitnessAtTheBound(t *testing.T) {
	d := logtest.New(logtest.Options{})
	c := small(d)
	l, _ := open(t, c)
	const heads = 64 + 40 // of a frame and its record
	if _, err := l.Append(log.Record{Kind: log.Write, Stream: 1, Body: make([]byte, 4096+8-heads)}); err != nil {
		t.Fatal(err)
	}
	var window []*log.Frame
	for range 2 {
		f := l.Begin()
		if _, err := f.Add(&log.Record{Kind: log.Write, Stream: 1}, int(c.MaxFrame)-heads); err != nil {
			t.Fatal(err)
		}
		if err := f.Seal(); err != nil {
			t.Fatal(err)
		}
		window = append(window, f)
	}
	first := window[0].PositionOf(0)
	for _, f := range window {
		if err := errors.Join(f.Write(), f.Turn()); err != nil {
			t.Fatal(err)
		}
		f.Pass()
	}
	if _, err := l.Append(write(1, "the witness")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
	rot(t, d, first)
	damaged(t, c)
}

// TestEndOutlivesShortStart: where a log ended stays known when the next start is cut short
// behind its word in LIFE. Otherwise damage of the newest frame passes for the end, though
// a start has read the frame and a clean stop has named its end.
func TestEndOutlivesShortStart(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, d *logtest.Disk) {
		l, _ := open(t, c)
		at, err := l.Append(write(1, "acknowledged"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		if l, err = log.Open(c); err != nil {
			t.Fatal(err)
		}
		if err := l.Replay(nil); err != nil {
			t.Fatal(err)
		}
		d.OnCall(func(c logtest.Call) logtest.Fault {
			return logtest.Fault{Crash: c.Op == logtest.OpRename}
		})
		if err := l.Start(9); err == nil {
			t.Fatal("the power did not go")
		}
		_ = l.Close(false) // the power is gone
		d = d.Crash(1)
		c.Dir = d
		rot(t, d, at)
		damaged(t, c)
	})
}

// TestOnlyTheEndIsWrittenAgain: a start without direct access writes again what no frame
// calls durable, and not a whole life, which could be more than memory has.
func TestOnlyTheEndIsWrittenAgain(t *testing.T) {
	d := logtest.New(logtest.Options{NoDirect: true})
	c := small(d)
	l, _ := open(t, c)
	const n = 30
	for range n {
		if _, err := l.Append(write(1, "%100000d", 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		before := d.Bytes()
		var err error
		if l, err = log.Open(c); err != nil {
			t.Fatal(err)
		}
		if wrote := d.Bytes() - before; wrote > 512<<10 {
			t.Errorf("%d bytes were written again", wrote)
		}
		records := 0
		err = l.Replay(func(*log.Record) error { records++; return nil })
		if err := errors.Join(err, l.Close(false)); err != nil || records != n {
			t.Fatal(records, err)
		}
	}
}
