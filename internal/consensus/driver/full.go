package driver

import (
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
)

// A node whose disk is full takes no puts (Config.Full), so another one had better lead. It is the owner of the engine who hands groups
// over, to a voter of which Status.Peers says that it has room. Here
//
//   - each node tells leaders whether its disk is full, with what it answers to heartbeats: a MsgHeartbeatResp that rejects. The
//     library does not look at this field, and a program that does not know it takes nobody for full;
//   - a replica at a full node asks nobody to vote for it before others have had the time to: until three election timeouts after it
//     knew of a leader its pre-votes do not leave. Then they do, because nobody else has stood: they are full, too, or lack entries.
//     It votes at once, and stands at once if a leader hands over to it;
//   - who was full counts as full until its disk has had room for Config.Settled, so that groups do not go to and fro;
//   - a message that makes a replica vote, or brings a later term, is lost if the log has no room for that. If it were stepped, the
//     append of the vote would find no room, and stop the replica for good.
//
// A follower at a full node appends as long as its log has room. Then entries are lost as on a network, and it catches up later.

// standsLater is for how many election timeouts a full node leaves it to others to stand.
const standsLater = 3

// A fullness is what a node knows of its disk.
type fullness struct {
	full  atomic.Bool
	since time.Time // the clock's: when the disk was found full last
}

// look asks whether the disk is full. The clock calls it.
func (n *Node) look(now time.Time) {
	f := &n.disk
	switch is := n.c.Full(); {
	case is:
		f.since = now
		if !f.full.Swap(true) {
			n.c.Logger.Warn("the disk is full: groups are led by others, if they have room")
		}
	case f.full.Load() && now.Sub(f.since) >= n.c.Settled:
		f.full.Store(false)
		n.c.Logger.Info("the disk has had room for a while: this node may lead", "for", n.c.Settled)
	}
}

// A standing is what a group knows of disks and leaders.
type standing struct {
	silent int                          // ticks since it knew of a leader
	room   map[consensus.ReplicaID]bool // of a leader: who has said that its disk has room
}

// tick notes that a tick has passed.
func (s *standing) tick(r core.Role) {
	if s.silent++; r.Leader != 0 {
		s.silent = 0
	}
	if !r.Leads {
		clear(s.room)
	}
}

// leaves says whether a message may leave, and has an answer to a heartbeat tell of the disk.
func (g *group) leaves(m *pb.Message) bool {
	full := g.n.disk.full.Load()
	switch m.GetType() {
	case pb.MsgHeartbeatResp:
		m.Reject = &full
	case pb.MsgPreVote:
		return !full || g.standing.silent >= standsLater*g.n.c.Limits.WithDefaults().ElectionTicks
	}
	return true
}

// hears takes down what an answer to a heartbeat tells of a disk. The library does not see it.
func (g *group) hears(from consensus.ReplicaID, m *pb.Message) {
	if m.GetType() == pb.MsgHeartbeatResp && g.config.Node(from) != "" {
		g.standing.room[from] = !m.GetReject()
		m.Reject = nil
	}
}

// stateBytes is more than the body of a record has that says term, vote and commit index.
const stateBytes = 128

// votes sets room of the log aside for what a message may have the replica store beside entries: a term, a vote, and its own first entry
// as a leader. False: there is none.
func (t *turn) votes(g *group, m *pb.Message) bool {
	if m.GetTerm() <= g.r.Term() && m.GetType() != pb.MsgVote && m.GetType() != pb.MsgTimeoutNow {
		return true
	}
	cost := 2 * t.n.c.Log.Cost(stateBytes)
	if !t.n.reserve(cost, log.Facts) {
		return false
	}
	t.room += cost
	return true
}
