package consensustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
	"github.com/rdmakv/rdmakv/store/log/logtest"
)

// What follows was found by attacks on an engine that passed all other scenes.

// deliver gives a message to a node as if another one had sent it.
func (w *World) deliver(to *Node, node string, m *pb.Message) error {
	b, err := core.AppendMessage(nil, group, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return to.endpoint().Deliver(node, b)
}

// unfenced holds all replicas to being well.
func (w *World) unfenced(what string) {
	w.t.Helper()
	for _, name := range w.names {
		for _, g := range []consensus.GroupID{group, 2} {
			if s, err := w.node(name).engineOf().Status(g); err == nil && s.Fenced != nil {
				w.errorf("%s: the replica of group %d at %s is fenced: %v", what, g, name, s.Fenced)
			}
		}
	}
}

// lyingMembers: a member of the group that sends what the library would stop for stops nobody,
// and one message does not end a group.
func lyingMembers(w *World) {
	w.found(group, 3)
	w.found(2, 3)
	w.puts("a", 3)
	w.put(2, "b")
	lead := w.leader(group)
	liar, third := w.others(lead.node.name)[0], w.others(lead.node.name)[1]
	from := uint64(liar.machine(group).id)
	s, err := third.engineOf().Status(group)
	if err != nil {
		w.t.Fatal(err)
	}
	big := &pb.Entry{Index: proto.Uint64(s.Last + 1), Term: proto.Uint64(s.Term), Data: make([]byte, 300<<10)}
	for _, c := range []struct {
		what string
		to   *Node
		m    *pb.Message
	}{
		{"a short context", lead.node, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), Term: &s.Term, Context: []byte{1}}},
		{"reads that nobody asked for", lead.node, &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), Term: &s.Term, Context: []byte{255, 255, 1, 0, 0, 0, 0, 0}}},
		{"an entry that no frame of this log takes", third, &pb.Message{Type: pb.MsgApp.Enum(), Term: &s.Term, LogTerm: &s.Term, Index: &s.Last, Entries: []*pb.Entry{big}}},
		{"the highest term", lead.node, &pb.Message{Type: pb.MsgHeartbeat.Enum(), Term: proto.Uint64(core.MaxNumber)}},
		{"a hand-over by one that does not lead", third, &pb.Message{Type: pb.MsgTimeoutNow.Enum(), Term: &s.Term}},
	} {
		c.m.From, c.m.To = proto.Uint64(from), proto.Uint64(uint64(c.to.machine(group).id))
		w.deliver(c.to, liar.name, c.m)
		if c.to == lead.node { // and so does the other one
			c.m.From = proto.Uint64(uint64(third.machine(group).id))
			w.deliver(c.to, third.name, c.m)
		}
		time.Sleep(100 * time.Millisecond)
		w.unfenced(c.what)
		if got := w.leader(group).role.term; got != s.Term {
			w.errorf("%s: term %d, was %d", c.what, got, s.Term)
		}
	}
	// Who is none of the group's asks for votes as for a transfer, which leases do not refuse.
	m := &pb.Message{Type: pb.MsgVote.Enum(), From: proto.Uint64(77), To: proto.Uint64(uint64(third.machine(group).id)), Term: proto.Uint64(s.Term + 1), Index: proto.Uint64(1 << 40), LogTerm: proto.Uint64(s.Term + 1), Context: []byte("CampaignTransfer")}
	w.deliver(third, "n9", m)
	time.Sleep(200 * time.Millisecond)
	if got := w.leader(group).role.term; got != s.Term {
		w.errorf("a stranger has deposed the leader: term %d, was %d", got, s.Term)
	}
	// A message that cannot be takes those behind it along: of another group, here.
	b, err := core.AppendMessage(nil, group, &pb.Message{Type: pb.MsgPreVote.Enum(), From: &from, To: proto.Uint64(9), Term: proto.Uint64(core.MaxNumber + 1)})
	if err == nil {
		to := third.machine(2)
		b, err = core.AppendMessage(b, 2, &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: proto.Uint64(uint64(w.leader(2).id)), To: proto.Uint64(uint64(to.id)), Term: proto.Uint64(w.leader(2).role.term)})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if err := third.endpoint().Deliver(w.leader(2).node.name, b); !errors.Is(err, consensus.ErrMessage) {
		w.errorf("a bad message: %v", err)
	}
	// A snapshot of a replica comes from its node.
	h := consensus.SnapshotHead{Group: group, From: lead.id, To: third.machine(group).id, Term: s.Term, State: consensus.State{Applied: s.Last + 1000, Term: s.Term, Config: s.Config}}
	if err := third.endpoint().Receive(context.Background(), "n9", h, bytes.NewReader(nil)); !errors.Is(err, consensus.ErrMessage) {
		w.errorf("a snapshot from another node: %v", err)
	}
	w.puts("c", 3)
	w.settle(group)
}

