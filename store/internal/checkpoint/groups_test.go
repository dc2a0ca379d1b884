package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// A told is one entry of a group, and what it comes to.
type told struct {
	term   uint64
	kind   consensus.Kind
	data   []byte
	writes []*flight.Flight // if it counts
	state  groupentry.State // behind it
}

// A party is a group of a world: its entries, and up to which they are published. It writes to one
// shard.
type party struct {
	id        consensus.GroupID
	shard     uint16
	entries   []told // index i+1
	published uint64
}

func (p *party) stream() uint64 { return 100 + uint64(p.id) }

// at is the state behind an entry.
func (p *party) at(index uint64) groupentry.State {
	if index == 0 {
		return groupentry.State{}
	}
	return p.entries[index-1].state
}

// grow makes an entry up and appends it to the log. Sometimes it takes the place of entries that are not
// published.
func (w *world) grow(p *party) {
	last := uint64(len(p.entries))
	term := p.at(last).Term
	if last > p.published && w.rng.IntN(5) == 0 {
		last = p.published + w.rng.Uint64N(last-p.published)
		p.entries, term = p.entries[:last], term+1
	}
	s := p.at(last)
	s.Applied, s.Term = last+1, max(1, term+uint64(w.rng.IntN(8)/7))
	e := told{term: s.Term, kind: consensus.Write}
	switch n := w.rng.IntN(12); {
	case last == 0 || n == 0:
		e.kind, e.data = consensus.Change, []byte("the engine's own")
		s.Config = consensus.Config{Index: s.Applied, Voters: []consensus.Member{{ID: 1, Node: fmt.Sprint("n", s.Applied)}}}
	case n == 1:
		e.kind = consensus.Empty
	case s.Turn.Reign == 0 || n == 2:
		e.data = groupentry.AppendMarker(nil, 9, s.Term)
		s.Turn.Reign, s.Turn.Next = s.Applied, max(1, s.Turn.Next)
	default:
		first, reign := s.Turn.Next, s.Turn.Reign
		switch n {
		case 3: // of another reign
			reign++
		case 4: // one before it is lost
			first += 3
		}
		next := first
		for range 1 + w.rng.IntN(4) {
			f := w.flight()
			f.Shard = p.shard
			for _, x := range f.Effects {
				x.Shard = p.shard
			}
			next = f.NumberInGroup(next)
			e.writes = append(e.writes, f)
		}
		e.data = groupentry.AppendWrites(nil, reign, first, next, e.writes)
		if first != s.Turn.Next || reign != s.Turn.Reign {
			e.writes = nil
		} else {
			s.Turn.Next = next
		}
	}
	e.state = s
	p.entries = append(p.entries, e)
	body := make([]byte, consensus.BodySize(e.kind, len(e.data)))
	if len(body) > 0 {
		consensus.PutBody(body, e.kind, e.data)
	}
	if _, err := w.seal([]line{{rec: log.Record{Kind: log.Entry, Stream: p.stream(), Index: s.Applied, Term: s.Term}, body: body}}); err != nil {
		w.t.Fatal(err)
	}
}

