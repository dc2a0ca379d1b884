package admin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A ChangeKind is what is to become of a cluster with replicas.
type ChangeKind string

const (
	AddNodes    ChangeKind = "add"       // Nodes come, and get their share of the replicas
	RemoveNodes ChangeKind = "remove"    // Nodes give their replicas to others, and go
	ReplaceNode ChangeKind = "replace"   // Nodes[0] comes and takes what Old has, which goes
	Rebalance   ChangeKind = "rebalance" // each node gets its share
	SetReplicas ChangeKind = "replicas"  // each key is on so many nodes
)

// A ChangeRequest says how a cluster with replicas is to change.
type ChangeRequest struct {
	Kind ChangeKind
	// Nodes are those that come or go. Of those that go only the id counts. A weight of 0 and a zone of "" are 1 and none, or in the
	// place of another node that one's. Out is never set.
	Nodes    []NodeWeight
	Old      string // ReplaceNode: the node that goes
	Replicas int    // SetReplicas: 1, 3, 5 or 7
	Dry      bool   // say what would be done, and do nothing
}

// A ClusterAnswer is what the cluster has answered: the task that a change comes to, or all tasks; the texts in it are the nodes'
// own, and may steer a terminal. A ClusterTask is a task and how far it is, a ClusterMove a replica that comes, goes, or both.
type (
	ClusterAnswer = wire.ClusterAnswer
	ClusterTask   = wire.ClusterTask
	ClusterMove   = wire.ClusterMove
)

// Change changes a cluster with replicas that lives. It returns when the cluster has agreed on the task, whose moves take their
// time after that: Tasks tells of them. With Dry it returns the plan (Task, of id 0), and nothing is different. A change that a task
// which runs does already comes to that task (its id is not 0, also with Dry).
//
// The nodes that come are asked first: they must be up, known to the others by gossip (else ErrUnknownNode), empty, and fit. When the
// task is agreed on they are told the map with them. To call it again after any error, and after an interruption, does no harm and
// finishes what was begun.
//
// Errors: client.ErrOptions for what no cluster could do; ErrRefused with the reason of the cluster or of a node that should come;
// client.ErrOutcomeUnknown if it is not known whether the task is agreed on; client.ErrUnavailable if nobody leads the meta group until
// ctx ends; client.ErrUnsupported for a cluster without replicas, or of an older version. A node that does not take the map is told
// by a *client.PartialError beside the answer: the task is agreed on then. Without a deadline in ctx it has four times
// Config.Timeout. It needs the admin right.
func (a *Admin) Change(ctx context.Context, r ChangeRequest) (ClusterAnswer, error) {
	if err := r.check(); err != nil {
		return ClusterAnswer{}, a.fail("cluster-"+string(r.Kind), nil, fmt.Errorf("%w: %w", client.ErrOptions, err))
	}
	q := wire.ClusterQuestion{Do: string(r.Kind), Old: r.Old, Replicas: r.Replicas, Dry: r.Dry}
	for _, n := range r.Nodes {
		one := wire.ClusterNode{ID: n.ID}
		if r.Kind != RemoveNodes {
			one.Weight, one.Zone = n.Weight, n.Zone
		}
		q.Nodes = append(q.Nodes, one)
	}
	return a.atSeat(ctx, q, func(ctx context.Context) (ClusterAnswer, error) {
		if r.Kind != AddNodes && r.Kind != ReplaceNode {
			return a.seek(ctx, q)
		}
		comes, err := a.newcomers(ctx, &q)
		if err != nil {
			return ClusterAnswer{}, err
		}
		answer, err := a.seek(ctx, q)
		if err != nil || r.Dry {
			return answer, err
		}
		return answer, a.deliver(ctx, comes, answer)
	})
}

// Tasks returns the tasks of a cluster with replicas, by id: those that run, and the last ones that have ended. The answer says, too,
// whether moves are paused. Errors and the deadline are those of Change.
func (a *Admin) Tasks(ctx context.Context) (ClusterAnswer, error) {
	return a.simple(ctx, wire.ClusterQuestion{Do: wire.ClusterTasks})
}

// Cancel has a task end: moves that have not begun never do, and those that have are undone, or finished where it is too late for
// that. It returns the task as it is now, which may take a while to end. ErrRefused: there is no such task. The other errors and the
// deadline are those of Change.
func (a *Admin) Cancel(ctx context.Context, task uint64) (ClusterAnswer, error) {
	return a.simple(ctx, wire.ClusterQuestion{Do: wire.ClusterCancel, Task: task})
}