// longNames: a change that its followers could not read must not be proposed.
func longNames(w *World) {
	w.found(group, 3)
	w.puts("a", 1)
	err := w.change(func(c *consensus.Config) {
		c.Learners = append(c.Learners, consensus.Member{ID: 4, Node: strings.Repeat("x", consensus.MaxNode+1)})
	})
	if !errors.Is(err, consensus.ErrConfig) {
		w.errorf("a long name: %v", err)
	}
	err = w.change(func(c *consensus.Config) {
		for i, m := range c.Voters {
			if m.ID != w.leader(group).id {
				c.Voters[i].Node = "n4"
				return
			}
		}
	})
	if !errors.Is(err, consensus.ErrConfig) {
		w.errorf("a replica moves to another node: %v", err)
	}
	w.puts("b", 1)
	w.settle(group)
}

// largestEntries: what Propose takes is stored, at all nodes.
func largestEntries(w *World) {
	w.found(group, 3)
	lead := w.leader(group)
	f := lead.node.log.Begin()
	size := core.EntryMost(f.Left())
	f.Drop()
	for i := range 3 {
		b := make([]byte, size)
		copy(b, fmt.Sprintf("large %d", i))
		w.put(group, string(b))
	}
	if err := lead.node.engineOf().Propose(group, lead.role.term, make([]byte, size+1)); !errors.Is(err, consensus.ErrTooLarge) {
		w.errorf("one byte more: %v", err)
	}
	w.settle(group)
}

