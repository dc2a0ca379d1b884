package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// TestAllReplicasHaveIt: what a leader has ordered stands in the memory of all, under one version,
// and is answered when it is published at the leader, once.
func TestAllReplicasHaveIt(t *testing.T) {
	g := newGroup(t, 3)
	g.lead(0)
	var all []*asked
	for i, op := range []base.Op{
		{Key: []byte("a"), Value: []byte("1")},
		{Shard: 1, Key: []byte("a"), Value: []byte("other")},
		add(0, "n", request(1, 1, false)), add(0, "n", request(1, 2, false)),
		{Kind: base.OpBatch, Parts: []base.Part{{Key: []byte("b"), Value: []byte("2")}, {Key: []byte("x"), Delete: true}, {Key: []byte("c"), Value: []byte("3")}}},
		{Kind: base.OpDelete, Key: []byte("a")},
		{Key: []byte("b"), Value: []byte("no"), If: base.CondAbsent, ID: request(2, 1, false)},
	} {
		a, err := g.nodes[0].ask(op)
		if err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		all = append(all, a)
	}
	g.nodes[0].run()
	g.commit(len(g.pending))
	for _, a := range all {
		if a.over {
			t.Fatalf("%s was answered when it was committed, and is not published", a.op.Key)
		}
	}
	g.settle()
	for i, a := range all {
		if a.answered != 1 || a.result.Err != nil && !(i == 6 && a.result.Err == base.ErrCondition) {
			t.Errorf("write %d: answered %d times, %v", i, a.answered, a.result.Err)
		}
	}
	if all[3].result.Number != 2 || !all[5].result.Existed || !all[6].result.Existed {
		t.Errorf("%+v, %+v, %+v", all[3].result, all[5].result, all[6].result)
	}
	keys := []string{"a", "b", "c", "n", "x"}
	want := fmt.Sprintf("0/b = 2, version %v\n0/c = 3, version %v\n0/n = 2, version %v\n1/a = other, version %v\n",
		layout.NumberedVersion(5, 0), layout.NumberedVersion(7, 0), layout.NumberedVersion(4, 0), layout.NumberedVersion(2, 1))
	for _, n := range g.nodes {
		if got := n.content(keys); got != want {
			t.Errorf("node %d has\n%swant\n%s", n.id, got, want)
		}
	}
	// Where the records stand: in one entry, one effect behind the other.
	parts := map[string]uint32{"b": 4, "c": 5, "n": 3}
	for _, n := range g.nodes {
		sh := n.shards[0]
		for k, part := range parts {
			e, ok := sh.Dirty.Find(layout.HashKey(n.mem.Seed, []byte(k)), []byte(k))
			if !ok || e.At != 2000 || e.Part != part {
				t.Errorf("node %d: %s stands at %d, part %d: want 2000, part %d", n.id, k, e.At, e.Part, part)
			}
		}
	}
}

// TestOrdersBehindItsMarker: a leader orders nothing before its own marker is applied, and what was
// committed before it.
func TestOrdersBehindItsMarker(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	a, err := g.nodes[0].ask(add(0, "n", request(1, 1, false)))
	if err != nil {
		t.Fatal(err)
	}
	g.nodes[0].run()
	g.elect(1, len(g.pending)) // the new leader has the increment in its log, and has not applied it
	g.nodes[0].Follows(g.term, 1)
	steps := 0
	for ; ; steps++ {
		_, err := g.nodes[1].ask(add(0, "n", request(2, 1, false)))
		if err == nil {
			break
		}
		var not *NotLeaderError
		if !errors.As(err, &not) || !refused(err) || steps > 10 {
			t.Fatal(err)
		}
		g.nodes[1].run()
		g.commit(len(g.pending))
		g.nodes[1].apply(1)
	}
	if steps != 2 {
		t.Errorf("it ordered behind %d entries, want the increment and the marker", steps)
	}
	g.settle()
	if n := g.nodes[1].number(0, "n"); n != 2 || !a.over || a.result.Err != nil {
		t.Errorf("the number is %d, and the first increment: %+v", n, a.result)
	}
	var not *NotLeaderError
	if _, err := g.nodes[0].ask(add(0, "n", request(3, 1, false))); !errors.As(err, &not) || not.Leader != 1 || !strings.Contains(err.Error(), "replica 1") {
		t.Errorf("the deposed leader says %v", err)
	}
}

