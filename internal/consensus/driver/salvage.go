package driver

import (
	"context"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// salvageBytes bounds the bytes of entries that are read at a time.
const salvageBytes = 1 << 20

// Salvage implements consensus.Salvager.
func (n *Node) Salvage(ctx context.Context, id consensus.GroupID, self consensus.ReplicaID, m consensus.Machine) (last uint64, err error) {
	if err := n.claim(id); err != nil {
		return 0, err
	}
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.starting, id)
	}()
	state, err := m.State()
	if err != nil {
		return 0, fmt.Errorf("consensus: group %d: %w", id, err)
	}
	stream := n.c.Stream(id)
	if err := core.Reconcile(n.c.Log, stream, self, state); err != nil {
		return 0, fmt.Errorf("group %d: %w", id, err)
	}
	disk := core.NewDisk(n.c.Log, stream, state, n.c.Memory)
	if last, err = disk.LastIndex(); err != nil {
		return 0, fmt.Errorf("consensus: group %d: %w", id, err)
	}
	for at := state.Applied; at < last; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		entries, err := disk.Entries(at+1, last+1, salvageBytes)
		if err != nil {
			return 0, fmt.Errorf("consensus: group %d: entry %d: %w", id, at+1, err)
		}
		for _, e := range entries {
			if err := salvage(m, &state.Config, e); err != nil {
				return 0, fmt.Errorf("consensus: group %d: entry %d: %w", id, e.GetIndex(), err)
			}
			at = e.GetIndex()
		}
	}
	return last, nil
}

// salvage has a machine apply an entry as an applier does, but for what the library has to know of it: nobody runs the replica.
func salvage(m consensus.Machine, config *consensus.Config, e *pb.Entry) error {
	entry := consensus.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: consensus.Empty}
	switch {
	case e.GetType() == pb.EntryConfChangeV2:
		c, err := core.Change(config, e)
		if err != nil {
			return err
		}
		if c.Config != nil {
			entry.Kind, entry.Config, *config = consensus.Change, c.Config, *c.Config
		}
	case len(e.GetData()) > 0:
		entry.Kind, entry.Data = consensus.Write, e.GetData()
	}
	return m.Apply([]consensus.Entry{entry})
}
