package ckpt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	groupentry "github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// A team is a group of one shard whose replica a test plays: entries are appended first, and published later.
type team struct {
	r         *rig
	id        consensus.GroupID
	shard     uint16
	next      uint64 // number
	entries   [][]*flight.Flight
	published atomic.Int64
	most      atomic.Int64 // that rounds may take in; 0: all
	saved     []uint64
	onSaved   func(uint64)
}

func (g *team) ID() consensus.GroupID { return g.id }
func (g *team) Stream() uint64        { return 100 + uint64(g.id) }
func (g *team) Shards() []uint16      { return []uint16{g.shard} }

func (g *team) Published() (uint64, []consensus.Config) {
	return uint64(g.published.Load()), []consensus.Config{{Index: 1, Voters: []consensus.Member{{ID: 1, Node: "n"}}}}
}

// Due is Published, but for what the test holds back.
func (g *team) Due() (uint64, []consensus.Config) {
	to, configs := g.Published()
	if most := uint64(g.most.Load()); most > 0 {
		to = min(to, most)
	}
	return to, configs
}

// Saved trims the log, as an engine does.
func (g *team) Saved(s groupentry.State) {
	g.saved = append(g.saved, s.Applied)
	if g.onSaved != nil {
		g.onSaved(s.Applied)
	}
	f := g.r.log.Begin()
	if err := errors.Join(f.AddTrim(g.Stream(), s.Applied), f.Seal(), f.Write(), f.Turn()); err != nil {
		g.r.t.Error(err)
	}
	f.Pass()
}

// team makes a group whose first entry, of its configuration and its reign, are published.
func (r *rig) team(id consensus.GroupID, shard uint16, first uint64) *team {
	g := &team{r: r, id: id, shard: shard, next: first}
	r.AddGroup(g, groupentry.State{Turn: groupentry.Turn{Next: first}})
	g.append(consensus.Change, []byte("the engine's own"), nil)
	g.append(consensus.Write, groupentry.AppendMarker(nil, 1, 1), nil)
	g.publish(2)
	return g
}

// append appends an entry.
func (g *team) append(k consensus.Kind, data []byte, writes []*flight.Flight) {
	body := make([]byte, consensus.BodySize(k, len(data)))
	consensus.PutBody(body, k, data)
	g.entries = append(g.entries, writes)
	if _, err := g.r.log.Append(log.Record{Kind: log.Entry, Stream: g.Stream(), Index: uint64(len(g.entries)), Term: 1, Body: body}); err != nil {
		g.r.t.Fatal(err)
	}
}

// write appends an entry that puts keys, and publishes nothing.
func (g *team) write(keys ...string) {
	var writes []*flight.Flight
	first := g.next
	for _, k := range keys {
		e := &flight.Effect{Effect: base.Effect{Shard: g.shard, Key: []byte(k), Value: []byte("of " + k)}, Hash: layout.HashKey(9, []byte(k))}
		f := &flight.Flight{Shard: g.shard, Effects: []*flight.Effect{e}}
		g.next = f.NumberInGroup(g.next)
		writes = append(writes, f)
	}
	g.append(consensus.Write, groupentry.AppendWrites(nil, 2, first, g.next, writes), writes)
}

// publish publishes so many entries more.
func (g *team) publish(n int) {
	for ; n > 0; n-- {
		at, err := g.r.log.EntryAt(g.Stream(), uint64(g.published.Load()+1))
		if err != nil {
			g.r.t.Fatal(err)
		}
		sh := g.r.shards[g.shard]
		sh.Mu.Lock()
		for i, f := range g.entries[g.published.Load()] {
			e := f.Effects[0]
			sh.Dirty.Note(e.Hash, e.Key, dirty.Entry{Version: e.Version, At: at, Part: uint32(i)})
		}
		sh.Mu.Unlock()
		g.published.Add(1)
	}
}

// find says where a key is: "log" or "base", or in neither.
func (g *team) find(key string) string {
	sh := g.r.shards[g.shard]
	sh.Mu.Lock()
	_, dirty := sh.Dirty.Find(layout.HashKey(9, []byte(key)), []byte(key))
	sh.Mu.Unlock()
	v, err := readBase(g.r.db, g.shard, []byte(key))
	switch {
	case err != nil:
		g.r.t.Fatal(err)
	case dirty && v != 0:
		return "log, base"
	case dirty:
		return "log"
	case v != 0:
		return "base"
	}
	return "nowhere"
}

