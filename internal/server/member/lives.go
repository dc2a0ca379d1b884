package member

import (
	"errors"
	"fmt"
	"math"

	"github.com/rdmakv/rdmakv/internal/shardmap"
	"github.com/rdmakv/rdmakv/internal/shardmap/format"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/membership"
	"github.com/rdmakv/rdmakv/store"
)

// Which starts of nodes this node knows of, for those that bring its replicas to others (package groups). Gossip tells of older copies,
// too, from memory alone and without a promise; what is here is asked before anything counts that another node says, and outlives restarts of all.

// Openings are the starts of this node's data directory that it knows of, this one first. It is called behind OpenBook.
func (c *Member) Openings() (list []wire.Opening) {
	for _, o := range c.lives.Own() {
		list = append(list, wire.Opening(o))
	}
	return list
}

// Admit says whether another node with these openings may speak, and remembers that durably. setBack: it may not, because its directory
// does not know of the opening seen. err alone: not now.
func (c *Member) Admit(node string, openings []wire.Opening) (seen wire.Opening, setBack bool, err error) {
	list := make([]format.Opening, len(openings))
	for i, o := range openings {
		list[i] = format.Opening(o)
	}
	was, err := c.lives.Admit(node, list)
	return wire.Opening(was), errors.Is(err, shardmap.ErrSetBack), err
}

// olderCopy is why a node ends whose directory is an older copy. errors.Is finds membership.ErrRolledBack.
type olderCopy struct {
	node, by string
	seen     wire.Opening
}

func (e *olderCopy) Error() string {
	return fmt.Sprintf("%v: node %s has seen node %s start in epoch %d, which this directory knows nothing of, so it was set back and its replicas have forgotten promises: "+
		"start the node with its newest directory; if that is lost, leave the node away: the others serve on, and refuse this directory also with --accept-rollback",
		membership.ErrRolledBack, e.by, e.node, e.seen.Epoch)
}

func (e *olderCopy) Unwrap() error { return membership.ErrRolledBack }

// refusal is what the directory says of it from now on.
func (e *olderCopy) refusal() store.Refusal {
	return store.Refusal{
		Cause: fmt.Sprintf("node %s has seen node %s start in epoch %d, which this directory knows nothing of: it was set back, and replicas have forgotten promises; start the node with its newest directory", e.by, e.node, e.seen.Epoch),
		Other: e.seen.Incarnation, Epoch: uint16(min(e.seen.Epoch, math.MaxUint16)),
	}
}

// SetBack has the node stand down, because another one has seen an opening of it that its directory does not know of. It does not wait.
func (c *Member) SetBack(by string, seen wire.Opening) {
	select {
	case c.older <- &olderCopy{c.cfg.NodeID, by, seen}:
	default: // Run has yet to look at another one
	}
}