// slowReads: that a follower of one group lags, and what it lacks is read from a slow disk, is no
// matter of the others.
func slowReads(w *World) {
	w.found(group, 3)
	w.found(2, 3)
	for _, n := range w.nodes {
		n.never = true
	}
	lead := w.leader(group)
	for w.leader(2).node != lead.node {
		ctx, cancel := within(time.Second)
		w.leader(2).node.engineOf().Transfer(ctx, 2, lead.id)
		cancel()
	}
	away := w.others(lead.node.name)[0]
	w.net.isolate(away.name, true)
	for i := range 6000 {
		b := make([]byte, 1000)
		copy(b, fmt.Sprintf("w %d", i))
		for lead.node.engineOf().Propose(group, lead.role.term, b) != nil {
			time.Sleep(time.Millisecond)
		}
		if i%100 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	w.put(group, "the end")
	term := w.leader(2).role.term
	lead.node.disk.OnCall(func(c logtest.Call) logtest.Fault {
		if c.Op == logtest.OpRead {
			time.Sleep(time.Millisecond)
		}
		return lead.node.call(c)
	})
	w.net.heal()
	w.settle(group)
	if t := w.leader(2).role.term; t != term {
		w.errorf("group 2 has lost its leader (term %d, was %d) because a follower of group 1 lags", t, term)
	}
}

// slowDisks: whatever a sync takes, somebody is elected.
func slowDisks(w *World) {
	w.found(group, 3)
	for _, d := range []time.Duration{60 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		lead := w.leader(group)
		for _, n := range w.nodes {
			n.setFixed(d)
		}
		lead.node.crash(0, false)
		began := time.Now()
		w.leader(group)
		if took := time.Since(began); took > 2*time.Second+10*d {
			w.errorf("a sync takes %v, and an election %v", d, took)
		}
		for _, n := range w.nodes {
			n.setFixed(0)
		}
		lead.node.boot()
	}
	w.puts("a", 1)
	w.settle(group)
}

func (n *Node) setFixed(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fixed = d
}

// logFailsElsewhere: a log that failed at somebody else's write is found, and the group goes to
// the others.
func logFailsElsewhere(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	n := lead.node
	time.Sleep(100 * time.Millisecond)
	n.mu.Lock()
	n.broken = errBroken
	n.mu.Unlock()
	if _, err := n.log.Append(log.Record{Kind: log.Write, Stream: 77, Body: []byte("x")}); err == nil {
		w.errorf("a disk that fails takes a write")
	}
	ctx, cancel := within(5 * time.Second)
	defer cancel()
	lead.put(ctx, "breaks") // it hears that it does not lead any more
	if ctx.Err() != nil {
		w.errorf("the log has failed, and the machine believes that it leads")
	}
	if s, err := n.engineOf().Status(group); err != nil || !errors.Is(s.Fenced, errBroken) {
		w.errorf("the log has failed: %+v %v", s, err)
	}
	w.puts("b", 3)
	w.judge.expect(errBroken)
	n.mu.Lock()
	n.broken = nil
	n.mu.Unlock()
	n.crash(0, false)
	n.boot()
	w.settle(group)
}

// A slowAdopter takes its time.
type slowAdopter struct{ *Machine }

func (m *slowAdopter) Adopt(r consensus.Received) error {
	time.Sleep(5 * time.Second)
	return m.Machine.Adopt(r)
}

// longAdoption: a voter that adopts a snapshot answers meanwhile, so that its group, of which a
// third one is down, keeps its leader.
func longAdoption(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	slow, down := w.others(lead.node.name)[0], w.others(lead.node.name)[1]
	if err := slow.engineOf().Stop(group, false); err != nil {
		w.t.Fatal(err)
	}
	w.puts("b", 10)
	time.Sleep(time.Second)
	w.trimAll()
	m := slow.newMachine(group)
	if err := slow.engineOf().Start(context.Background(), group, m.id, &slowAdopter{m}); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Second)
	down.crash(0, false)
	time.Sleep(2 * time.Second)
	ctx, cancel := within(time.Second)
	defer cancel()
	if err := lead.node.engineOf().Barrier(ctx, group); err != nil {
		w.errorf("one voter is down and one adopts: %v", err)
	}
	down.boot()
	w.settle(group)
}

// stalledSnapshot: one whose far end takes nothing any more is given up, and the log is not
// held by it for ever.
func stalledSnapshot(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	away := w.others(lead.node.name)[0]
	away.crash(0, false)
	w.puts("b", 10)
	time.Sleep(time.Second)
	w.trimAll()
	w.net.mu.Lock()
	w.net.haul = 10 * time.Hour
	w.net.mu.Unlock()
	away.boot()
	time.Sleep(2 * time.Second)
	w.net.mu.Lock()
	w.net.haul = 0
	w.net.mu.Unlock()
	w.puts("c", 30)
	time.Sleep(2 * time.Minute)
	w.settle(group)
}

// trimInApply: what a machine tells from within Apply counts.
func trimInApply(w *World) {
	for _, n := range w.nodes {
		n.every = 1
	}
	w.found(group, 3)
	w.puts("a", 3)
	time.Sleep(time.Second)
	for _, name := range w.names {
		s, err := w.node(name).engineOf().Status(group)
		c, derr := decode(w.node(name).replicas[group].saved)
		if err != nil || derr != nil || s.First != c.Applied+1 {
			w.errorf("%s: it is saved up to %d, and the log begins at %d (%v, %v)", name, c.Applied, s.First, err, derr)
		}
	}
}