// TestGroupsLeave: what a group has published goes into the base and leaves its sets, and nothing else: not what is
// only in the log, and not what another group has numbered lower.
func TestGroupsLeave(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.team(1, 0, 1000), r.team(2, 1, 1)
	a.write("x", "y")
	b.write("x")
	a.publish(1)
	if _, err := r.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	b.publish(1) // it stands in the log before the place that the base has now
	b.write("y") // and is published when a later round has looked
	if got := fmt.Sprint(a.find("x"), " ", a.find("y"), " ", b.find("x"), " ", b.find("y")); got != "base base log nowhere" {
		t.Errorf("after the first round: %s", got)
	}
	r.begin = func() error {
		b.publish(1)
		return nil
	}
	a.write("z")
	a.publish(1)
	if _, err := r.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(a.find("z"), " ", b.find("x"), " ", b.find("y")); got != "base base log" {
		t.Errorf("after the second round: %s", got)
	}
	if fmt.Sprint(a.saved, b.saved) != "[3 4] [2 3]" {
		t.Errorf("the replicas were told %v and %v", a.saved, b.saved)
	}
	r.begin = nil
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.find("y"); got != "base" {
		t.Errorf("at the end: %s", got)
	}
	// A group that is behind is a reason for a round, though the log has nothing new.
	b.write("w")
	if err := r.Last(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publish(1)
	if due, _ := r.look(); due {
		t.Error("a round is due at once")
	}
	r.c.Every = time.Nanosecond
	time.Sleep(time.Millisecond)
	if due, _ := r.look(); !due {
		t.Error("no round is due, and a write of a group is old")
	}
	if _, err := r.round(t.Context(), false); err != nil || b.find("w") != "base" {
		t.Errorf("%v, and w is in %s", err, b.find("w"))
	}
}

// TestNowWaitsForGroups: who wants the base to have all that is published waits for what groups have published, too.
func TestNowWaitsForGroups(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	g.write("x")
	r.life.Go(r.Run)
	waitFor(t, "a base that has all of the log", func() bool {
		if err := r.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.Place().At >= r.log.Stats().End
	})
	g.publish(1)
	if err := r.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.find("x"); got != "base" {
		t.Errorf("x is in %s", got)
	}
}

// TestReaderHoldsEntries: a reader that has found an entry in a set reads its record, whatever rounds, trims and
// new segments come in between; and when he is through, the log gets its room back.
func TestReaderHoldsEntries(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	g.write("x")
	r.fillOthers(segment) // the log goes on
	if _, err := r.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	g.publish(1)
	sh := r.shards[0]
	sh.Mu.Lock()
	e, found := sh.Dirty.Find(layout.HashKey(9, []byte("x")), []byte("x"))
	release, err := r.Hold()
	sh.Mu.Unlock()
	if !found || err != nil || e.At >= r.Place().Frame {
		t.Fatalf("found %v at %v, the base is at %v; %v", found, e.At, r.Place().Frame, err)
	}
	push := func() {
		for range 2 {
			r.fillOthers(2 * segment)
			if err := r.Last(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	push()
	rec, err := r.log.ReadAt(e.At)
	if err != nil || !bytes.Contains(rec.Body, []byte("of x")) {
		t.Errorf("%q, %v", rec.Body, err)
	}
	release()
	push()
	waitFor(t, "the log's room", func() bool {
		_, err := r.log.ReadAt(e.At)
		return err != nil
	})
}

// TestReplace: another state of a group takes the place of the base's between two rounds, and never beside one; rounds go on behind it, and
// who waits for an entry that it has waits no more. Where that fails the base is where it was.
func TestReplace(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	g.write("x")
	g.publish(1)
	state := func() groupentry.State { return r.groupList()[0].state }
	before := state()

	in, out := make(chan struct{}), make(chan struct{})
	r.begin = func() error {
		close(in)
		<-out
		return nil
	}
	over := r.started()
	<-in
	other := groupentry.State{State: consensus.State{Applied: 40, Term: 2}, Turn: groupentry.Turn{Reign: 2, Next: 900}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.Replace(ctx, g.id, other, func() error { t.Error("beside a round"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside a round: %v", err)
	}
	close(out)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	r.begin = nil
	after := state()
	if after.Applied <= before.Applied {
		t.Fatalf("the round took in nothing: %+v", after)
	}

	broken := errors.New("broken")
	if err := r.Replace(t.Context(), g.id, other, func() error { return broken }); !errors.Is(err, broken) || state().Applied != after.Applied {
		t.Errorf("%v, and the base is at %+v", err, state())
	}
	if r.fenced.Load() != nil {
		t.Error("an error that may pass fences the store")
	}
	// An entry that is published and not in the base is waited for, until a state has it.
	g.write("y")
	g.publish(1)
	waits := make(chan error, 1)
	go func() { waits <- r.Now(t.Context()) }()
	waitFor(t, "somebody to wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.requests) == 1
	})
	if err := r.Replace(t.Context(), g.id, other, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := state(); got.Applied != 40 || got.Turn.Next != 900 {
		t.Errorf("rounds go on behind %+v", got)
	}
	if r.Place().At >= r.log.Stats().End {
		select {
		case err := <-waits:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("somebody waits for an entry that the state has")
		}
	} else {
		r.life.Go(r.Run)
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}
	if err := r.Replace(t.Context(), g.id, other, func() error { return &tables.FenceError{Cause: "a test"} }); err == nil || r.fenced.Load() == nil {
		t.Errorf("%v: nobody knows what the base has, and the store goes on", err)
	}
}

// TestRoundsStayAtACheck: rounds take in no entry behind the one that Due says, however many are published; Reach returns when the base has
// that one, and Now when it has all.
func TestRoundsStayAtACheck(t *testing.T) {
	r := newRig(t, nil)
	g := r.team(1, 0, 1)
	g.write("x")
	g.write("y")
	g.publish(2)
	g.most.Store(3) // x
	r.life.Go(r.Run)
	if err := r.Reach(t.Context(), g.id, 3); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Now(t.Context()) }()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Reach(short, g.id, 4); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the base is to stay in front of entry 4: %v", err)
	}
	if got := g.find("x") + " " + g.find("y"); got != "base log" {
		t.Errorf("while a check holds the base, x and y are in %s", got)
	}
	select {
	case err := <-ended:
		t.Fatalf("Now says that the base has all: %v", err)
	default:
	}
	g.most.Store(0)
	if err := errors.Join(<-ended, r.Reach(t.Context(), g.id, 4)); err != nil || g.find("y") != "base" {
		t.Errorf("%v, and y is in %s", err, g.find("y"))
	}
}
