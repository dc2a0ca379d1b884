package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// mostOf is what a record may have in these tests: values of 500 bytes go in three pieces.
const mostOf = 224

// large makes a put of 500 bytes, and numbers it.
func (w *world) large(key string, c byte) *flight.Flight {
	f := &flight.Flight{Shard: 1}
	f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: []byte(key), Value: bytes.Repeat([]byte{c}, 500)}}}
	w.next = f.Number(w.next)
	return f
}

// lay writes some of the pieces of a put, a frame for each, with a fact behind each, and
// behind all of them its record. It returns where they are.
func (w *world) lay(f *flight.Flight, pieces int) (at []log.Position) {
	w.t.Helper()
	seal := func(lines ...line) log.Position {
		positions, err := w.seal(lines)
		if err != nil {
			w.t.Fatal(err)
		}
		return positions[0]
	}
	var positions []uint64
	for i := range pieces {
		b := make([]byte, logged.PieceSize(f, i, mostOf))
		logged.PutPiece(b, f, i, mostOf)
		fact := line{rec: log.Record{Kind: log.Fact, Stream: ours, Name: 1}, body: fmt.Append(nil, i), said: &said{fact: 1, body: fmt.Append(nil, i)}}
		at = append(at, seal(line{rec: log.Record{Kind: log.Write, Stream: ours}, body: b}, fact))
		positions = append(positions, uint64(at[i]))
	}
	if pieces == logged.Pieces(f, mostOf) {
		b := make([]byte, logged.SizeApart(f, mostOf))
		logged.PutApart(b, f, mostOf, positions)
		at = append(at, seal(line{rec: log.Record{Kind: log.Write, Stream: ours}, body: b, said: &said{flight: f}}))
	}
	return at
}