// newMachine makes the machine of what is saved.
func (n *Node) newMachine(g consensus.GroupID) *Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.replicas[g]
	c, err := decode(r.saved)
	if err != nil {
		panic(err)
	}
	r.m = &Machine{w: n.w, node: n, g: g, id: r.id, state: c, wait: map[string]chan uint64{}}
	return r.m
}

// A lateState answers when others have asked, too.
type lateState struct{ *Machine }

func (m *lateState) State() (consensus.State, error) {
	time.Sleep(time.Millisecond)
	return m.Machine.State()
}

// startsAndStops: of two Starts at once one starts, of two Stops one stops, and a log is started
// as its own replica.
func startsAndStops(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	n := w.others(w.leader(group).node.name)[0]
	e := n.engineOf()
	twice := func(f func() error) (good int) {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			both.Go(func() { errs[i] = f() })
		}
		both.Wait()
		for _, err := range errs {
			if err == nil {
				good++
			}
		}
		return good
	}
	for range 3 {
		if good := twice(func() error { return e.Stop(group, false) }); good != 1 {
			w.errorf("%d of two Stops stop", good)
		}
		m := n.newMachine(group)
		if err := e.Start(context.Background(), group, m.id%3+1, m); !errors.Is(err, consensus.ErrNoLog) {
			w.errorf("the log of another replica is started: %v", err)
		}
		if good := twice(func() error { return e.Start(context.Background(), group, m.id, &lateState{m}) }); good != 1 {
			w.errorf("%d of two Starts start", good)
		}
	}
	w.settle(group)
	// A snapshot that is being received ends with its replica.
	lead := w.leader(group)
	s, err := lead.node.engineOf().Status(group)
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(chan error, 1)
	h := consensus.SnapshotHead{Group: group, From: lead.id, To: n.machine(group).id, Term: s.Term, State: consensus.State{Applied: s.Last, Term: s.Term, Config: s.Config}}
	reading, stopped := context.WithCancel(context.Background())
	go func() { got <- e.Receive(context.Background(), lead.node.name, h, blocked{reading}) }()
	time.Sleep(10 * time.Millisecond)
	time.AfterFunc(50*time.Millisecond, stopped)
	if err := e.Stop(group, false); err != nil {
		w.errorf("stop: %v", err)
	}
	select {
	case err := <-got:
		if err == nil {
			w.errorf("half a snapshot is taken")
		}
	default:
		w.errorf("Stop has returned, and the machine receives a snapshot still")
	}
	n.start(group)
	w.settle(group)
}

// A blocked reader has nothing until a context ends.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, errBroken
}

// changeAtTheEnd: a change that may happen is not told as one that will not.
func changeAtTheEnd(w *World) {
	w.found(group, 3)
	w.puts("a", 3)
	lead := w.leader(group)
	for _, o := range w.others(lead.node.name) {
		w.net.cut(o.name, lead.node.name, true) // it hears of nobody that they have the entry
	}
	lead.node.hang(true) // so that its end takes a while
	got := make(chan error, 1)
	go func() {
		got <- w.change(func(c *consensus.Config) { c.Learners = append(c.Learners, consensus.Member{ID: 4, Node: "n4"}) })
	}()
	time.Sleep(20 * time.Millisecond)
	time.AfterFunc(5*time.Millisecond, func() { lead.node.hang(false) })
	lead.node.stop()
	if err := <-got; !errors.Is(err, consensus.ErrUnknown) {
		w.errorf("a change that is under way when its leader ends: %v", err)
	}
	w.net.heal()
	lead.node.boot()
	w.leader(group)
}
