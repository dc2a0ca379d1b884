package newest

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/log"
)

func put(key, value string) base.Op { return base.Op{Key: []byte(key), Value: []byte(value)} }
func del(key string) base.Op        { return base.Op{Key: []byte(key), Kind: base.OpDelete} }

// TestSetThenBase: what is newer than the base is read from the log, what is deleted there is
// not there whatever the base has, and what left the set is in the base.
func TestSetThenBase(t *testing.T) {
	r := newRig(t)
	r.want("k", "")
	first := r.publish(put("k", "one"))
	gone := r.publish(put("gone", "old"))
	r.want("k", "one")
	r.bring(first)
	r.bring(gone)
	second := r.publish(put("k", "two"))
	r.publish(del("gone"))
	r.want("k", "two")
	r.want("gone", "")
	r.publish(put("large", strings.Repeat("x", 5*mostBody)))
	r.want("large", strings.Repeat("x", 5*mostBody))

	r.shard.Leave(first.Version, 10)
	r.want("k", "two")
	r.bring(second)
	r.want("k", "two")
	r.shard.Leave(second.Version, 10)
	reads := r.log.reads
	r.want("k", "two")
	if r.log.reads != reads {
		t.Error("the log was asked for what the base has")
	}
	r.Reader = &Reader{Base: r.Base, Seed: r.Seed, Counts: r.Counts}
	r.want("k", "two") // without a log the base is all there is
}

// TestBaseIsAskedLast: a key changes sides while it is read. It waits for the shard's lock
// meanwhile, so a reader that had asked the base before has an older value by then.
func TestBaseIsAskedLast(t *testing.T) {
	for range 3 {
		r := newRig(t)
		old := r.publish(put("k", "old"))
		r.bring(old)
		r.shard.Leave(old.Version, 10)
		f := r.publish(put("k", "new"))
		r.shard.Mu.Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.want("k", "new")
		}()
		time.Sleep(30 * time.Millisecond) // a reader that does not wait has read by now
		r.bring(f)
		r.shard.Dirty.Leave(f.Version, nil)
		r.shard.Mu.Unlock()
		<-done
	}
}

// TestEntryIsCompared: a position alone is not believed. Whatever stands there must be of the
// shard, the key and the version of the entry.
func TestEntryIsCompared(t *testing.T) {
	r := newRig(t)
	r.log.held = 1 // by this test
	f := r.publish(base.Op{Kind: base.OpBatch, Parts: []base.Part{
		{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Delete: true}, {Key: []byte("c"), Value: []byte("3")},
	}})
	good := r.entry("c")
	if rec, err := r.Entry(3, []byte("c"), good); err != nil || string(rec.Value) != "3" || rec.Version != f.Version {
		t.Fatalf("%+v, %v", rec, err)
	}
	if _, err := r.Entry(3, []byte("b"), r.entry("b")); err != base.ErrNotFound {
		t.Errorf("deleted: %v", err)
	}
	alter := func(change func(*dirty.Entry)) dirty.Entry {
		e := good
		change(&e)
		return e
	}
	malformed := r.log.add([]byte{logged.Format, 1, 2})
	newer := r.log.add(bytes.Repeat([]byte{77}, 64))
	fact := r.log.add(r.log.records[good.At].Body)
	rec := r.log.records[fact]
	rec.Kind = log.Fact
	r.log.records[fact] = rec
	for _, c := range []struct {
		name  string
		shard uint16
		key   string
		entry dirty.Entry
	}{
		{"another shard", 2, "c", good},
		{"another key", 3, "d", good},
		{"another version", 3, "c", alter(func(e *dirty.Entry) { e.Version-- })},
		{"another part", 3, "c", alter(func(e *dirty.Entry) { e.Part = 0 })},
		{"no such part", 3, "c", alter(func(e *dirty.Entry) { e.Part = 3 })},
		{"the largest part", 3, "c", alter(func(e *dirty.Entry) { e.Part = 1<<32 - 1 })},
		{"a delete", 3, "b", alter(func(e *dirty.Entry) { e.Part, e.Version = 1, good.Version-1 })},
		{"no position", 3, "c", alter(func(e *dirty.Entry) { e.At = 0 })},
		{"nothing", 3, "c", alter(func(e *dirty.Entry) { e.At++ })},
		{"malformed", 3, "c", alter(func(e *dirty.Entry) { e.At = malformed })},
		{"newer", 3, "c", alter(func(e *dirty.Entry) { e.At = newer })},
		{"a fact", 3, "c", alter(func(e *dirty.Entry) { e.At = fact })},
	} {
		before := r.Counts.Corrupt.Load()
		rec, err := r.Entry(c.shard, []byte(c.key), c.entry)
		var damage *base.CorruptError
		if !errors.As(err, &damage) || damage.Shard != c.shard || string(damage.Key) != c.key || rec.Value != nil {
			t.Errorf("%s: %+v, %v; want a CorruptError about %s in shard %d", c.name, rec, err, c.key, c.shard)
		} else if strings.ContainsAny(err.Error(), "\n") || !strings.Contains(err.Error(), "the log at offset") {
			t.Errorf("%s: %v does not say where in one line", c.name, err)
		}
		if n := r.Counts.Corrupt.Load() - before; n != 1 {
			t.Errorf("%s is counted %d times", c.name, n)
		}
	}
}

