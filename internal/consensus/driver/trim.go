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
		most = min(most, s.index)
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
