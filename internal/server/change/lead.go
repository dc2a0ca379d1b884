package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
)

// The seat: who leads the meta group. It polls all nodes, more often while something is to be done, and has the meta group agree on what seat.Step works out.

const (
	pollBusy = 200 * time.Millisecond // between two polls while a task is under way
	pollIdle = time.Second            // likewise while none is
	pollTime = time.Second            // for a node's answer
	// reportFor is for how long a report counts. One that is older says nothing of how the node is now.
	reportFor = 2 * time.Second
	// farewell is for how long nodes that a task has taken out are told of the map that says so.
	farewell = 5 * time.Minute
)

// A lead is what the seat knows.
type lead struct {
	woken chan struct{} // capacity 1: it may be this node, or not any more; or something was asked for

	mu      sync.Mutex
	reports map[string]reported
}

// A reported report is what a node has said, and when.
type reported struct {
	seat.Report
	at time.Time
}

func (l *lead) init() {
	l.woken = make(chan struct{}, 1)
	l.reports = make(map[string]reported)
}

func (l *lead) poke() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// now are the reports that count.
func (l *lead) now() seat.Reports {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := make(seat.Reports, len(l.reports))
	for node, one := range l.reports {
		if time.Since(one.at) < reportFor {
			r[node] = one.Report
		}
	}
	return r
}

// leads is the meta group's replica here, if it leads; nil: it does not.
func (c *Changer) leads() *document.Replica {
	r := c.meta.running.Load()
	if r == nil {
		return nil
	}
	if st, err := r.Status(); err != nil || !st.Leads {
		return nil
	}
	return r
}

// sit is the seat's work while this node is it, until the node ends.
func (c *Changer) sit() {
	for {
		rest := pollIdle
		if r := c.leads(); r != nil {
			switch busy, err := c.sitOnce(r); {
			case err != nil && c.ctx.Err() == nil && !errors.Is(err, consensus.ErrNotLeader):
				c.env.Log.Info("the meta group has not agreed on the next step; it is tried again", "err", err)
			case busy:
				rest = pollBusy
			}
		}
		t := time.NewTimer(rest)
		select {
		case <-t.C:
		case <-c.lead.woken:
		case <-c.ctx.Done():
		}
		t.Stop()
		if c.ctx.Err() != nil {
			return
		}
	}
}

// sitOnce polls all nodes, and does what is to be done then. busy: a task is under way.
func (c *Changer) sitOnce(r *document.Replica) (busy bool, err error) {
	echoes := c.lead.echoes() // before the state is confirmed: see echo
	s, err := c.confirmed(c.ctx, r)
	if err != nil {
		return false, err
	}
	if now := c.now.Load(); now.m.Version < s.Map.Version {
		if err := c.env.Follow(c.ctx, s.Map); err != nil { // this node first: it is polled as the others are
			return false, err
		}
	}
	st, err := r.Status()
	if err != nil || !st.Leads {
		return false, consensus.ErrNotLeader
	}
	c.poll(s, echoes, time.Now())
	if c.twin.standsStill() != "" {
		return false, nil
	}
	next := seat.Step(s, c.lead.now(), c.env.Limits, seat.Millis(c.env.Now()))
	if next == nil {
		next = seat.Raise(s, c.lead.now(), c.env.Levels.Reads)
	}
	if next != nil {
		ctx, cancel := context.WithTimeout(c.ctx, stepTime)
		defer cancel()
		if err := c.agree(ctx, r, next); err != nil {
			return true, err
		}
		c.lead.poke() // so that nodes hear of it now
	}
	return slices.ContainsFunc(s.Tasks, func(t meta.Task) bool { return !t.Over() }), nil
}

// confirmed is the meta group's state, which a majority has confirmed.
func (c *Changer) confirmed(ctx context.Context, r *document.Replica) (*meta.State, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	got, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	s, ok := got.(content)
	if !ok {
		return nil, consensus.ErrNotLeader
	}
	return s.State, nil
}

// echoes are what the nodes have said of their clocks in their newest reports, however old these are.
func (l *lead) echoes() map[string]echo {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := make(map[string]echo, len(l.reports))
	for node, one := range l.reports {
		of[node] = echo{one.Life, one.Stamp}
	}
	return of
}

// poll asks all nodes how they are, and tells them of the map of a state that was confirmed at a moment. The echoes
// are of reports that were here before that.
func (c *Changer) poll(s *meta.State, echoes map[string]echo, confirmed time.Time) {
	d := s.Map.Draft()
	var wg sync.WaitGroup
	for _, node := range c.polls(s) { // cluster.MaxNodes at most
		if time.Since(confirmed) > pollTime {
			break // there may be a later map by now
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, pollTime)
			defer cancel()
			if r, err := c.pollOne(ctx, node, echoes[node], s, d); err == nil {
				c.lead.mu.Lock()
				c.lead.reports[node] = reported{r, time.Now()}
				c.lead.mu.Unlock()
			}
		})
	}
	wg.Wait()
	c.lead.mu.Lock()
	defer c.lead.mu.Unlock()
	for node, r := range c.lead.reports {
		if time.Since(r.at) > reportFor {
			delete(c.lead.reports, node)
		}
	}
}

// polls are the nodes to ask: those of the map, and those that a task has just taken out of it, so that they hear of it.
func (c *Changer) polls(s *meta.State) (list []string) {
	for _, n := range s.Map.Nodes {
		list = append(list, n.ID)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if t.State != meta.Done || t.Kind != meta.Remove && t.Kind != meta.Replace || c.env.Now().Sub(time.UnixMilli(t.Ended)) > farewell {
			continue
		}
		for _, n := range t.Nodes {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	}
	return list
}

// pollOne asks a node, twice if it turns out that it has an older map.
func (c *Changer) pollOne(ctx context.Context, node string, of echo, s *meta.State, d *cluster.Draft) (r seat.Report, err error) {
	m := s.Map
	if node == c.env.Node {
		return c.polled(ctx, node, poll{of: of, level: s.Level, version: m.Version})
	}
	for send := false; ; send = true {
		answer, err := c.env.Ask(ctx, node, appendPoll(nil, of, s.Level, m, send))
		if err == nil {
			r, err = parseReport(answer, node, d)
		}
		if err == nil && m.Parts(r.Map, r.MetaLife) { // what it says is of another meta group's maps
			met(c, node, r.MetaLife)
			return r, fmt.Errorf("%w: node %q goes by the other one", cluster.ErrTwoMetas, node)
		}
		if err != nil || send || r.Map >= m.Version {
			return r, err
		}
	}
}
