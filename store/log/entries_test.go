package log_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// A replica is what one stream must be, kept by the test.
type replica struct {
	first   uint64
	entries []log.Record // from first on
	base    uint64       // term of the entry before first
	state   log.State
}

func (g *replica) last() uint64 { return g.first + uint64(len(g.entries)) - 1 }

// term is the term of an entry, or of the one before the first.
func (g *replica) term(i uint64) uint64 {
	if i < g.first {
		return g.base
	}
	return g.entries[i-g.first].Term
}

// TestReplicas: many replicated streams in one log, with terms, votes, commit indexes,
// entries that are replaced, trims, and streams that begin behind a snapshot, over lives;
// what the log says of each is what the test has written.
func TestReplicas(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		groups := make([]*replica, 9) // streams 1 to 8
		for i := range groups {
			groups[i] = &replica{first: 1}
		}
		for range 3 {
			l, _ := open(t, c)
			for range 150 {
				f := l.Begin()
				for _, id := range r.Perm(8)[:1+r.IntN(4)] {
					if err := stepReplica(f, l, uint64(id+1), groups[id+1], r); err != nil {
						t.Fatal(err)
					}
				}
				finish(t, f)
			}
			checkReplicas(t, l, groups)
			if s := l.Stats(); s.Changes == 0 {
				t.Fatalf("one segment was enough: %+v", s)
			}
			if err := l.Close(r.IntN(2) == 0); err != nil {
				t.Fatal(err)
			}
			c.From = l.Stats().End // nothing but replicas, which say themselves what they need
		}
		l, _ := open(t, c)
		checkReplicas(t, l, groups)
	})
}

// stepReplica adds to a frame what a turn of a group may write.
func stepReplica(f *log.Frame, l *log.Log, id uint64, g *replica, r *rand.Rand) error {
	switch n := r.IntN(10); {
	case n == 0 && g.last() >= g.first:
		// A checkpoint has what stands up to here. AddTrim asks the log for the term, so
		// the entry was sealed in an earlier frame.
		to := g.first + r.Uint64N(g.last()-g.first+1)
		if err := f.AddTrim(id, to); err != nil {
			return err
		}
		g.base = g.term(to)
		g.entries = g.entries[to+1-g.first:]
		g.first = to + 1
		return nil
	case n == 1 && r.IntN(5) == 0:
		// The replica was given a snapshot.
		g.base = max(g.state.Term, 1)
		g.first, g.entries = g.last()+10, nil
		g.state.Commit = max(g.state.Commit, g.first-1)
		if err := f.AddBegin(id, g.first-1, g.base); err != nil {
			return err
		}
	case n == 2:
		g.state.Term, g.state.Vote = g.state.Term+1, 1+r.Uint64N(3)
	}
	g.state.Term = max(g.state.Term, 1)
	at := g.last() + 1
	if back := r.Uint64N(min(4, at-g.first+1)); r.IntN(4) == 0 && at-back > g.state.Commit {
		at -= back // a new leader replaces what was not committed
		g.entries = g.entries[:at-g.first]
	}
	for range 1 + r.IntN(4) {
		e := log.Record{Kind: log.Entry, Stream: id, Index: at, Term: g.state.Term, Body: fmt.Appendf(nil, "%d/%d/%d %s", id, at, g.state.Term, bytes.Repeat([]byte("z"), r.IntN(3000)))}
		b, err := f.Add(&e, len(e.Body))
		if err != nil {
			return err
		}
		copy(b, e.Body)
		g.entries = append(g.entries, e)
		at++
	}
	g.state.Commit = max(g.state.Commit, g.first-1+r.Uint64N(g.last()-g.first+2))
	return f.AddState(id, g.state)
}

// finish takes a frame all the way.
func finish(t *testing.T, f *log.Frame) {
	t.Helper()
	err := f.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err = f.Write(); err == nil {
		err = f.Turn()
	}
	f.Pass()
	if err != nil {
		t.Fatal(err)
	}
}

