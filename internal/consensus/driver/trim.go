package driver

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// How far a group's log is trimmed.
//
//	| entries that the machine has durably (saved) | published | not yet |
//	          ^ kept: what others lack
//	 <--------> may go
//
// A checkpoint says what the machine has. Who needs an entry that the log has no more is sent a snapshot.

// Trimming is how far a group's log goes back.
type trimming struct {
	saved   uint64 // the machine has the entries up to it durably
	trimmed uint64 // the log begins behind it, once what is under way is done
	allowed uint64 // up to where a leader lets logs be trimmed: this replica, as of its last tick, or another one, with its last heartbeat
	since   int    // ticks since then
}

// trim is an event: the machine durably has the entries up to an index. What is not published
// yet, or what others need, goes with a later tick.
func (t *turn) trim(g *group, upTo uint64) error {
	g.saved = max(g.saved, upTo)
	if min(g.saved, g.published) <= g.trimmed || g.adopting {
		return nil
	}
	if upTo := min(g.saved, g.published, g.kept()); upTo > g.trimmed {
		g.trimmed = upTo
		t.append(g, g.r.Trim(upTo))
	}
	return nil
}

// kept returns up to where the log may be trimmed for the others: not past a snapshot that is
// on its way, nor past what a replica lacks that is well and not far behind, so that
// what it lacks is in memory here, nor past what another one lacks as long as there is plenty of room
// (keepsFor). A replica that does not lead has it from the leader's heartbeats (hint), because it may lead when that one
// falls; until the first of them it keeps all that it has.
func (g *group) kept() uint64 {
	most := uint64(core.MaxNumber)
	if !g.r.Leads() {
		if g.n.keeps(g.since) {
			most = g.allowed
		}
		return most
	}
	for _, s := range g.sending {
		if s.state == going || s.state == lingers {
			most = min(most, s.index)
		}
	}
	peers := g.peers
	if len(peers) == 0 {
		peers = g.r.Peers(nil) // it may lead since the last tick
	}
	for i := range peers {
		p := &peers[i]
		if p.Snapshot {
			continue
		}
		near := g.quiet[p.ID] < patience && p.Match+1 >= g.disk.InMemory()
		if near || g.keepsFor(p) {
			most = min(most, p.Match)
		}
	}
	return most
}

// keepsFor says whether the log keeps what a replica lacks that is away or far behind: its node is started anew, say. Without those entries it would
// have to be sent all that the group has, which may be a million times as much. Of a replica that was not heard of in this reign (Match 0) it is
// not known what it lacks.
func (g *group) keepsFor(p *consensus.Peer) bool {
	if p.Match != 0 && p.Match < g.trimmed {
		return false // it needs a snapshot in any case
	}
	return g.n.keeps(g.quiet[p.ID])
}

// keeps says whether a log keeps what others lack who were not heard of for so many ticks: for Config.Absent, and while no more than half of
// the log is in use, because puts are slowed down when it is nearly full.
func (n *Node) keeps(ticks int) bool {
	if time.Duration(ticks)*n.c.Tick > n.c.Absent {
		return false
	}
	log := n.c.Log.Stats()
	return log.Bytes <= log.Bound/2
}

// hint takes down what a leader tells with a heartbeat (turn.send): up to where logs may be trimmed. The library does not see it. A leader whose
// program is older tells nothing, and nothing is kept on its word.
func (t *trimming) hint(m *pb.Message, term uint64) {
	if m.GetType() != pb.MsgHeartbeat || m.RejectHint == nil {
		return
	}
	if m.GetTerm() >= term {
		t.allowed, t.since = m.GetRejectHint(), 0
	}
	m.RejectHint = nil
}

// patience is for how many ticks a replica that is not heard of counts as well.
const patience = 50

// hear takes in who was heard of. The library forgets that of all replicas at once, each election timeout, and hears of them with the next
// heartbeat: whoever believed it meanwhile would take all of them for gone, and hand a group to nobody. It is called each tick.
func (g *group) hear() {
	grace := 2 * g.n.c.Limits.WithDefaults().HeartbeatTicks
	g.peers = g.r.Peers(g.peers[:0])
	for i := range g.peers {
		p := &g.peers[i]
		p.Room = g.standing.room[p.ID]
		if p.Active {
			g.quiet[p.ID] = 0
			continue
		}
		g.quiet[p.ID]++
		p.Active = g.quiet[p.ID] <= grace
	}
	if len(g.peers) == 0 {
		clear(g.quiet)
	}
}
