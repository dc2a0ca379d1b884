package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// run makes one checkpoint, up to a position and within a bound.
func (w *world) run(to log.Position, bound Bound) (Done, error) {
	walk, err := disk.NewValueWalk(w.db)
	if err != nil {
		return Done{}, err
	}
	defer walk.Close()
	return Run(context.Background(), Config{
		Log: w.log, Stream: ours, From: w.from, To: to, Epoch: 3, Facts: names, Bound: bound, Values: walk, ReadRate: w.rate,
		Begin: func(ctx context.Context) (Ingest, error) {
			if w.plain {
				return beginPlain(w.db, w.fs)
			}
			return tables.Begin(ctx, w.db, tables.Config{FS: w.fs, Options: baseOptions(w.fs), Dir: "tables", TableBytes: 4096})
		},
	})
}

// anyBound is a bound that is often reached within a frame.
func (w *world) anyBound() Bound {
	if w.rng.IntN(2) == 0 {
		return Bound{}
	}
	return Bound{Bytes: 1 + w.rng.IntN(20000), Keys: 1 + w.rng.IntN(40)}
}

// anywhere is a position at or behind that of the base.
func (w *world) anywhere() log.Position {
	if len(w.said) == 0 || w.rng.IntN(2) == 0 {
		return 0
	}
	return w.said[w.rng.IntN(len(w.said))].at
}

// TestBaseIsTheStateAtItsPosition: checkpoints at random cuts make of the log what writes
// through a batch each would have made up to the base's position, which is where Run says.
func TestBaseIsTheStateAtItsPosition(t *testing.T) {
	worlds(t, 8, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		defer w.close()
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if err := w.append(1 + w.rng.IntN(30)); err != nil {
				t.Fatal(err)
			}
			to := w.anywhere()
			done, err := w.run(to, w.anyBound())
			if err != nil {
				t.Fatal(err)
			}
			if limit := w.log.Stats().Passed; done.Place.At > limit || to > w.from.At && done.Place.At > to {
				t.Fatalf("the base is at %v, asked for %v, passed is %v", done.Place.At, to, limit)
			}
			if place, err := readPlace(w.db); err != nil || place != done.Place {
				t.Fatalf("the base says %+v, Run said %+v (%v)", place, done.Place, err)
			}
			if w.from.At != 0 && done.Place.At < w.from.At {
				t.Fatalf("the base went back from %v to %v", w.from.At, done.Place.At)
			}
			w.checkDue(&done)
			w.from = done.Place
			w.compare("after a checkpoint")
			w.log.Release(ours, done.Place.Frame)
			if w.rng.IntN(3) == 0 {
				w.close()
				if err := w.open(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// What has pieces alone at the end of the log is known to be nothing when another
		// process has begun.
		w.close()
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		passed := w.log.Stats().Passed // an idle log writes frames without records behind it
		for more, n := true, 0; more; n++ {
			if n > 10_000 {
				t.Fatal("the checkpoints do not end")
			}
			done, err := w.run(0, w.anyBound())
			if err != nil {
				t.Fatal(err)
			}
			w.from, more = done.Place, done.More
		}
		if w.from.At < passed {
			t.Fatalf("the base ends at %v, the log at %v", w.from.At, passed)
		}
		w.compare("at the end")
	})
}

// checkDue: the earliest second that a range lists for a shard is the earliest that the
// base has of what the range has put there, which the versions tell.
func (w *world) checkDue(done *Done) {
	w.t.Helper()
	if done.Range == nil {
		return
	}
	if done.Range.list.chunks != nil || done.Range.memory.chunks != nil {
		w.t.Error("the memory of a range that is in the base was not given back")
	}
	base, all := dump(w.t, w.db), map[uint16]uint64{}
	for shard := range uint16(3) {
		want, found := uint64(0), false
		for k, v := range base {
			s, kind, key, _ := disk.ParseKey([]byte(k))
			if s != shard || kind != disk.KindExpiry {
				continue
			}
			rec, err := disk.ParseRecord([]byte(v), []byte(k))
			if err != nil || rec.Version <= w.from.Newest {
				continue
			}
			if second, _, _ := disk.ParseExpiryKey(key); !found || second < want {
				want, found = second, true
			}
		}
		if found {
			all[shard] = want
		}
		if got, ok := done.Range.Due(shard); got != want || ok != found {
			w.t.Errorf("shard %d is due at %d, %v; want %d, %v", shard, got, ok, want, found)
		}
	}
	if got := maps.Collect(done.Range.Dues); !maps.Equal(got, all) {
		w.t.Errorf("due are %v, want %v", got, all)
	}
}

// TestTwoRequestsOfOneKey: a write that another one supersedes leaves its result.
func TestTwoRequestsOfOneKey(t *testing.T) {
	r := NewRange(ours, names, Bound{})
	for i := range 2 {
		f := &flight.Flight{Shard: 1, Op: &base.Op{}, Result: &base.Result{}}
		f.Op.ID = base.RequestID{Client: [16]byte{byte(i)}, Seq: 5}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: []byte("k"), Value: []byte{byte(i)}}}}
		f.Number(layout.Version(10 + i))
		add(t, r, f)
	}
	if r.Keys() != 3 || r.Newest() != 11 {
		t.Errorf("%d keys up to version %v, want the record and two results up to 11", r.Keys(), r.Newest())
	}
}