// begun is a world that is open, with a put in its log.
func begun(t *testing.T) *world {
	w := newWorld(t, 1)
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	f := &flight.Flight{Shard: 1}
	f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: []byte("small"), Value: []byte("v")}}}
	w.next = f.Number(w.next)
	b := make([]byte, logged.Size(f))
	logged.Put(b, f)
	if _, err := w.seal([]line{{rec: log.Record{Kind: log.Write, Stream: ours}, body: b, said: &said{flight: f}}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// goes runs a checkpoint and says that it must end at a position.
func (w *world) goes(what string, to log.Position, bound Bound, want log.Position, more bool) Done {
	w.t.Helper()
	done, err := w.run(to, bound)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	if done.Place.At != want || done.More != more {
		w.t.Fatalf("%s: the base is at %v, more %v; want %v, %v", what, done.Place.At, done.More, want, more)
	}
	w.from = done.Place
	w.compare(what)
	return done
}

// TestEndsBeforePieces: wherever a checkpoint has to end between the first piece of a value
// and the record of its write, it ends before the first piece, and its base has no fact of
// those in between; the next one goes on there, and however little it may take, it takes
// the write.
func TestEndsBeforePieces(t *testing.T) {
	for cut := 1; cut < 4; cut++ { // before the second piece, the third, the record
		w := begun(t)
		at := w.lay(w.large("key", 'x'), 3)
		behind := w.lay(w.large("key", 'y'), 3)
		what := fmt.Sprintf("to the record behind %d pieces", cut)
		w.goes(what, at[cut], Bound{}, at[0], false)
		if done := w.goes(what+", again", at[cut], Bound{}, at[0], false); done.Range != nil {
			t.Errorf("%s: a checkpoint of nothing", what)
		}
		w.goes(what+", full", 0, Bound{Bytes: 1}, behind[0], true)
		w.close()

		w = begun(t)
		at = w.lay(w.large("key", 'x'), 3)
		w.goes("full behind the first piece", 0, Bound{Bytes: 200 * cut}, at[0], true)
		w.close()
	}
}

// TestOrphans: pieces whose write never comes hold the base back while the process runs
// that may yet write it, without a checkpoint that does nothing for ever. They are passed
// over when another process has begun, or another write comes, and are part of no value.
func TestOrphans(t *testing.T) {
	w := begun(t)
	defer func() { w.close() }()
	at := w.lay(w.large("key", 'x'), 2)
	w.goes("the first piece is the end", 0, Bound{}, at[0], false)
	if done := w.goes("nothing has come", 0, Bound{Bytes: 1}, at[0], false); done.Range != nil {
		t.Error("a checkpoint of nothing")
	}
	other := w.lay(w.large("key", 'y'), 3)
	w.goes("another write has come", other[3], Bound{}, other[0], false)
	w.goes("all of it", 0, Bound{}, w.log.Stats().Passed, false)

	for range 2 { // two processes that were stopped in between
		w.lay(w.large("key", 'z'), 2)
		w.close()
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
	}
	passed := w.log.Stats().Passed
	done, err := w.run(0, Bound{Bytes: 1})
	for n := 0; err == nil && done.More && n < 100; n++ {
		w.from = done.Place
		w.compare("on the way")
		done, err = w.run(0, Bound{Bytes: 1})
	}
	w.from = done.Place
	if err != nil || done.More || done.Place.At < passed || done.Place.Frame < passed {
		t.Fatalf("behind pieces of processes that stopped: the base is at %+v of %v, more %v: %v", done.Place, passed, done.More, err)
	}
	w.compare("behind pieces of processes that stopped")

	w.lay(w.large("key", 'z'), 2)
	w.close()
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	var to log.Position
	for i := range 2 {
		l := line{rec: log.Record{Kind: log.Fact, Stream: ours, Name: 2}, body: fmt.Append(nil, i), said: &said{fact: 2, body: fmt.Append(nil, i)}}
		positions, err := w.seal([]line{l})
		if err != nil {
			t.Fatal(err)
		}
		to = positions[0]
	}
	w.goes("to a fact of the process that has begun", to, Bound{}, to, false)
}

// TestPiecesThatAreNotThere: a record whose pieces do not stand before it ends the
// checkpoint, also if pieces of another write do.
func TestPiecesThatAreNotThere(t *testing.T) {
	for name, spoil := range map[string]func(w *world, at []uint64){
		"none":             func(*world, []uint64) {},
		"of another write": func(w *world, at []uint64) { copyPositions(at, w.lay(w.large("other", 'y'), 2)) },
	} {
		w := begun(t)
		f, at := w.large("key", 'x'), []uint64{1, 2, 3}
		spoil(w, at)
		b := make([]byte, logged.SizeApart(f, mostOf))
		logged.PutApart(b, f, mostOf, at)
		record, err := w.log.Append(log.Record{Kind: log.Write, Stream: ours, Body: b})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.run(0, Bound{})
		var broken *RecordError
		if !errors.As(err, &broken) || broken.At != record || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an error about %v", name, err, record)
		}
		w.close()
	}
}

func copyPositions(to []uint64, from []log.Position) {
	for i, at := range from {
		to[i] = uint64(at)
	}
	to[2] = max(to[2], to[1]+1)
}

// TestMemoryOfPieces: the pieces that wait count for the bound of a range, and those of one
// write have one that no write reaches.
func TestMemoryOfPieces(t *testing.T) {
	f := &flight.Flight{Shard: 1}
	f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: []byte("key"), Value: make([]byte, layout.MaxValueLen)}}}
	f.Number(7)
	const most = 1 << 20
	r := NewRange(ours, names, Bound{Bytes: most})
	add := func(at uint64, i int) error {
		b := make([]byte, logged.PieceSize(f, i, most))
		logged.PutPiece(b, f, i, most)
		return r.Add(&log.Record{Kind: log.Write, Stream: ours, Position: log.Position(at), Body: b})
	}
	if err := add(1, 0); err != nil || !r.Full() {
		t.Fatalf("a piece of the bound's size waits, and full is %v: %v", r.Full(), err)
	}
	at := []uint64{1}
	for i := 1; i < logged.Pieces(f, most); i++ {
		at = append(at, uint64(1+i))
		if err := add(at[i], i); err != nil {
			t.Fatalf("piece %d of the largest value: %v", i, err)
		}
	}
	if err := add(5, 0); !errors.Is(err, ErrRecord) {
		t.Errorf("a piece before the others: %v", err)
	}
	b := make([]byte, logged.SizeApart(f, most))
	logged.PutApart(b, f, most, at)
	if err := r.Add(&log.Record{Kind: log.Write, Stream: ours, Position: 1000, Body: b}); err != nil {
		t.Fatal(err)
	}
	if _, waits := r.Waiting(); waits || r.memory.used > layout.MaxValueLen+100 {
		t.Errorf("a value of %d bytes takes %d, and its pieces wait: %v", layout.MaxValueLen, r.memory.used, waits)
	}
	r = NewRange(ours, names, Bound{})
	if err := r.Add(&log.Record{Kind: log.Write, Stream: ours, Position: 1000, Body: b}); !errors.Is(err, ErrRecord) || r.memory.used > 1<<20 {
		t.Errorf("a large value without pieces: %v, and %d bytes of memory", err, r.memory.used)
	}
	f.Number(9)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		err = add(uint64(2000+i), 0)
	}
	if !errors.Is(err, ErrRecord) || r.waiting.used > maxWaiting {
		t.Errorf("pieces without an end: %v, and %d bytes", err, r.waiting.used)
	}
}