// TestReplayedMarkerMakesNoLeader: a node that starts applies the markers of its earlier life, and orders nothing.
func TestReplayedMarkerMakesNoLeader(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	g.nodes[0] = g.start(0)
	g.nodes[0].Leads(g.term) // it was elected at once, and its new marker is on its way
	g.nodes[0].apply(1 << 20)
	if _, ok := g.nodes[0].Ready(); ok {
		t.Error("a marker of an earlier life has made it ready")
	}
	if told := g.nodes[0].ready; len(told) > 0 {
		t.Errorf("readers are told that it leads in terms %v (R11)", told)
	}
	g.settle()
	if _, ok := g.nodes[0].Ready(); !ok {
		t.Error("its own marker has not")
	}
	if told := g.nodes[0].ready; !slices.Equal(told, []uint64{g.term}) {
		t.Errorf("readers are told that it leads in terms %v, and it leads in %d", told, g.term)
	}
	if told := g.nodes[1].ready; len(told) > 0 {
		t.Errorf("of the other node they are told that it leads in terms %v", told)
	}
}

// TestFallenLeaderWaits: writes of a leader that has fallen are answered when their entry comes after all, and
// refused when the next marker comes without it. What is refused leaves nothing behind.
func TestFallenLeaderWaits(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	var all []*asked
	for i := range uint64(3) {
		a, err := g.nodes[0].ask(add(uint16(i%2), "n", request(byte(i+1), 1, false)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		if i < 2 {
			g.nodes[0].run() // the last one is in no entry
		}
	}
	again, err := g.nodes[0].ask(add(1, "n", request(2, 1, true))) // a retry behind its first copy
	if err != nil {
		t.Fatal(err)
	}
	g.elect(1, 1)
	g.nodes[0].Follows(g.term, 0)
	g.nodes[0].apply(1 << 20)
	if !all[0].over || all[0].result.Err != nil {
		t.Errorf("the entry has come, and its write: %+v", all[0])
	}
	for i, a := range append(all[1:], again) {
		if a.over {
			t.Errorf("write %d was answered, and nobody knows yet: %+v", i+1, a.result)
		}
	}
	g.settle()
	for i, a := range append(all[1:], again) {
		if a.answered != 1 || !refused(a.result.Err) {
			t.Errorf("write %d behind the marker: %+v", i+1, a)
		}
	}
	if got := g.nodes[0].content([]string{"n"}); strings.Contains(got, "shard") || g.nodes[0].number(0, "n") != 1 || g.nodes[0].number(1, "n") != 0 {
		t.Errorf("the deposed leader has\n%s", got)
	}
	if b := g.nodes[0].leaked([]string{"n"}); b != 0 {
		t.Errorf("%d bytes are in use for no key", b)
	}
	// The refused come again, to the new leader and to the old one, which leads again later.
	if _, err := g.nodes[1].ask(add(1, "n", request(2, 1, true))); err != nil {
		t.Fatal(err)
	}
	g.settle()
	g.lead(0)
	last, err := g.nodes[0].ask(add(0, "n", request(3, 1, true)))
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.nodes[0].ask(add(1, "n", request(2, 1, true)))
	if err != nil {
		t.Fatal(err)
	}
	g.settle()
	if last.result.Number != 2 || second.result.Number != 1 || g.nodes[1].number(1, "n") != 1 {
		t.Errorf("behind two leaders: %+v, %+v", last.result, second.result)
	}
}

// TestProbeOfVoid: who looks at the disk for a key is told of a write, which is void then. He gets an
// error, and not the state behind that write.
func TestProbeOfVoid(t *testing.T) {
	g := newGroup(t, 2)
	g.lead(0)
	sh, h := g.nodes[0].shards[0], layout.HashKey(g.nodes[0].mem.Seed, []byte("n"))
	sh.Mu.Lock()
	sh.AddSlotless(h) // memory alone cannot tell
	sh.Mu.Unlock()
	asked := false
	_, err := sh.LockJudged(h, []byte("n"), func(*shard.Shard, []byte, bool) (flight.KeyState, error) {
		if asked {
			t.Error("asked twice")
		}
		asked = true
		f := &flight.Flight{Op: &base.Op{Key: []byte("n"), Value: []byte("v")}, Result: new(base.Result), Done: func(*flight.Flight) {}}
		f.Reset(g.nodes[0].mem.Seed)
		sh.Mu.Lock()
		if err := g.nodes[0].Push(f); err != nil {
			t.Error(err)
		}
		sh.NoteOrdered(f)
		sh.Mu.Unlock()
		g.lead(1)
		g.lead(0)
		return flight.KeyState{}, nil
	})
	if !refused(err) {
		t.Errorf("%v", err)
		sh.Mu.Unlock()
	}
}

// TestStorm: whatever happens to leaders, each increment that was acknowledged is there once, each that
// was refused is not, and all replicas have the same.
func TestStorm(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	first := rand.Uint64()
	for i := range seeds {
		if seed := first + uint64(i); !t.Run(fmt.Sprint(seed), func(t *testing.T) { storm(t, seed) }) {
			return
		}
	}
}

func storm(t *testing.T, seed uint64) {
	s := &tempest{group: newGroup(t, 3), rnd: rand.New(rand.NewPCG(seed, 1))}
	for range 400 {
		s.step()
		s.answers()
	}
	s.end()
}

// A tempest is a group to which everything happens.
type tempest struct {
	*group
	rnd    *rand.Rand
	wishes []*wish
}

// A wish is an increment that somebody wants once, and asks for until he is told that it is done.
type wish struct {
	op     base.Op
	copies []*asked // that he waits for
	done   *asked
}

// step has something happen.
func (s *tempest) step() {
	n := s.nodes[s.rnd.IntN(len(s.nodes))]
	switch s.rnd.IntN(16) {
	case 0, 1, 2, 3:
		w := &wish{op: add(uint16(s.rnd.IntN(shards)), string(rune('a'+s.rnd.IntN(3))), request(byte(len(s.wishes)), uint64(len(s.wishes)+1), false))}
		s.wishes = append(s.wishes, w)
		s.try(w)
	case 4, 5:
		if len(s.wishes) > 0 {
			if w := s.wishes[s.rnd.IntN(len(s.wishes))]; w.done == nil {
				s.try(w) // beside its other copies, perhaps
			}
		}
	case 6, 7:
		n.run()
	case 8:
		s.commit(s.rnd.IntN(len(s.pending) + 1))
	case 9, 10, 11:
		n.apply(1 + s.rnd.IntN(3))
	case 12:
		s.elect(n.id, s.rnd.IntN(len(s.pending)+1))
	case 13:
		if s.leader != n.id {
			n.Follows(s.term, 0)
		}
	case 15:
		n.giveUp(time.Now().Add(time.Hour)) // if anything waits, it has waited too long
	case 14:
		switch s.rnd.IntN(3) {
		case 0: // the process ends, and another begins with nothing but the log
			if s.leader == n.id {
				s.commit(s.rnd.IntN(len(s.pending) + 1))
				s.pending, s.leader = nil, -1
			}
			s.forget(n)
			s.nodes[n.id] = s.start(n.id)
		case 1: // an entry of writes comes twice
			if i := s.rnd.IntN(len(s.log) + 1); i < len(s.log) && entry.Kind(s.log[i].data[1]) == entry.Writes {
				s.log = append(s.log, committed{s.term, s.log[i].data})
			}
		case 2: // one is lost among others
			if i := s.rnd.IntN(len(s.pending) + 1); i < len(s.pending) {
				s.pending = slices.Delete(s.pending, i, i+1)
			}
		}
	}
}

// try asks the leader, if there is one.
func (s *tempest) try(w *wish) {
	if s.leader < 0 {
		return
	}
	a, err := s.nodes[s.leader].ask(w.op)
	w.op.ID.Age = time.Second
	switch {
	case err == nil:
		a.at = s.nodes[s.leader]
		w.copies = append(w.copies, a)
	case !refused(err):
		s.t.Fatal(err)
	}
}

// forget forgets what was asked of a node: nobody will answer.
func (s *tempest) forget(n *node) {
	for _, w := range s.wishes {
		w.copies = slices.DeleteFunc(w.copies, func(a *asked) bool { return a.at == n })
	}
}

// answers takes in what was answered.
func (s *tempest) answers() {
	for _, w := range s.wishes {
		w.copies = slices.DeleteFunc(w.copies, func(a *asked) bool {
			switch {
			case a.answered > 1:
				s.t.Fatalf("answered %d times: %+v", a.answered, a)
			case !a.over:
				return false
			case a.result.Err == nil:
				if w.done != nil && w.done.result != a.result {
					s.t.Fatalf("one increment, two answers: %+v and %+v", w.done.result, a.result)
				}
				w.done = a
			case !refused(a.result.Err) && !errors.Is(a.result.Err, base.ErrOutcomeUnknown):
				s.t.Fatal(a.result.Err)
			}
			return true
		})
	}
}

// end lets all calm down, and judges.
func (s *tempest) end() {
	s.lead(s.rnd.IntN(len(s.nodes)))
	for _, n := range s.nodes {
		if n.id != s.leader {
			n.Follows(s.term, 0)
		}
	}
	for range 2 {
		s.settle()
		s.answers()
		for _, w := range s.wishes {
			if len(w.copies) > 0 {
				s.t.Fatalf("an increment is under way, and nothing is: %+v", w.copies[0])
			}
			if w.done == nil {
				s.try(w)
			}
		}
	}
	s.settle()
	s.answers()
	want := map[string]int64{}
	numbers := map[string]bool{}
	for _, w := range s.wishes {
		if w.done == nil {
			s.t.Fatalf("never done: %+v", w.op)
		}
		key := fmt.Sprint(w.op.Shard, string(w.op.Key))
		want[key]++
		if one := fmt.Sprint(key, " is ", w.done.result.Number); numbers[one] {
			s.t.Fatalf("two increments were told that %s", one)
		} else {
			numbers[one] = true
		}
	}
	keys := []string{"a", "b", "c"}
	for _, n := range s.nodes {
		if got, other := n.content(keys), s.nodes[0].content(keys); got != other || strings.Contains(got, "shard") {
			s.t.Fatalf("node %d has\n%snode 0 has\n%s", n.id, got, other)
		}
		for id := range uint16(shards) {
			for _, k := range keys {
				if got := n.number(id, k); got != want[fmt.Sprint(id, k)] {
					s.t.Fatalf("node %d: %s in shard %d is %d, and %d increments were acknowledged", n.id, k, id, got, want[fmt.Sprint(id, k)])
				}
			}
		}
		if b := n.leaked(keys); b != 0 {
			s.t.Fatalf("node %d has %d bytes in use for no key", n.id, b)
		}
	}
}

// TestSaved: a checkpoint is told what is published and which configurations came, and what it has saved is trimmed, and
// told no more.
func TestSaved(t *testing.T) {
	g := newGroup(t, 1)
	n := g.nodes[0]
	var said []uint64
	tell := func() string {
		index, configs := n.Published()
		said = said[:0]
		for _, c := range configs {
			said = append(said, c.Index)
		}
		return fmt.Sprint(index, said)
	}
	change := func(index uint64) {
		c := consensus.Config{Index: index, Voters: []consensus.Member{{ID: consensus.ReplicaID(index), Node: "n"}}}
		if err := n.Apply([]consensus.Entry{{Index: index, Term: 1, Kind: consensus.Change, Config: &c}, {Index: index + 1, Term: 1, Kind: consensus.Empty}}); err != nil {
			t.Fatal(err)
		}
	}
	change(1)
	saved := n.State()
	change(3)
	change(5)
	if got := tell(); got != "6 [1 3 5]" {
		t.Errorf("published: %s", got)
	}
	n.Saved(saved)
	if got := tell(); got != "6 [3 5]" || fmt.Sprint(n.trimmed) != "[2]" {
		t.Errorf("published: %s, trimmed up to %v", got, n.trimmed)
	}
	if !slices.Equal(n.configs, []uint64{1, 3, 5}) {
		t.Errorf("readers are told of configurations %v (R12)", n.configs)
	}
	if err := n.Apply([]consensus.Entry{{Index: 6, Term: 1}}); err == nil {
		t.Error("an entry was applied twice")
	}
	installed := n.State()
	installed.Applied, installed.Config = 20, consensus.Config{Index: 9, Voters: installed.Config.Voters}
	n.Forget()
	n.Installed(installed)
	if !slices.Equal(n.configs, []uint64{1, 3, 5, 9}) {
		t.Errorf("behind another's state they are told of configurations %v", n.configs)
	}
	if n.ID() != 3 || n.Stream() != 30 || len(n.Shards()) != shards {
		t.Errorf("group %d, stream %d, shards %v", n.ID(), n.Stream(), n.Shards())
	}
}

// TestRun: what the engine does not take is proposed again, and nothing behind the end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 1)
		n := g.nodes[0]
		var mu sync.Mutex
		busy, tries := true, 0
		var taken [][]byte
		n.c.Propose = func(_ uint64, data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if tries++; busy {
				return consensus.ErrBusy
			}
			taken = append(taken, data)
			return nil
		}
		life := base.NewLife(n.mem.Fence)
		life.Go(func() { n.Run(life) })
		n.Leads(1)
		time.Sleep(3*n.c.Pause + n.c.Pause/2)
		synctest.Wait()
		mu.Lock()
		if len(taken) != 0 || tries < 3 {
			t.Errorf("it was tried %d times, and %d entries were taken by an engine that is busy", tries, len(taken))
		}
		busy = false
		mu.Unlock()
		time.Sleep(n.c.Pause)
		synctest.Wait()
		mu.Lock()
		if len(taken) != 1 {
			t.Errorf("%d entries were taken, want the marker", len(taken))
		}
		mu.Unlock()
		life.End()
		<-life.Done()
	})
}