// add adds a flight to a range, as if the log had it.
func add(t testing.TB, r *Range, f *flight.Flight) {
	t.Helper()
	body := make([]byte, logged.Size(f))
	logged.Put(body, f)
	if err := r.Add(&log.Record{Kind: log.Write, Stream: ours, Body: body}); err != nil {
		t.Fatal(err)
	}
}

// TestExpiryEntries: a key is listed under the expiry that it has last, and the deletes of
// all earlier entries go in, also those of writes that others supersede.
func TestExpiryEntries(t *testing.T) {
	write := func(r *Range, v layout.Version, kind base.Kind, expires, unlist uint64) {
		f := &flight.Flight{Shard: 1}
		f.Effects = []*flight.Effect{{Effect: base.Effect{
			Shard: 1, Kind: kind, Key: []byte("k"), Value: []byte("v"), Expiry: expires * 1_000_000, Unlist: unlist,
		}}}
		f.Number(v)
		add(t, r, f)
	}
	second := func(s uint64) uint64 { return clock.Second(s * 1_000_000) }
	r := NewRange(ours, names, Bound{})
	write(r, 1, base.OpPut, 5, second(9)) // the base may have an entry under 9
	if due, ok := r.Due(1); !ok || due != second(5) {
		t.Errorf("due at %d, %v; want %d", due, ok, second(5))
	}
	write(r, 2, base.OpTouch, 7, second(5))
	if due, ok := r.Due(1); !ok || due != second(7) {
		t.Errorf("due at %d, %v; want %d", due, ok, second(7))
	}
	write(r, 3, base.OpPut, 0, second(7))
	if due, ok := r.Due(1); ok {
		t.Errorf("due at %d, want never", due)
	}
	if _, ok := r.Due(2); ok {
		t.Error("a shard without entries is due")
	}
	counts, err := r.Write(nowhere{}, nil)
	if err != nil || counts.Sets != 1 || counts.Deletes != 4 || counts.Records != 3 {
		t.Errorf("%+v, %v; want the record, three deletes of entries, and one of a value", counts, err)
	}
}

// TestOrderOfTheLog: the newest is the last in the log, whatever its version is.
func TestOrderOfTheLog(t *testing.T) {
	r := NewRange(ours, names, Bound{})
	for _, v := range []layout.Version{9, 4} {
		f := &flight.Flight{Shard: 1}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: []byte("k"), Value: fmt.Append(nil, v)}}}
		f.Number(v)
		add(t, r, f)
	}
	if e := r.list.at(0); e.version != 4 || string(r.valueOf(e)) != fmt.Sprint(layout.Version(4)) {
		t.Errorf("version %v, value %q", e.version, r.valueOf(e))
	}
}

