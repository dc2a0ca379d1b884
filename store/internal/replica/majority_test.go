package replica

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/log"
)

// What becomes of writes when no entry and no marker comes.

// stuck is what is under way at a node that leads: an increment in an entry, more entries until no more fly, and an increment and a retry
// of the first one in no entry.
type stuck struct {
	flew, waited, again *asked
	fill                []*asked
}

var stuckKeys = []string{"n", "m", "f0", "f1", "f2", "f3"}

func (n *node) stick() (s stuck) {
	ask := func(op base.Op) *asked {
		a, err := n.ask(op)
		if err != nil {
			n.g.t.Fatal(err)
		}
		n.run()
		return a
	}
	s.flew = ask(add(0, "n", request(1, 1, false)))
	for i := range n.c.MostFlying - 1 {
		s.fill = append(s.fill, ask(base.Op{Shard: 1, Key: fmt.Appendf(nil, "f%d", i), Value: []byte("v")}))
	}
	s.waited = ask(add(0, "m", request(2, 1, false)))
	s.again = ask(add(0, "n", request(1, 1, true)))
	return s
}

// judge holds what became of it to what may be said.
func (s *stuck) judge(t *testing.T, n *node) {
	t.Helper()
	for i, a := range append(s.fill, s.flew) {
		if a.answered != 1 || !errors.Is(a.result.Err, base.ErrOutcomeUnknown) {
			t.Errorf("write %d, in an entry: answered %d times, %v", i, a.answered, a.result.Err)
		}
	}
	for i, a := range []*asked{s.waited, s.again} {
		if a.answered != 1 || !refused(a.result.Err) {
			t.Errorf("write %d, in no entry: answered %d times, %v", i, a.answered, a.result.Err)
		}
	}
	if got := n.content(stuckKeys); got != "" || n.leaked(stuckKeys) != 0 {
		t.Errorf("left: %q, %d bytes", got, n.leaked(stuckKeys))
	}
}

// TestAnswerWithoutMajority: writes that wait at a replica which orders no more, or gets nowhere, are answered in time, although no
// marker comes: what is in an entry has an unknown outcome, and what is in none was not done. Whatever comes later is published as any
// other leader's, and a retry under the same name is done once.
func TestAnswerWithoutMajority(t *testing.T) {
	const none, first, all = 0, 1, 1 << 20 // of the entries: which are committed after all
	for name, c := range map[string]struct {
		fall func(*group)
		keep int
	}{
		"cut off":                        {func(g *group) { g.nodes[0].Follows(g.term, 0) }, none},
		"cut off, its entry was heard":   {func(g *group) { g.nodes[0].Follows(g.term, 0) }, first},
		"cut off, all were heard":        {func(g *group) { g.nodes[0].Follows(g.term, 0) }, all},
		"elected again, without a word":  {func(g *group) { g.nodes[0].Leads(g.term + 1) }, first},
		"follows, stands, follows again": {func(g *group) { n := g.nodes[0]; n.Follows(g.term, 2); n.Leads(g.term + 1); n.Follows(g.term+2, 0) }, first},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, 3)
			g.lead(0)
			n := g.nodes[0]
			s := n.stick()
			n.giveUp(n.moved.Add(n.c.Stall - 1))
			c.fall(g)
			n.giveUp(n.fell.Add(n.c.Patience - 1))
			if s.flew.over || s.waited.over {
				t.Fatalf("answered before its time: %+v, %+v", s.flew, s.waited)
			}
			n.giveUp(n.fell.Add(n.c.Patience))
			n.giveUp(n.fell.Add(2 * n.c.Patience))
			s.judge(t, n)
			if _, err := n.ask(add(0, "n", request(1, 1, true))); !refused(err) {
				t.Errorf("it does not lead, and takes a retry: %v", err)
			}

			g.term += 2 // above all that a case has used
			g.elect(1, min(c.keep, len(g.pending)))
			g.settle() // the network mends, and the old leader follows
			for _, at := range []int{1, 0} {
				if at != g.leader {
					g.lead(at)
				}
				again, err := g.nodes[at].ask(add(0, "n", request(1, 1, true)))
				if err != nil {
					t.Fatal(err)
				}
				g.settle()
				if again.answered != 1 || again.result.Err != nil || again.result.Number != 1 {
					t.Errorf("the retry at node %d: answered %d times, %+v", at, again.answered, again.result)
				}
			}
			s.judgeOnce(t, g)
		})
	}
}