// Pause has no further move begin, of any task, until Resume; those that have begun go on. Errors and the deadline are those of
// Change.
func (a *Admin) Pause(ctx context.Context) (ClusterAnswer, error) {
	return a.simple(ctx, wire.ClusterQuestion{Do: wire.ClusterPause})
}

// Resume takes Pause back. Errors and the deadline are those of Change.
func (a *Admin) Resume(ctx context.Context) (ClusterAnswer, error) {
	return a.simple(ctx, wire.ClusterQuestion{Do: wire.ClusterResume})
}

// simple asks the seat a question that needs nothing but the seat.
func (a *Admin) simple(ctx context.Context, q wire.ClusterQuestion) (ClusterAnswer, error) {
	return a.atSeat(ctx, q, func(ctx context.Context) (ClusterAnswer, error) { return a.seek(ctx, q) })
}

// seek asks the seat.
func (a *Admin) seek(ctx context.Context, q wire.ClusterQuestion) (ClusterAnswer, error) {
	s, err := newSeeker(a.rt, q)
	if err != nil {
		return ClusterAnswer{}, err
	}
	return s.ask(ctx)
}

// atSeat runs do with a deadline in its context and with news of the cluster, if it is one whose nodes can come and go. Its errors are
// those of a call.
func (a *Admin) atSeat(ctx context.Context, q wire.ClusterQuestion, do func(context.Context) (ClusterAnswer, error)) (ClusterAnswer, error) {
	op := "cluster-" + q.Do
	if a.rt.Only() != nil {
		return ClusterAnswer{}, a.fail(op, nil, fmt.Errorf("%w: the server is alone, and no node of a cluster", client.ErrUnsupported))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*a.rt.Config().Timeout)
		defer cancel()
	}
	if err := a.rt.Refresh(ctx, nil); err != nil {
		return ClusterAnswer{}, a.fail(op, nil, err)
	}
	switch m := a.rt.Map(); {
	case m == nil:
		return ClusterAnswer{}, a.fail(op, nil, client.ErrNoMap)
	case m.Replication == nil:
		return ClusterAnswer{}, a.fail(op, nil, fmt.Errorf("%w: a cluster without replicas cannot be changed while it lives, because nobody else has the keys of a node; kvclient cluster upgrade gives it replicas", client.ErrUnsupported))
	}
	answer, err := do(ctx)
	if err != nil {
		err = a.fail(op, nil, err)
	}
	return answer, err
}

// check finds what no cluster could do, before any is asked.
func (r *ChangeRequest) check() error {
	seen := make(map[string]bool)
	for _, n := range r.Nodes {
		switch {
		case cluster.CheckNodeID(n.ID) != nil:
			return cluster.CheckNodeID(n.ID)
		case seen[n.ID]:
			return fmt.Errorf("node %q is named twice", n.ID)
		case n.Weight > cluster.MaxWeight || n.Out:
			return fmt.Errorf("node %q needs a weight of 1 to %d", n.ID, cluster.MaxWeight)
		case n.Zone != "" && cluster.CheckZone(n.Zone) != nil:
			return cluster.CheckZone(n.Zone)
		}
		seen[n.ID] = true
	}
	nodes, old, replicas := len(r.Nodes), r.Old, r.Replicas
	switch r.Kind {
	case AddNodes, RemoveNodes:
		if nodes == 0 {
			return fmt.Errorf("%s: no nodes are named", r.Kind)
		}
		nodes = 0
	case ReplaceNode:
		if nodes != 1 {
			return fmt.Errorf("%d nodes to take the place of one: one is needed", nodes)
		}
		if err := cluster.CheckNodeID(old); err != nil {
			return err
		}
		if seen[old] {
			return fmt.Errorf("node %q cannot take its own place", old)
		}
		nodes, old = 0, ""
	case Rebalance:
	case SetReplicas:
		if replicas < 1 || replicas > cluster.MaxReplicas || replicas%2 == 0 {
			return fmt.Errorf("%d replicas: 1, 3, 5 or 7 are possible, because an even number bears no more losses than one less", replicas)
		}
		replicas = 0
	default:
		return fmt.Errorf("%q is nothing that can become of a cluster", cmp.Or(r.Kind, "nothing"))
	}
	if nodes != 0 || old != "" || replicas != 0 {
		return fmt.Errorf("%s has nothing to do with the nodes, the old node or the replicas that are given", r.Kind)
	}
	return nil
}