// checkReplicas compares the log with what it must be.
func checkReplicas(t *testing.T, l *log.Log, groups []*replica) {
	t.Helper()
	for id := uint64(1); id < uint64(len(groups)); id++ {
		g := groups[id]
		if first, last := l.Entries(id); first != g.first || last != g.last() {
			t.Fatalf("stream %d has entries %d to %d, expected %d to %d", id, first, last, g.first, g.last())
		}
		if s, ok := l.State(id); s != g.state || ok != (s != log.State{}) {
			t.Fatalf("stream %d: state %+v, expected %+v", id, s, g.state)
		}
		for i := g.first - 1; i <= g.last(); i++ {
			if term, err := l.Term(id, i); err != nil || term != g.term(i) {
				t.Fatalf("stream %d: entry %d has term %d, %v, expected %d", id, i, term, err, g.term(i))
			}
		}
		if _, err := l.Term(id, g.last()+1); !errors.Is(err, log.ErrNoEntry) {
			t.Fatalf("stream %d: %v", id, err)
		}
		if g.first > 1 {
			if _, err := l.ReadEntries(id, g.first-1, g.first, 1<<20); !errors.Is(err, log.ErrTrimmed) {
				t.Fatalf("stream %d: %v", id, err)
			}
		}
		for i := g.first; i <= g.last(); {
			got, err := l.ReadEntries(id, i, g.last()+1, 5000)
			if err != nil || len(got) == 0 {
				t.Fatalf("stream %d: entries from %d: %d, %v", id, i, len(got), err)
			}
			for _, e := range got {
				want := g.entries[i-g.first]
				if e.Index != want.Index || e.Term != want.Term || !bytes.Equal(e.Body, want.Body) {
					t.Fatalf("stream %d: entry %d is %d of term %d, %.20q, expected %d of term %d, %.20q", id, i, e.Index, e.Term, e.Body, want.Index, want.Term, want.Body)
				}
				i++
			}
		}
	}
}

// TestPromises: what a replica has promised cannot be taken back, and a frame that would
// leaves nothing behind.
func TestPromises(t *testing.T) {
	l, _ := open(t, small(logtest.New(logtest.Options{})))
	f := l.Begin()
	if err := f.AddState(1, log.State{Term: 3, Vote: 2, Commit: 1}); err != nil {
		t.Fatal(err)
	}
	finish(t, f)
	for _, s := range []log.State{{Term: 2, Vote: 2, Commit: 1}, {Term: 3, Vote: 1, Commit: 1}, {Term: 3, Vote: 2}} {
		before := l.Stats()
		f := l.Begin()
		if err := f.AddState(1, s); err != nil {
			t.Fatal(err)
		}
		if err := f.Seal(); !errors.Is(err, log.ErrPromise) {
			t.Fatalf("%+v: %v", s, err)
		}
		f.Drop()
		if after := l.Stats(); after.End != before.End || after.Frames != before.Frames {
			t.Fatalf("%+v was refused, and the log went from %v to %v", s, before.End, after.End)
		}
	}
	if s, _ := l.State(1); s != (log.State{Term: 3, Vote: 2, Commit: 1}) {
		t.Fatalf("%+v", s)
	}
}

// TestEntryAt: the position of an entry leads to its record, to the newest at its index.
func TestEntryAt(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		l, _ := open(t, c)
		for _, term := range []uint64{1, 2} { // the second takes the place of the first
			for i := range uint64(3) {
				if _, err := l.Append(log.Record{Kind: log.Entry, Stream: 7, Index: i + 4, Term: term, Body: fmt.Appendf(nil, "%d of %d", i+4, term)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := uint64(4); i < 7; i++ {
			at, err := l.EntryAt(7, i)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := l.ReadAt(at); err != nil || r.Kind != log.Entry || r.Index != i || r.Term != 2 || string(r.Body) != fmt.Sprintf("%d of 2", i) {
				t.Errorf("entry %d: %+v, %v", i, r, err)
			}
		}
		if _, err := l.EntryAt(7, 7); !errors.Is(err, log.ErrNoEntry) {
			t.Errorf("an entry that is not there: %v", err)
		}
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDropped: a stream that was dropped keeps no segment and never comes back.
func TestDropped(t *testing.T) {
	policies(t, func(t *testing.T, c log.Config, _ *logtest.Disk) {
		l, _ := open(t, c)
		for i := range 30 {
			if _, err := l.Append(write(5, "%d %s", i, bytes.Repeat([]byte("w"), 100<<10))); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.DropStream(5); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(write(5, "again")); !errors.Is(err, log.ErrNoStream) {
			t.Fatal(err)
		}
		end := l.Stats().End
		for range 30 {
			at, err := l.Append(write(6, "%s", bytes.Repeat([]byte("v"), 100<<10)))
			if err != nil {
				t.Fatal(err)
			}
			l.Release(6, at)
			end = at
		}
		// The retirer works in the background.
		for deadline := time.Now().Add(10 * time.Second); l.Stats().Recycled+l.Stats().Removed < 3; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the dropped stream keeps its segments: %+v", l.Stats())
			}
		}
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		c.From = end
		l, _ = open(t, c)
		l.Streams(func(i log.Info) {
			if i.Stream == 5 && (!i.Dropped || i.Oldest != 0) {
				t.Errorf("the dropped stream is back: %+v", i)
			}
		})
		if _, err := l.Append(write(5, "again")); err != nil && !errors.Is(err, log.ErrNoStream) {
			t.Fatal(err)
		}
	})
}