// TestHostileRecords: what is none of the stream's records ends the checkpoint, with its
// position, and the base stays as it was.
func TestHostileRecords(t *testing.T) {
	for name, rec := range map[string]log.Record{
		"body": {Kind: log.Write, Stream: ours, Body: []byte("no write")},
		"fact": {Kind: log.Fact, Stream: ours, Name: 99, Body: []byte("x")},
		"kind": {Kind: log.Entry, Stream: ours, Index: 1, Term: 1, Body: []byte("x")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
			if err := w.append(5); err != nil {
				t.Fatal(err)
			}
			at, err := w.log.Append(rec)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.run(0, Bound{})
			var broken *RecordError
			if !errors.As(err, &broken) || broken.At != at {
				t.Fatalf("%v, want an error about %v", err, at)
			}
			if place, err := readPlace(w.db); err != nil || place != (Place{}) || len(dump(t, w.db)) != 0 {
				t.Fatalf("the base is at %+v (%v), with %d keys", place, err, len(dump(t, w.db)))
			}
		})
	}
}

// TestDamagedLog: a record whose bytes are not good ends the checkpoint, and nothing of
// the range goes in.
func TestDamagedLog(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	if err := w.append(50); err != nil {
		t.Fatal(err)
	}
	s := w.said[len(w.said)/2]
	for _, name := range w.disk.Names() {
		if strings.HasPrefix(name, fmt.Sprintf("%08x", s.at.Segment())) {
			if err := w.disk.Flip(name, s.at.Offset()+20, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := w.run(0, Bound{})
	var damage *log.DamageError
	if !errors.As(err, &damage) || damage.At == 0 || damage.At > s.at {
		t.Fatalf("%v, want damage at or before %v", err, s.at)
	}
	if place, err := readPlace(w.db); err != nil || place != (Place{}) || len(dump(t, w.db)) != 0 {
		t.Fatalf("the base is at %+v (%v)", place, err)
	}
}

// TestBound: a range takes little more than its bound, and what is written again and
// again in one size takes no more memory.
func TestBound(t *testing.T) {
	r := NewRange(ours, names, Bound{Bytes: 100_000, Keys: 50})
	for i := range 40_000 {
		f := &flight.Flight{Shard: 1}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 1, Key: fmt.Append(nil, "k", i%20), Value: bytes.Repeat([]byte{byte(i)}, 100)}}}
		f.Number(layout.Version(1 + i))
		add(t, r, f)
	}
	if r.Full() || r.memory.used > 20*200 {
		t.Errorf("20 keys take %d bytes", r.memory.used)
	}
	n := 0
	for ; !r.Full(); n++ {
		f := &flight.Flight{Shard: 2}
		f.Effects = []*flight.Effect{{Effect: base.Effect{Shard: 2, Key: fmt.Append(nil, "k", n), Value: []byte("v")}}}
		f.Number(layout.Version(50_000 + n))
		add(t, r, f)
	}
	if n != 30 {
		t.Errorf("full after %d more keys, want 30", n)
	}
}

// TestPace: the log is read no faster than the rate, on a clock of its own.
func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	c := Config{ReadRate: 1 << 20, Now: func() time.Time { return now }, Sleep: func(_ context.Context, d time.Duration) error {
		now = now.Add(d)
		return nil
	}}.withDefaults()
	p := pace{c: &c, began: now, next: paceStep}
	for range 10 << 10 {
		if err := p.read(context.Background(), 1<<10); err != nil {
			t.Fatal(err)
		}
	}
	if took := now.Sub(time.Unix(0, 0)); took < 9700*time.Millisecond || took > 10300*time.Millisecond {
		t.Errorf("10 MiB at 1 MiB/s took %v", took)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.read(ended, paceStep); !errors.Is(err, context.Canceled) {
		t.Errorf("behind the end of ctx: %v", err)
	}
}