// stands is where the base stands in a group, by its own word.
func (w *world) stands(p *party) groupentry.State {
	w.t.Helper()
	v, ok := dump(w.t, w.db)[string(GroupKey(p.id))]
	if !ok {
		return groupentry.State{}
	}
	rec, err := disk.ParseRecord([]byte(v), GroupKey(p.id))
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := groupentry.ParseState(rec.Value)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// runGroups makes one checkpoint with all groups.
func (w *world) runGroups(all []*party, bound Bound) (Done, error) {
	c := Config{
		Log: w.log, Stream: ours, From: w.from, Epoch: 3, Facts: names, Bound: bound,
		Begin: func(ctx context.Context) (Ingest, error) {
			return tables.Begin(ctx, w.db, tables.Config{FS: w.fs, Options: baseOptions(w.fs), Dir: "tables", TableBytes: 4096})
		},
	}
	for _, p := range all {
		g := Group{ID: p.id, Stream: p.stream(), From: w.stands(p), To: p.published}
		for _, e := range p.entries[:p.published] {
			if e.kind == consensus.Change && e.state.Config.Index > g.From.Applied {
				g.Configs = append(g.Configs, e.state.Config)
			}
		}
		c.Groups = append(c.Groups, g)
	}
	return Run(context.Background(), c)
}

// TestGroups: the base is the state of each group at the entry that it names, and never has an entry that is not
// published, or one that does not count.
func TestGroups(t *testing.T) {
	worlds(t, 8, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		defer w.close()
		w.sync = log.Always
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		all := []*party{{id: 1, shard: 5}, {id: 2, shard: 6}}
		check := func(what string) {
			t.Helper()
			want := w.wanted(w.from.At)
			for _, p := range all {
				s := w.stands(p)
				if want := p.at(s.Applied); s.Applied > p.published || !slices.Equal(groupentry.AppendState(nil, &s), groupentry.AppendState(nil, &want)) {
					t.Fatalf("%s: the base says %+v of group %d, want %+v, published is %d", what, s, p.id, want, p.published)
				}
				for _, e := range p.entries[:s.Applied] {
					for _, f := range e.writes {
						putFlight(want, f)
					}
				}
				if s.Applied > 0 {
					put(want, GroupKey(p.id), disk.Record{Value: groupentry.AppendState(nil, &s)})
				}
			}
			got := dump(t, w.db)
			for k, v := range want {
				if got[k] != v {
					t.Fatalf("%s: %x is %.60x, want %.60x", what, k, got[k], v)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%s: the base has %d keys, want %d", what, len(got), len(want))
			}
		}
		for round := range 12 {
			for _, p := range all {
				for range w.rng.IntN(12) {
					w.grow(p)
				}
				p.published += w.rng.Uint64N(uint64(len(p.entries)) - p.published + 1)
			}
			before := []groupentry.State{w.stands(all[0]), w.stands(all[1])}
			bound := w.anyBound()
			done, err := w.runGroups(all, bound)
			if err != nil {
				t.Fatal(err)
			}
			w.from = done.Place
			for i, p := range all {
				s := w.stands(p)
				if got := done.States[i]; !slices.Equal(groupentry.AppendState(nil, &s), groupentry.AppendState(nil, &got)) {
					t.Fatalf("Run says %+v of group %d, and the base %+v", got, p.id, s)
				}
				if s.Applied < before[i].Applied {
					t.Fatalf("the base went back from entry %d to %d", before[i].Applied, s.Applied)
				}
				if !done.More && s.Applied != p.published {
					t.Fatalf("no more, and of group %d the base has %d entries of %d", p.id, s.Applied, p.published)
				}
			}
			check(fmt.Sprint("round ", round))
			for _, p := range all { // R6: what the base has, the log needs no more
				if s := w.stands(p); s.Applied > 0 && w.rng.IntN(2) == 0 {
					f := w.log.Begin()
					if err := errors.Join(f.AddTrim(p.stream(), s.Applied), f.Seal(), f.Write(), f.Turn()); err != nil {
						t.Fatal(err)
					}
					f.Pass()
				}
			}
			if w.rng.IntN(3) == 0 {
				w.close()
				if err := w.open(); err != nil {
					t.Fatal(err)
				}
				check("after a start")
			}
		}
		for more, n := true, 0; more; n++ {
			done, err := w.runGroups(all, w.anyBound())
			if err != nil || n > 10_000 {
				t.Fatal(n, err)
			}
			w.from, more = done.Place, done.More
		}
		check("at the end")
	})
}

// TestHostileEntries: what no replica can have published ends the checkpoint, and the base stays as it was.
func TestHostileEntries(t *testing.T) {
	for name, tc := range map[string]struct {
		body []byte
		want error
	}{
		"of a newer engine":  {[]byte{99}, consensus.ErrEntry},
		"of a newer program": {append([]byte{byte(consensus.Write)}, 99), groupentry.ErrNewer},
		"malformed":          {append([]byte{byte(consensus.Write)}, groupentry.AppendMarker(nil, 1, 1)[:20]...), groupentry.ErrMalformed},
		"a write that is none": {func() []byte {
			b := groupentry.AppendWrites(nil, 1, 1, 2, nil)
			b[4] = 1 // there is a write
			return append([]byte{byte(consensus.Write)}, append(b, 8, 0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0)...)
		}(), logged.ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			defer w.close()
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
			at, err := w.log.Append(log.Record{Kind: log.Entry, Stream: 101, Index: 1, Term: 1, Body: tc.body})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.runGroups([]*party{{id: 1, published: 1, entries: make([]told, 1)}}, Bound{})
			var broken *RecordError
			if !errors.As(err, &broken) || broken.At != at || !errors.Is(err, tc.want) {
				t.Fatalf("%v, want an error about %v", err, at)
			}
			if len(dump(t, w.db)) != 0 {
				t.Error("something is in the base")
			}
		})
	}
}