// TestPiecesAreJoined: a value in pieces comes back whole, and damage of a piece is told.
func TestPiecesAreJoined(t *testing.T) {
	r := newRig(t)
	value := strings.Repeat("0123456789", mostBody/2)
	r.publish(put("large", value))
	r.want("large", value)
	state, err := r.Ask()(r.shard, []byte("large"), true)
	if err != nil || string(state.Value) != value || !state.Owned {
		t.Errorf("%d bytes, %v", len(state.Value), err)
	}
	reads := r.log.reads
	if state, err := r.Ask()(r.shard, []byte("large"), false); err != nil || !state.Exists || state.Value != nil || r.log.reads != reads+1 {
		t.Errorf("without its value: %+v, %v after %d reads, want one", state, err, r.log.reads-reads)
	}
	at := r.entry("large").At
	for piece, rec := range r.log.records {
		if piece == at {
			continue
		}
		bad := rec
		bad.Body = bytes.Clone(rec.Body)
		bad.Body[len(bad.Body)-1] ^= 1
		r.log.records[piece] = bad
		if _, _, err := r.Read(r.shard, []byte("large")); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a flipped bit in the piece at %v: %v", piece, err)
		}
		delete(r.log.records, piece)
		if _, _, err := r.Read(r.shard, []byte("large")); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("without the piece at %v: %v", piece, err)
		}
		r.log.records[piece] = rec
	}
	r.want("large", value)
}

// TestFaultsAreTold: what the log says comes out as the store's own errors.
func TestFaultsAreTold(t *testing.T) {
	r := newRig(t)
	r.publish(put("k", "v"))
	other := errors.New("input/output error")
	for _, c := range []struct {
		err, want error
		corrupt   uint64
	}{
		{log.ErrClosed, base.ErrClosed, 0},
		{errors.Join(log.ErrFailed, other), base.ErrFatal, 0},
		{other, other, 0},
		{&log.DamageError{File: "some.log", Detail: "the segment was freed"}, base.ErrCorrupt, 1},
	} {
		for _, holding := range []bool{true, false} {
			before := r.Counts.Corrupt.Load()
			r.log.holdErr, r.log.readErr = nil, c.err
			if holding {
				r.log.holdErr, r.log.readErr = c.err, nil
			}
			if _, _, err := r.Read(r.shard, []byte("k")); !errors.Is(err, c.want) {
				t.Errorf("%v: %v, want %v", c.err, err, c.want)
			}
			if _, err := r.Ask()(r.shard, []byte("k"), false); !errors.Is(err, c.want) {
				t.Errorf("%v: asked: %v, want %v", c.err, err, c.want)
			}
			if n := r.Counts.Corrupt.Load() - before; n != 2*c.corrupt {
				t.Errorf("%v is counted %d times, want %d", c.err, n, 2*c.corrupt)
			}
			if r.log.held != 0 {
				t.Errorf("%v leaves %d holds", c.err, r.log.held)
			}
		}
	}
}

