package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
)

// toldChecks has a node's checks told to a test.
func (n *node) toldChecks() *[]uint64 {
	var told []uint64
	n.c.Check = func(index uint64) {
		if n.State().Applied < index {
			n.g.t.Errorf("a check is told of at entry %d, and published is %d", index, n.State().Applied)
		}
		told = append(told, index)
	}
	return &told
}

// due is how far checkpoints of a node may go.
func (n *node) due() uint64 {
	index, _ := n.Due()
	return index
}

// asks has a node, which leads, put a check into the log, and returns its index.
func (g *group) asks(n *node) (index uint64) {
	g.t.Helper()
	type answer struct {
		index uint64
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		index, err := n.Check(context.Background())
		answered <- answer{index, err}
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		g.settle()
		select {
		case a := <-answered:
			if a.err != nil {
				g.t.Fatal(a.err)
			}
			return a.index
		default:
		}
		if time.Now().After(deadline) {
			g.t.Fatal("nobody applies the check")
		}
	}
}

// TestCheckHoldsTheBase: a check is told of at each replica, once; the base is held at its entry until it was looked at, while
// writes go on, and then is not.
func TestCheckHoldsTheBase(t *testing.T) {
	g := newGroup(t, 3)
	var told []*[]uint64
	for _, n := range g.nodes {
		told = append(told, n.toldChecks())
	}
	g.lead(0)
	put := func() {
		if _, err := g.nodes[0].ask(base.Op{Key: []byte("k"), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		g.settle()
	}
	put()
	index := g.asks(g.nodes[0])
	put()
	put()
	for i, n := range g.nodes {
		if to := n.State().Applied; n.due() != index || to <= index {
			t.Errorf("node %d: rounds may go to entry %d, the check is at %d, and published is %d", i, n.due(), index, to)
		}
		if got := n.CheckAt(index); got.State != CheckWaits {
			t.Errorf("node %d: %+v", i, got)
		}
		if len(*told[i]) != 1 || (*told[i])[0] != index {
			t.Errorf("node %d is told of checks %v, want %d", i, *told[i], index)
		}
		n.CheckStands(index)
		if got, to := n.CheckAt(index), n.State().Applied; got.State != CheckReads || n.due() != to {
			t.Errorf("node %d: %+v, rounds may go to entry %d, and published is %d", i, got, n.due(), to)
		}
	}
	n := g.nodes[0]
	if _, err := n.Check(t.Context()); !errors.Is(err, ErrChecking) || !errors.Is(err, base.ErrOverloaded) {
		t.Errorf("a second one while the first is read: %v", err)
	}
	want := Digest{Sum: [32]byte{1}, Keys: 2, Results: 3}
	n.CheckOver(index, want, nil)
	n.CheckOver(index, Digest{}, errors.New("late"))
	if got := n.CheckAt(index); got.State != CheckDone || got.Digest != want || got.Err != nil {
		t.Errorf("%+v", got)
	}
	// The others read still, so the next one fails there, and nothing is held.
	second := g.asks(n)
	if got := g.nodes[1].CheckAt(second); got.State != CheckFailed || !errors.Is(got.Err, ErrChecking) || g.nodes[1].due() != g.nodes[1].State().Applied {
		t.Errorf("%+v, due up to %d", got, g.nodes[1].due())
	}
	if n.due() != second {
		t.Errorf("rounds may go to entry %d, the check is at %d", n.due(), second)
	}
	why := errors.New("no checkpoint")
	n.CheckOver(second, Digest{}, why)
	put()
	if got := n.CheckAt(second); got.State != CheckFailed || got.Err != why || n.due() != n.State().Applied {
		t.Errorf("%+v, due up to %d of %d", got, n.due(), n.State().Applied)
	}
	if got := n.CheckAt(index - 1); got.State != CheckUnknown {
		t.Errorf("an entry that is no check: %+v", got)
	}
	if got := n.CheckAt(n.State().Applied + 1); got.State != CheckBehind {
		t.Errorf("an entry that is not there: %+v", got)
	}
}

// TestChecksAreBounded: a replica knows of the last checks, and forgets none that is under way.
func TestChecksAreBounded(t *testing.T) {
	g := newGroup(t, 2)
	for _, n := range g.nodes {
		n.toldChecks()
	}
	g.lead(0)
	lead, busy := g.nodes[0], g.nodes[1]
	first := g.asks(lead)
	lead.CheckOver(first, Digest{}, nil)
	var last uint64
	for range 3 * mostChecks {
		last = g.asks(lead)
		lead.CheckOver(last, Digest{}, nil)
	}
	if len(lead.checks.all) != mostChecks || len(busy.checks.all) != mostChecks {
		t.Errorf("%d and %d checks are kept, want %d", len(lead.checks.all), len(busy.checks.all), mostChecks)
	}
	if got := lead.CheckAt(first); got.State != CheckUnknown {
		t.Errorf("the first of many is kept: %+v", got)
	}
	if got := busy.CheckAt(first); got.State != CheckWaits || busy.due() != first {
		t.Errorf("one that is under way: %+v, due up to %d", got, busy.due())
	}
	if got := busy.CheckAt(last); got.State != CheckFailed {
		t.Errorf("the newest: %+v", got)
	}
}

// TestCheckIsOvertaken: when another replica's state takes the place of what was to be checked, the check has failed, and holds nothing.
func TestCheckIsOvertaken(t *testing.T) {
	g := newGroup(t, 2)
	for _, n := range g.nodes {
		n.toldChecks()
	}
	g.lead(0)
	index, n := g.asks(g.nodes[0]), g.nodes[1]
	s := n.State()
	s.Applied += 10
	n.Forget()
	n.Installed(s)
	if got := n.CheckAt(index); got.State != CheckFailed || !errors.Is(got.Err, ErrOvertaken) || n.due() != s.Applied {
		t.Errorf("%+v, due up to %d of %d", got, n.due(), s.Applied)
	}
	n.CheckStands(index)
	n.CheckOver(index, Digest{Keys: 1}, nil)
	if got := n.CheckAt(index); got.State != CheckFailed {
		t.Errorf("it is looked at still: %+v", got)
	}
}

// TestCheckEndsWithItsReplica: a replica that was stopped holds no checkpoint.
func TestCheckEndsWithItsReplica(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	n.toldChecks()
	g.lead(0)
	index := g.asks(n)
	if _, err := n.ask(base.Op{Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	g.settle()
	if n.due() != index {
		t.Fatalf("rounds may go to entry %d, the check is at %d", n.due(), index)
	}
	n.End(base.ErrClosed)
	if got := n.CheckAt(index); got.State != CheckFailed || got.Err != base.ErrClosed || n.due() != n.State().Applied {
		t.Errorf("%+v, due up to %d of %d", got, n.due(), n.State().Applied)
	}
}

// TestCheckOfWhoDoesNotLead: a check ends with an error when the replica leads no more, is stopped, or ctx ends; and the entry of one that was given
// up does no harm.
func TestCheckOfWhoDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		n := g.nodes[0]
		n.toldChecks()
		if _, err := n.Check(t.Context()); !refused(err) {
			t.Errorf("it does not lead: %v", err)
		}
		g.lead(0)
		for name, end := range map[string]func(cancel func()){
			"deposed":  func(func()) { n.Follows(g.term+1, 2) },
			"elected":  func(func()) { n.Leads(g.term + 1) },
			"stopped":  func(func()) { n.End(&NotLeaderError{}) },
			"given up": func(cancel func()) { cancel() },
		} {
			g.lead(0)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := n.Check(ctx)
				failed <- err
			}()
			synctest.Wait()
			if _, err := n.Check(t.Context()); !errors.Is(err, ErrChecking) {
				t.Errorf("%s: a second one: %v", name, err)
			}
			if _, data, what := n.proposal(); what != entry.Check || len(data) == 0 {
				t.Errorf("%s: it proposes %x, of kind %d", name, data, what)
			}
			end(cancel)
			synctest.Wait()
			select {
			case err := <-failed:
				if !refused(err) && !(name == "given up" && errors.Is(err, context.Canceled)) {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Fatalf("%s: the check waits on", name)
			}
			if _, _, what := n.proposal(); what == entry.Check {
				t.Errorf("%s: it is proposed still", name)
			}
			cancel()
		}
		// An entry that nobody waits for.
		g.lead(0)
		at := uint64(len(g.log) + 1)
		g.log = append(g.log, committed{g.term, entry.AppendCheck(nil, 77)})
		g.settle()
		if got := n.CheckAt(at); got.State != CheckWaits {
			t.Errorf("%+v", got)
		}
	})
}

// TestCheckWithoutABase: a replica that has no base says so, and holds nothing.
func TestCheckWithoutABase(t *testing.T) {
	g := newGroup(t, 1)
	g.lead(0)
	n := g.nodes[0]
	at := uint64(len(g.log) + 1)
	if err := n.Apply([]consensus.Entry{{Index: at, Term: g.term, Kind: consensus.Write, Data: entry.AppendCheck(nil, 1)}}); err != nil {
		t.Fatal(err)
	}
	if got := n.CheckAt(at); got.State != CheckFailed || got.Err == nil || n.due() != at {
		t.Errorf("%+v, due up to %d", got, n.due())
	}
}

// TestCounts: a replica counts its elections, terms that it hears of, once each, what it proposes, and how checks end.
func TestCounts(t *testing.T) {
	g := newGroup(t, 2)
	for _, n := range g.nodes {
		n.toldChecks()
	}
	g.lead(0)
	g.lead(1)
	g.lead(0)
	lead, other := g.nodes[0], g.nodes[1]
	lead.Follows(g.term, 1) // a term that it knows
	lead.Leads(g.term)
	if got := CountsOf(other.Replica); got != (Counts{Elected: 1, Terms: 2}) {
		t.Errorf("elected once, and deposed by a later term: %+v", got)
	}
	if got := CountsOf(lead.Replica); got.Elected != 3 || got.Terms != 3 || got.Entries != 0 {
		t.Errorf("elected in three calls, in two terms, and deposed in one: %+v", got)
	}
	g.settle()
	before, bytes := len(g.log), 0
	for i := range 3 {
		if _, err := lead.ask(base.Op{Key: []byte("k"), Value: make([]byte, 100*i)}); err != nil {
			t.Fatal(err)
		}
		g.settle()
	}
	for _, e := range g.log[before:] {
		bytes += len(e.data)
	}
	index := g.asks(lead)
	lead.CheckOver(index, Digest{}, nil)
	other.CheckOver(index, Digest{}, errors.New("damaged"))
	other.CheckOver(index, Digest{}, nil)
	if got := CountsOf(lead.Replica); got.Entries != 3 || got.Bytes != uint64(bytes) || got.Checks != 1 || got.Failed != 0 {
		t.Errorf("%+v, of 3 entries with %d bytes, and a check", got, bytes)
	}
	if got := CountsOf(other.Replica); got.Entries != 0 || got.Checks != 0 || got.Failed != 1 {
		t.Errorf("of one that follows: %+v", got)
	}
}