// judgeOnce holds a group that is at rest to one increment, at all nodes alike, and to one answer of each write.
func (s *stuck) judgeOnce(t *testing.T, g *group) {
	t.Helper()
	for _, n := range g.nodes {
		if number, other := n.number(0, "n"), n.number(0, "m"); number != 1 || other != 0 {
			t.Errorf("node %d: one increment makes %d, and one that was not done %d", n.id, number, other)
		}
		if got, want := n.content(stuckKeys), g.nodes[1].content(stuckKeys); got != want || n.leaked(stuckKeys) != 0 {
			t.Errorf("node %d has\n%swant\n%s%d bytes are in use for no key", n.id, got, want, n.leaked(stuckKeys))
		}
	}
	for i, a := range append(s.fill, s.flew, s.waited, s.again) {
		if a.answered != 1 {
			t.Errorf("write %d was answered %d times", i, a.answered)
		}
	}
}

// TestAnswerOfStalledLeader: a leader to which none of its entries comes back answers its writes too, later, and begins a new reign in its term:
// it orders nothing before its marker, before which all that was in the log is published.
func TestAnswerOfStalledLeader(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	n := g.nodes[0]
	before, _ := n.Ready()
	idle := time.Now().Add(-time.Hour)
	n.moved = idle
	s := n.stick()
	n.giveUp(n.moved.Add(n.c.Stall - 1))
	if s.flew.over || s.waited.over || !n.moved.After(idle) {
		t.Fatalf("answered before its time, waited for since %v: %+v, %+v", n.moved, s.flew, s.waited)
	}
	n.moved = idle
	g.commit(1)
	n.apply(1) // it gets on, and begins to wait anew
	if !s.flew.over || s.flew.result.Number != 1 || !n.moved.After(idle) {
		t.Fatalf("waits since %v: %+v", n.moved, s.flew)
	}
	moved := n.moved
	n.giveUp(moved.Add(n.c.Stall - 1))
	if s.fill[0].over {
		t.Fatal("answered before its time, counted from the last entry that came")
	}
	n.giveUp(moved.Add(n.c.Stall))
	if a := s.fill[0]; a.answered != 1 || !errors.Is(a.result.Err, base.ErrOutcomeUnknown) || !refused(s.waited.result.Err) {
		t.Errorf("in an entry: %+v; in none: %+v", a, s.waited)
	}
	if _, err := n.ask(add(0, "n", request(3, 1, false))); !refused(err) {
		t.Errorf("it orders while its entries are out: %v", err)
	}
	g.settle()
	reign, ok := n.Ready()
	if !ok || reign == before {
		t.Errorf("behind its marker, in reign %d: %v", reign, ok)
	}
	if got := n.content([]string{"f0"}); got == "" {
		t.Error("an entry that came after all is not published")
	}
	for i, want := range []int64{1, 2} {
		a, err := n.ask(add(0, "n", request(byte(1+4*i), 1, i == 0))) // the first is a retry
		if err != nil {
			t.Fatal(err)
		}
		g.settle()
		if a.result.Number != want {
			t.Errorf("increment %d: %+v, want %d", i, a.result, want)
		}
	}
	for _, o := range g.nodes {
		if got, want := o.content(stuckKeys), n.content(stuckKeys); got != want || o.leaked(stuckKeys) != 0 {
			t.Errorf("node %d has\n%swant\n%s", o.id, got, want)
		}
	}
}