// TestBatchIsReadOnce: keys of one record that are read one behind the other are one read of
// the log, also if values of others come in between pieces.
func TestBatchIsReadOnce(t *testing.T) {
	r := newRig(t)
	r.log.held = 1 // by this test
	var parts []base.Part
	for _, key := range []string{"a", "b", "c", "d"} {
		parts = append(parts, base.Part{Key: []byte(key), Value: bytes.Repeat([]byte(key), mostBody)})
	}
	r.publish(base.Op{Kind: base.OpBatch, Parts: parts})
	s := Entries{Reader: r.Reader}
	for i, p := range parts {
		f, read, err := s.Look(3, p.Key, r.entry(string(p.Key)))
		if err != nil || f.Length != mostBody || (read > 0) != (i == 0) {
			t.Fatalf("%s: %+v, %d bytes read, %v", p.Key, f, read, err)
		}
		value, read, err := s.Value(&f)
		if err != nil || !bytes.Equal(value, p.Value) || read < mostBody {
			t.Errorf("%s: a value of %d bytes, %d read, %v", p.Key, len(value), read, err)
		}
	}
	bad := r.entry("a")
	bad.At++
	if _, _, err := s.Look(3, []byte("a"), bad); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("nothing is there, and %v", err)
	}
	if _, _, err := s.Look(3, []byte("d"), r.entry("d")); err != nil {
		t.Errorf("behind damage: %v", err)
	}
}

// TestEntryOfAGroup: a key of a replicated group stands in an entry, among the keys of other writes, and its
// number is counted over all of them.
func TestEntryOfAGroup(t *testing.T) {
	r := newRig(t)
	first := uint64(5)
	next := first
	var writes []*flight.Flight
	for _, op := range []base.Op{
		put("a", "1"), {Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("b"), Value: []byte("2")}, {Key: []byte("c"), Value: []byte("3")}}}, put("d", "4"), del("a"),
	} {
		f := r.flight(op)
		next = f.NumberInGroup(next)
		writes = append(writes, f)
	}
	data := entry.AppendWrites(nil, 3, first, next, writes)
	body := make([]byte, consensus.BodySize(consensus.Write, len(data)))
	consensus.PutBody(body, consensus.Write, data)
	at := r.log.add(body)
	rec := r.log.records[at]
	rec.Kind, rec.Index, rec.Term = log.Entry, 9, 2
	r.log.records[at] = rec
	r.shard.Mu.Lock()
	part := uint32(0)
	for _, f := range writes {
		for _, e := range f.Effects {
			r.shard.Dirty.Note(e.Hash, e.Key, dirty.Entry{Version: e.Version, Gone: e.Removes(), At: at, Part: part})
			part++
		}
	}
	r.shard.Mu.Unlock()
	for key, value := range map[string]string{"a": "", "b": "2", "c": "3", "d": "4"} {
		r.want(key, value)
	}
	reads := r.log.reads
	r.log.held++
	s := Entries{Reader: r.Reader}
	for _, key := range []string{"b", "c", "d"} {
		if _, _, err := s.Look(3, []byte(key), r.entry(key)); err != nil {
			t.Error(err)
		}
	}
	r.log.held--
	if n := r.log.reads - reads; n != 1 {
		t.Errorf("three keys of an entry are %d reads of the log", n)
	}
	for name, do := range map[string]func(b []byte){
		"of a newer engine":           func(b []byte) { b[0] = 99 },
		"a change of configuration":   func(b []byte) { b[0] = byte(consensus.Change) },
		"an entry of a newer program": func(b []byte) { b[1]++ },
		"an entry that is none":       func(b []byte) { b[9], b[10] = 0, 0 },
	} {
		rec.Body = bytes.Clone(r.log.records[at].Body)
		do(rec.Body)
		old := r.log.records[at]
		r.log.records[at] = rec
		if _, _, err := r.Read(r.shard, []byte("d")); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		r.log.records[at] = old
	}
}

// TestAsk: it tells what Read tells, counts, and finds nothing where nothing is.
func TestAsk(t *testing.T) {
	r := newRig(t)
	f := r.publish(base.Op{Key: []byte("k"), Value: []byte("v"), TTL: time.Second})
	r.bring(r.publish(put("base", "b")))
	ask := r.Ask()
	state, err := ask(r.shard, []byte("k"), true)
	if err != nil || !state.Exists || state.Version != f.Version || string(state.Value) != "v" || !state.Owned || state.Expiry != f.Effects[0].Expiry || state.Expiry == 0 {
		t.Errorf("%+v, %v", state, err)
	}
	if state, err := ask(r.shard, []byte("none"), true); err != nil || state.Exists {
		t.Errorf("none: %+v, %v", state, err)
	}
	r.shard.Leave(r.next, 10)
	if state, err := ask(r.shard, []byte("base"), false); err != nil || !state.Exists || state.Value != nil {
		t.Errorf("base: %+v, %v", state, err)
	}
	if n := r.Counts.Probes.Load(); n != 3 {
		t.Errorf("%d are counted, want 3", n)
	}
}
