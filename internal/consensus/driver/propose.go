package driver

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
	"github.com/rdmakv/rdmakv/store/log"
)

// A proposal is an entry that is not in the log yet.
type proposal struct {
	term uint64
	data []byte
}

// Propose implements consensus.Engine.
func (n *Node) Propose(id consensus.GroupID, term uint64, data []byte) error {
	g, err := n.group(id)
	if err != nil {
		return err
	}
	if most := core.EntryMost(n.most); int64(len(data)) > most || len(data) == 0 {
		return fmt.Errorf("%w: %d bytes, 1 to %d are possible", consensus.ErrTooLarge, len(data), most)
	}
	size := core.EntryBytes(len(data))
	g.mu.Lock()
	switch {
	case g.stopped != nil:
		err = g.stopped
	case !g.status.Leads || g.status.Term != term:
		err = consensus.ErrNotLeader
	case g.proposing > 0 && g.proposing+size > n.proposing:
		err = consensus.ErrBusy
	default:
		g.proposing += size
	}
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if !g.note(func(_ *turn, g *group) error {
		g.waiting = append(g.waiting, proposal{term, data})
		return nil
	}) {
		return g.why()
	}
	n.help()
	return nil
}

// Entries that others have sent get room of the log that a leader's own do not: who leads
// has admitted them, and a follower that refused them would hold the group.
const (
	proposeAs = log.Puts
	reserveAs = log.Deletes
)

// reserve sets room of the log aside; false: there is none now. A log that has failed is found
// here, too.
func (n *Node) reserve(cost int64, use log.Use) bool {
	err := n.c.Log.Reserve(cost, use)
	if err != nil && !errors.Is(err, log.ErrFull) {
		n.fail(err)
	}
	return err == nil
}

// cost is what entries take of the log's room.
func (n *Node) cost(entries []*pb.Entry) int64 {
	sum := int64(0)
	for _, e := range entries {
		sum += core.EntryBytes(len(e.GetData()))
	}
	return n.c.Log.Cost(int(sum))
}

// retry gives the library what waits to be proposed, in its order. It takes nothing while it
// hands over, or while too much is not applied; then the entries wait on. So do they while
// the log has no room.
func (t *turn) retry(g *group) error {
	role := g.r.Role()
	k := 0
	size := int64(0)
	var err error
	for ; k < len(g.waiting); k++ {
		p := &g.waiting[k]
		if role.Leads && p.term == role.Term {
			cost := t.n.c.Log.Cost(int(core.EntryBytes(len(p.data))))
			if !t.n.reserve(cost, proposeAs) {
				break
			}
			t.room += cost
			if err = g.r.Propose(p.data); errors.Is(err, consensus.ErrBusy) {
				err = nil
				break
			}
			if errors.Is(err, consensus.ErrNotLeader) {
				err = nil // the machine hears that it follows
			}
			if err != nil {
				break
			}
		}
		size += core.EntryBytes(len(p.data))
	}
	if k > 0 {
		g.proposed(k, size)
	}
	return err
}

// proposed takes the first proposals out of those that wait.
func (g *group) proposed(k int, size int64) {
	rest := copy(g.waiting, g.waiting[k:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	g.mu.Lock()
	g.proposing -= size
	g.mu.Unlock()
}

// dropProposals forgets what waits: the replica does not lead any more.
func (g *group) dropProposals() {
	size := int64(0)
	for _, p := range g.waiting {
		size += core.EntryBytes(len(p.data))
	}
	g.proposed(len(g.waiting), size)
}