// TestAnswerBesideApply: while an entry is published nobody takes writes back, and then what has come is not given up. What has not is given up
// behind that.
func TestAnswerBesideApply(t *testing.T) {
	g := newGroup(t, 1)
	g.lead(0)
	n := g.nodes[0]
	s := n.stick()
	n.Follows(g.term, 0)
	late := n.fell.Add(n.c.Patience)
	at := n.c.At
	n.c.At = func(index uint64) (log.Position, error) {
		n.giveUp(late) // as Run does, by its own goroutine
		return at(index)
	}
	g.commit(1)
	n.apply(1)
	if s.flew.answered != 1 || s.flew.result.Err != nil || s.flew.result.Number != 1 {
		t.Errorf("its entry was published: answered %d times, %+v", s.flew.answered, s.flew.result)
	}
	for i, a := range append(s.fill, s.waited) {
		if a.over {
			t.Errorf("write %d was answered beside Apply: %+v", i, a.result)
		}
	}
	n.giveUp(late)
	for i, a := range append(s.fill, s.waited) {
		if a.answered != 1 {
			t.Errorf("write %d: answered %d times", i, a.answered)
		}
	}
}

// TestAnswerInTime: over the engine, a leader that is cut off answers what waits within Patience of its fall, whether the others have heard of
// it or not. Callers ask the others under the same name, and all of it is done once.
func TestAnswerInTime(t *testing.T) {
	for name, heard := range map[string]bool{"nobody has heard of it": false, "the others have it in their logs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1)
				for c.ready() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				lead := c.ready()
				c.mu.Lock()
				for i := range c.hosts {
					c.out[[2]int{i, lead.id}], c.out[[2]int{lead.id, i}] = true, !heard
				}
				c.mu.Unlock()
				const writes = 7
				var errs [writes]error
				var took [writes]time.Duration
				over := make(chan int, 2*writes)
				begun := time.Now()
				for i := range errs {
					if err := lead.submit(add(0, "n", request(byte(i), 1, false)), func(err error) {
						errs[i], took[i] = err, time.Since(begun)
						over <- i
					}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // it is in an entry, if there is one to be in
				}
				forever := time.After(time.Minute)
				for range errs {
					select {
					case <-over:
					case <-forever:
						t.Fatal("not all are answered in a minute")
					}
				}
				const deposed = 500 * time.Millisecond // CheckQuorum's two election timeouts, and some
				unknown := 0
				for i, err := range errs {
					if errors.Is(err, base.ErrOutcomeUnknown) {
						unknown++
					} else if !refused(err) {
						t.Errorf("write %d: %v", i, err)
					}
					if took[i] < lead.c.Patience || took[i] > lead.c.Patience+deposed {
						t.Errorf("write %d was answered after %v, want %v from when CheckQuorum ends the reign", i, took[i], lead.c.Patience)
					}
				}
				if unknown != lead.c.MostFlying {
					t.Errorf("%d outcomes are unknown, and %d entries were proposed", unknown, lead.c.MostFlying)
				}
				for i := range errs {
					c.increment(add(0, "n", request(byte(i), 1, true))) // where another leads
				}
				if now := c.ready(); now == lead || now.number(0, "n") != writes {
					t.Errorf("node %d leads, and %d increments make %d", now.id, writes, now.number(0, "n"))
				}
				c.cut(lead.id, false)
				time.Sleep(3 * time.Second)
				for _, h := range c.hosts {
					if got := h.node.number(0, "n"); got != writes {
						t.Errorf("node %d: %d increments make %d", h.id, writes, got)
					}
					if b := h.node.leaked([]string{"n"}); b != 0 {
						t.Errorf("node %d has %d bytes in use for no key", h.id, b)
					}
				}
				for _, h := range c.hosts {
					h.stop()
				}
				if len(over) != 0 {
					t.Errorf("%d writes were answered twice", len(over))
				}
				time.Sleep(time.Second) // what is on its way arrives
			})
		})
	}
}
