package driver

import (
	"fmt"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/core"
)

// A job is something for a group's applier. One field is set.
type job struct {
	apply    *core.Apply
	snapshot consensus.ReplicaID // for this replica
	sending  *sending            // of snapshot
	adopt    *arrival
}

// A queue takes jobs to an applier. What is in it is bounded by what the library hands out.
type queue struct {
	mu   sync.Mutex
	jobs []job
	over bool          // nobody takes jobs any more
	wake chan struct{} // capacity 1
}

func (q *queue) put(j job) {
	q.mu.Lock()
	over := q.over
	if !over {
		q.jobs = append(q.jobs, j)
	}
	q.mu.Unlock()
	if over {
		j.drop(consensus.ErrClosed)
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take(spare []job) []job {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs := q.jobs
	q.jobs = spare[:0]
	return jobs
}

// An applier has a machine publish what is committed.
type applier struct {
	g       *group
	config  consensus.Config // behind what was applied
	entries []consensus.Entry
	failed  error // nothing is done any more
}

// apply runs until the replica ends.
func (g *group) apply() {
	defer close(g.done)
	a := &applier{g: g, config: g.config}
	var spare []job
	for {
		select {
		case <-g.queue.wake:
		case <-g.ctx.Done():
			g.queue.drop(g.why())
			return
		}
		jobs := g.queue.take(spare)
		for i := range jobs {
			err := g.ctx.Err()
			if err == nil {
				if err = a.do(&jobs[i]); err != nil {
					g.post(func(*turn, *group) error { return err })
				}
			}
			if err != nil {
				jobs[i].drop(err)
			}
			jobs[i] = job{}
		}
		spare = jobs
	}
}

// drop gives up what is queued, and what comes.
func (q *queue) drop(err error) {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	for _, j := range q.take(nil) {
		j.drop(err)
	}
}

// drop gives up a job.
func (j *job) drop(err error) {
	if j.adopt != nil {
		j.adopt.drop(err)
	}
}

// do does one job.
func (a *applier) do(j *job) error {
	switch {
	case a.failed != nil:
		return a.failed
	case j.apply != nil:
		a.failed = a.apply(j.apply)
	case j.adopt != nil:
		if a.failed = a.adopt(j.adopt); a.failed == nil {
			j.adopt = nil // it is the turn's
		}
	default:
		a.snapshot(j.snapshot, j.sending)
	}
	return a.failed
}

// apply publishes entries.
func (a *applier) apply(w *core.Apply) error {
	var changed []core.Changed
	for _, e := range w.Entries {
		entry := consensus.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Kind: consensus.Empty}
		switch {
		case e.GetType() == pb.EntryConfChangeV2:
			c, err := core.Change(&a.config, e)
			if err != nil {
				return err
			}
			changed = append(changed, c)
			if c.Config == nil {
				break
			}
			entry.Kind, entry.Config = consensus.Change, c.Config
			if err := a.publish(); err != nil {
				return err
			}
			a.entries = append(a.entries, entry)
			if err := a.publish(); err != nil {
				return err
			}
			a.config = *c.Config
			w.InForce(c)
			continue
		case len(e.GetData()) > 0:
			entry.Kind, entry.Data = consensus.Write, e.GetData()
		}
		a.entries = append(a.entries, entry)
	}
	if err := a.publish(); err != nil {
		return err
	}
	a.g.note(func(t *turn, g *group) error { return g.applied(w, changed) })
	a.g.n.help()
	return nil
}

// publish hands the machine what was gathered.
func (a *applier) publish() error {
	if len(a.entries) == 0 {
		return nil
	}
	err := a.g.m.Apply(a.entries)
	clear(a.entries)
	a.entries = a.entries[:0]
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	return nil
}

// applied is an event: the machine has published entries.
func (g *group) applied(w *core.Apply, changed []core.Changed) error {
	last := w.Entries[len(w.Entries)-1]
	g.published, g.publishedTerm = last.GetIndex(), last.GetTerm()
	if w.Config != nil {
		g.config = *w.Config
	}
	g.disk.Published(g.published, last.GetTerm(), w.Config)
	if err := g.r.Applied(w); err != nil {
		return err
	}
	g.settle(changed)
	g.reads.release(g.published)
	return nil
}
