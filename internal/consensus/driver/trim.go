package driver

import (
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// How far a group's log is trimmed.
//
//	| entries that the machine has durably (saved) | published | not yet |
//	          ^ kept: what others lack
//	 <--------> may go
//
// A checkpoint says what the machine has. Who needs an entry that the log has no more is sent a snapshot.

// trim is an event: the machine durably has the entries up to an index. What is not published
// yet, or what others need, goes with a later tick.
func (t *turn) trim(g *group, upTo uint64) error {
	g.saved = max(g.saved, upTo)
	if upTo := min(g.saved, g.published, g.kept()); upTo > g.trimmed && !g.adopting {
		g.trimmed = upTo
		t.append(g, g.r.Trim(upTo))
	}
	return nil
}

// kept returns up to where the log may be trimmed for the others: not past a snapshot that is
// on its way, nor past what a replica lacks that is well and not far behind, so that
// what it lacks is in memory here, nor past what another one lacks as long as there is plenty of room
// (keepsFor).
func (g *group) kept() uint64 {
	most := ^uint64(0)
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
// have to be sent all that the group has, which may be a million times as much. They are kept for Config.Absent, and while no more than half of the log is in use,
// because puts are slowed down when it is nearly full. Of a replica that was not heard of in this reign (Match 0) it is not known what it lacks.
func (g *group) keepsFor(p *consensus.Peer) bool {
	if p.Match != 0 && p.Match < g.trimmed {
		return false // it needs a snapshot in any case
	}
	if time.Duration(g.quiet[p.ID])*g.n.c.Tick > g.n.c.Absent {
		return false
	}
	log := g.n.c.Log.Stats()
	return log.Bytes <= log.Bound/2
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
