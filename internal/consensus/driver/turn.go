package driver

import (
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// A turn is what its goroutine gathers while it goes over the groups. There is one turn, so one goroutine at a time touches replicas:
// the one that has taken it out of Node.turns. It waits for no sync and for no machine. It reads the disk where a follower lacks what is
// not in memory any more.
type turn struct {
	n     *Node
	now   time.Time
	items []item // to be stored
	room  int64  // of the log, reserved for entries that were stepped or proposed in this turn
	out   map[string]*outgoing
	spare []event
}

// Outgoing is what a turn has for one node.
type outgoing struct{ bulk, urgent []byte }

// maxOutgoing is where messages for a node are sent before the turn is over.
const maxOutgoing = 1 << 20

// schedule takes turns that nobody else takes, until the node is closed. Nobody takes any after that.
func (n *Node) schedule() {
	for {
		select {
		case <-n.poke:
			n.help()
		case <-n.ctx.Done():
			<-n.turns
			n.backlog.end()
			return
		}
	}
}

// helpMost bounds the turns that a caller takes who came for another reason; the scheduler goes on.
const helpMost = 16

// help takes turns in the caller's goroutine while there are groups for which something happened, unless another goroutine does. Those
// who bring news call it, because a turn costs less than to wake a goroutine for it. The caller holds no lock that a machine, the link or
// the log takes.
func (n *Node) help() {
	for range helpMost {
		var t *turn
		select {
		case t = <-n.turns:
		default:
			return // who has it looks again behind
		}
		if list := n.ready(); len(list) > 0 && n.ctx.Err() == nil {
			t.take(list)
		}
		n.turns <- t
		// Somebody may have come meanwhile, and left it to this goroutine.
		if n.idle() || n.ctx.Err() != nil {
			return
		}
	}
	n.rouse()
}

// take takes the turn of groups.
func (t *turn) take(list []*group) {
	t.now = time.Now()
	for _, g := range list {
		t.group(g)
	}
	t.store()
	t.sendAll()
}

// group has one group do what its events ask for.
func (t *turn) group(g *group) {
	events := g.take(t.spare)
	for _, e := range events {
		if g.r == nil { // it was stopped
			if e.drop != nil {
				e.drop()
			}
		} else if err := e.do(t, g); err != nil {
			t.n.fence(g, err)
		}
	}
	clear(events)
	t.spare = events[:0]
	if g.r == nil {
		return
	}
	err := t.retry(g)
	for err == nil && g.r != nil {
		if err = t.ask(g); err != nil || !g.r.HasWork() {
			break
		}
		var w core.Work
		if w, err = g.r.Take(); err == nil {
			err = t.work(g, &w)
		}
	}
	if err != nil {
		t.n.fence(g, err)
	}
	if g.r != nil {
		g.unneeded()
		g.observe()
	}
}

// ask asks for those who wait to read. Before this replica has published an entry of its
// term, the library would answer from a commit index that may be old, if it is the only
// voter, and keep the question without a bound if it is not.
func (t *turn) ask(g *group) error {
	if role := g.r.Role(); !role.Leads || g.publishedTerm != role.Term {
		return nil
	}
	if name := g.reads.ask(); name != nil {
		return g.r.ReadIndex(name)
	}
	return nil
}

// work does what a replica wants done.
func (t *turn) work(g *group, w *core.Work) error {
	for _, m := range w.Send {
		t.send(g, m)
	}
	if w.Apply != nil {
		g.queue.put(job{apply: w.Apply})
	}
	switch a := w.Append; {
	case a == nil:
	case g.adopting:
		g.later = append(g.later, a)
	case a.Snapshot != nil:
		// The log hears of it first, then the machine has the state, and then the log
		// forgets what leads to it.
		g.adopting = true
		g.later = append(g.later, a)
		t.append(g, &core.Append{Adopting: &core.Adopting{Index: a.Snapshot.GetMetadata().GetIndex(), Term: a.Snapshot.GetMetadata().GetTerm()}})
	default:
		t.append(g, a)
	}
	for _, r := range w.Reads {
		g.reads.answer(r.RequestCtx, r.Index)
	}
	g.reads.release(g.published)
	if w.Role != nil {
		g.plays(*w.Role)
	}
	return nil
}

// append puts an append where what is to be stored stands.
func (t *turn) append(g *group, a *core.Append) {
	g.disk.Taken(a)
	parts := a.Parts(t.n.most)
	for i, p := range parts {
		it := item{g: g, a: p}
		if i == len(parts)-1 {
			it.whole = a
		}
		t.items = append(t.items, it)
	}
	g.storing.Add(1)
	g.pending = append(g.pending, t.now)
	g.unstored += a.Bytes()
}

// store hands the writer what the turn has gathered, as one piece. Room that was reserved
// for entries which were not appended after all is given back with it.
func (t *turn) store() {
	if len(t.items) == 0 {
		t.n.c.Log.Unreserve(t.room)
		t.room = 0
		return
	}
	t.items[len(t.items)-1].reserve = t.room
	t.room = 0
	t.n.backlog.put(t.items)
	clear(t.items)
	t.items = t.items[:0]
}

// send puts a message where those for its node are.
func (t *turn) send(g *group, m *pb.Message) {
	to := consensus.ReplicaID(m.GetTo())
	kind := m.GetType()
	switch kind {
	case pb.MsgSnap:
		g.needs(to)
		return
	case pb.MsgApp, pb.MsgHeartbeat:
		if kind == pb.MsgHeartbeat && len(m.Context) == 0 {
			g.beat = 0
		}
		if g.overdue(t.now) {
			return
		}
		if kind == pb.MsgHeartbeat {
			allowed := g.allowed // the library does not look at this field of a heartbeat
			m.RejectHint = &allowed
		}
	}
	node := g.node(to)
	if node == "" || !g.leaves(m) {
		return
	}
	o := t.out[node]
	if o == nil {
		o = &outgoing{}
		t.out[node] = o
	}
	b := &o.urgent
	if kind == pb.MsgApp || kind == pb.MsgAppResp {
		b = &o.bulk
	}
	var err error
	if *b, err = core.AppendMessage(*b, g.id, m); err != nil {
		t.n.c.Logger.Error("a message of a group cannot be sent", "group", g.id, "err", err)
	}
	if len(*b) >= maxOutgoing {
		t.n.c.Link.Send(node, b == &o.urgent, *b)
		*b = (*b)[:0]
	}
}

// sendAll sends what the turn has gathered.
func (t *turn) sendAll() {
	for node, o := range t.out {
		for i, b := range [2]*[]byte{&o.urgent, &o.bulk} {
			if len(*b) > 0 {
				t.n.c.Link.Send(node, i == 0, *b)
				*b = (*b)[:0]
			}
		}
	}
}

// tick is an event: a tick of time has passed.
func (t *turn) tick(g *group) error {
	g.mu.Lock()
	g.ticked = false
	g.mu.Unlock()
	limits := t.n.c.Limits.WithDefaults()
	g.reads.tick(2 * limits.ElectionTicks)
	g.handing.tick(2 * limits.ElectionTicks)
	g.standing.tick(g.r.Role())
	g.hear()
	if err := g.look(); err != nil {
		return err
	}
	if g.since++; g.r.Leads() { // who leads knows it at each tick, others are told (hint)
		g.allowed, g.since = g.kept(), 0
	}
	if !g.overdue(t.now) {
		if err := t.trim(g, g.saved); err != nil {
			return err
		}
		if !g.counts(t.now) {
			g.r.Pause()
			return nil
		}
		return g.r.Tick()
	}
	if role := g.r.Role(); role.Leads && g.handed != role.Term {
		if to := g.r.Best(); to != 0 {
			g.handed = role.Term
			t.n.c.Logger.Warn("the disk of the log has not answered, the group is handed over", "group", g.id, "to", to, "after", t.now.Sub(g.pending[0]))
			return g.r.Transfer(to)
		}
	}
	return nil
}

// counts says whether a tick counts. Who does not lead has no time pass while something waits
// for the disk: if it had, a candidate whose disk and whose voters' disks are slow would stand
// again before its own vote is durable, and so on for ever. Who has stood in vain waits longer
// each time, for the same reason.
func (g *group) counts(now time.Time) bool {
	role := g.r.Role()
	if role.Leads {
		return g.inStep()
	}
	if role.Leader != 0 {
		g.stood = 0
	}
	if g.r.Stands() && g.stoodTerm != g.r.Term() {
		g.stoodTerm = g.r.Term()
		g.stood++
	}
	if len(g.pending) > 0 && now.Sub(g.pending[0]) > g.n.c.Tick {
		return false
	}
	if g.skipped++; g.r.Stands() && g.skipped < min(g.stood, maxSlower) {
		return false
	}
	g.skipped = 0
	return true
}

// inStep says whether a tick of a leader counts. The time between two heartbeats begins with a round of ticks of the node, and not between,
// so that the heartbeats of all groups leave in one frame: if each group had a round of its own, a node with many groups would send five
// times as many, and wake the others as often. A round that a tick is lost of is one that the group waits for, so it is late by less than
// two rounds, which is less than half of the shortest election timeout.
func (g *group) inStep() bool {
	if g.beat == 0 && g.n.ticks.Load()%uint64(g.n.c.Limits.WithDefaults().HeartbeatTicks) != 0 {
		return false
	}
	g.beat++
	return true
}

// maxSlower is how many times slower the clock of a candidate goes at most.
const maxSlower = 4

// message is an event: another replica has sent one. What the log has no room for is lost,
// as on a network, and the sender sends it again.
func (t *turn) message(g *group, node string, m *pb.Message) error {
	from := consensus.ReplicaID(m.GetFrom())
	err := g.r.Check(m)
	if at := g.config.Node(from); at != "" && at != node { // a replica never moves
		err = fmt.Errorf("%w: replica %d is at node %s", consensus.ErrMessage, from, at)
	}
	if err != nil {
		t.n.strange(g.id, node, err)
		return nil
	}
	if !t.votes(g, m) {
		return nil
	}
	g.hears(from, m)
	g.trimming.hint(m, g.r.Term())
	if g.adopting && (m.GetType() == pb.MsgApp || len(g.later) >= maxLater) {
		return nil // it is sent again
	}
	if len(m.GetEntries()) > 0 {
		for _, e := range m.GetEntries() {
			if most := core.EntryMost(t.n.most); int64(len(e.GetData())) > most {
				t.n.strange(g.id, node, fmt.Errorf("entry %d has %d bytes, and the log of this node takes %d: it is configured with smaller segments than others", e.GetIndex(), len(e.GetData()), most))
				return nil
			}
		}
		cost := t.n.cost(m.GetEntries())
		if g.unstored > maxUnstored || !t.n.reserve(cost, reserveAs) {
			return nil
		}
		t.room += cost
	}
	if m.GetType() == pb.MsgVote && g.config.Node(from) == "" {
		m.Context = nil // who is none of the group's may ask, and not depose its leader
	}
	if _, ok := g.nodes[from]; ok || len(g.nodes) < maxKnown {
		g.nodes[from] = node
	}
	return g.r.Step(m)
}

// maxKnown bounds the replicas of a group whose nodes are remembered.
const maxKnown = 256

// maxLater bounds what waits to be appended behind a snapshot that is adopted.
const maxLater = 256

// maxUnstored bounds the bytes of a group's entries that wait for the disk, and more of
// others are taken.
const maxUnstored = 16 << 20