// TestFactsOfTheLog: what the log itself says of the stream is passed over.
func TestFactsOfTheLog(t *testing.T) {
	w := begun(t)
	defer w.close()
	f := w.log.Begin()
	err := f.AddState(ours, log.State{Term: 3})
	if err == nil {
		err = f.Seal()
	}
	if err == nil {
		err = errors.Join(f.Write(), f.Turn())
	}
	if f.Pass(); err != nil {
		t.Fatal(err)
	}
	w.goes("with a promise of the stream's", 0, Bound{}, w.log.Stats().Passed, false)
}

// TestValuesFromBefore: the walk over the values of a base, made before a checkpoint, sees
// none of those that the checkpoint brings; if it did, it would have them deleted, or kept,
// for a write that is not in the base yet.
func TestValuesFromBefore(t *testing.T) {
	w := begun(t)
	defer w.close()
	before, err := disk.NewValueWalk(w.db)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	f := w.large("key", 'x')
	f.Effects[0].Value = bytes.Repeat([]byte("v"), disk.SeparateFrom)
	w.lay(f, logged.Pieces(f, mostOf))
	w.goes("a value apart", 0, Bound{}, w.log.Stats().Passed, false)
	after, err := disk.NewValueWalk(w.db)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	from := disk.AppendKey(nil, 0, disk.KindValue, nil)
	old, err1 := before.Seek(from)
	young, err2 := after.Seek(from)
	if err1 != nil || err2 != nil || old != nil || young == nil {
		t.Errorf("before: %q (%v), after: %q (%v)", old, err1, young, err2)
	}
}

// TestNext: the ranges of a log that is read alone, put into a base one by one, are what
// checkpoints make of it; the last one ends with the log, whatever pieces stand at its end.
func TestNext(t *testing.T) {
	worlds(t, 4, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		defer func() { w.close() }()
		for range 2 {
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
			if err := w.append(20); err != nil {
				t.Fatal(err)
			}
			w.lay(w.large("key", 'z'), 2)
			w.close()
		}
		db, err := pebble.Open("base", baseOptions(w.fs))
		if err != nil {
			t.Fatal(err)
		}
		w.db = db
		w.log, err = log.Open(log.Config{Dir: w.disk, Store: [16]byte{1}, ReadOnly: true})
		if err == nil {
			err = w.log.Replay(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for more, n := true, 0; more; n++ {
			r, place, rest, err := Next(context.Background(), Config{Log: w.log, Stream: ours, From: w.from, Facts: names, Bound: w.anyBound()})
			if err != nil || n > 10_000 {
				t.Fatalf("range %d: %v", n, err)
			}
			w.ingest(r)
			w.from, more = place, rest
			w.compare("a range of a log that is read alone")
		}
		if end := w.log.Found().End; w.from.At != end {
			t.Errorf("the last range ends at %v, the log at %v", w.from.At, end)
		}
	})
}

// ingest puts a range into the base.
func (w *world) ingest(r *Range) {
	w.t.Helper()
	walk, err := disk.NewValueWalk(w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	defer walk.Close()
	in, err := beginPlain(w.db, w.fs)
	if err == nil {
		_, err = r.Write(in, walk)
	}
	if err == nil {
		_, err = in.Commit(context.Background())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}
