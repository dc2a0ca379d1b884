package simcluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/server"
)

// Nodes that come and go while the clients work: an operator who asks for one change after another, and sometimes thinks better of it.

// change asks for changes of the cluster, one after the other, until done is closed, and waits until the last one is over.
func (w *World) change(done <-chan struct{}) error {
	if w.sc.Founders == 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(w.seed, 2))
	a := admin.Of(w.clients[0])
	for rest(rng, 4*time.Second, done) {
		in, err := w.inMap(a)
		if err != nil {
			continue // nobody can be asked now
		}
		req := w.request(rng, in)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		answer, err := a.Change(ctx, req)
		cancel()
		if err := mayFail(err); err != nil {
			return fmt.Errorf("%+v: %w", req, err)
		}
		if err != nil {
			continue
		}
		w.count(func(d *Done) { d.Changes++ })
		if answer.Task == nil {
			return fmt.Errorf("%+v: no task", req)
		}
		if err := w.follow(a, rng, answer.Task.ID, done); err != nil {
			return err
		}
	}
	return nil
}

// request is a change that makes sense for a cluster of some nodes, or is near to one that does.
func (w *World) request(rng *rand.Rand, in []string) (r admin.ChangeRequest) {
	var out []string
	for _, n := range w.nodes {
		if !slices.Contains(in, n.id) {
			out = append(out, n.id)
		}
	}
	one := func(list []string) []admin.NodeWeight { return []admin.NodeWeight{{ID: list[rng.IntN(len(list))]}} }
	switch k := rng.IntN(10); {
	case k < 4 && len(out) > 0:
		return admin.ChangeRequest{Kind: admin.AddNodes, Nodes: one(out)}
	case k < 6 && len(in) > 3:
		return admin.ChangeRequest{Kind: admin.RemoveNodes, Nodes: one(in)}
	case k < 8 && len(out) > 0:
		return admin.ChangeRequest{Kind: admin.ReplaceNode, Old: in[rng.IntN(len(in))], Nodes: one(out)}
	case k < 9:
		return admin.ChangeRequest{Kind: admin.SetReplicas, Replicas: 1 + 2*rng.IntN(2)}
	}
	return admin.ChangeRequest{Kind: admin.Rebalance}
}

// mayFail returns nil for an error that a change may end with while things go wrong.
func mayFail(err error) error {
	for _, may := range []error{context.DeadlineExceeded, client.ErrUnavailable, client.ErrOutcomeUnknown, admin.ErrRefused, client.ErrTimeout} {
		if errors.Is(err, may) {
			return nil
		}
	}
	return err
}

// inMap are the nodes of the map in force, as a node tells it.
func (w *World) inMap(a *admin.Admin) (list []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	info, err := a.Cluster(ctx)
	for _, n := range info.Nodes {
		if n.Weight > 0 {
			list = append(list, n.ID)
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("no node is in the map")
	}
	return list, err
}

// follow waits until a task is over. It may pause and cancel it.
func (w *World) follow(a *admin.Admin, rng *rand.Rand, id uint64, done <-chan struct{}) error {
	cancelAt := time.Now().Add(time.Duration(rng.Int64N(int64(30 * time.Second))))
	cancels := rng.IntN(3) == 0
	for began := time.Now(); ; {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-done: // what runs goes on: settled waits for it
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		answer, err := a.Tasks(ctx)
		if err == nil && cancels && time.Now().After(cancelAt) {
			w.count(func(d *Done) { d.Cancels++ })
			if _, err := a.Cancel(ctx, id); mayFail(err) != nil {
				cancel()
				return fmt.Errorf("cancel of task %d: %w", id, err)
			}
			cancels = false
		}
		cancel()
		if err := mayFail(err); err != nil {
			return err
		}
		for _, t := range answer.Tasks {
			if t.ID == id && (t.State == "done" || t.State == "canceled") {
				return nil
			}
		}
		if time.Since(began) > 5*time.Minute {
			return fmt.Errorf("task %d is not over in 5 minutes: %+v", id, answer.Tasks)
		}
	}
}

// metas says how the meta group stands.
func (w *World) metas() (text string) {
	for _, n := range w.nodes {
		if srv := n.server(); srv == nil {
			text += "\n  " + n.id + " is down"
		} else if m := server.MetaForTests(srv); m != nil {
			text += fmt.Sprintf("\n  %s: %+v", n.id, *m)
		}
	}
	return text
}

// over waits, once nothing is disturbed any more, until no task runs, and returns how many replicas each group is to have then.
func (w *World) over() (replicas map[uint32]int, err error) {
	if w.sc.Founders == 0 {
		return nil, nil
	}
	a := admin.Of(w.clients[0])
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		each, cancel := context.WithTimeout(ctx, 20*time.Second)
		answer, err := a.Tasks(each)
		cancel()
		runs := slices.IndexFunc(answer.Tasks, func(t admin.ClusterTask) bool { return t.State != "done" && t.State != "canceled" })
		if err == nil && runs < 0 {
			break
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("five minutes after the last fault tasks are not over: %+v, %w%s", answer.Tasks, err, w.metas())
		}
		time.Sleep(200 * time.Millisecond)
	}
	time.Sleep(5 * time.Second) // nodes follow the last map
	info, err := a.Cluster(ctx)
	replicas = make(map[uint32]int)
	for _, g := range info.Founders {
		replicas[g.ID] = len(g.Replicas)
	}
	return replicas, err
}
