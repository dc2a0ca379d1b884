package change

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/document"
	"github.com/rdmakv/rdmakv/internal/meta"
	"github.com/rdmakv/rdmakv/internal/seat"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// What operators ask for (wire.AdminCluster). The seat answers; whoever is not it says who is, as far as it knows.

// tries is how often a change is worked out anew because the state was changed meanwhile, by the seat's own next step say.
const tries = 5

// Operate answers a question of an operator (wire.ClusterQuestion).
//
// Errors: *base.Refusal, ctx's. What is in the way of a change is an answer, not an error.
func (c *Changer) Operate(ctx context.Context, argument []byte) ([]byte, error) {
	q, err := wire.ParseClusterQuestion(argument)
	if err != nil {
		return nil, &base.Refusal{Status: wire.StatusBadRequest, Text: err.Error()}
	}
	if c == nil {
		return nil, &base.Refusal{Status: wire.StatusUnsupported, Text: "this server is no node of a cluster"}
	}
	a, err := c.operate(ctx, &q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func (c *Changer) operate(ctx context.Context, q *wire.ClusterQuestion) (*wire.ClusterAnswer, error) {
	if q.Do == wire.ClusterJoin {
		if err := c.env.MayJoin(ctx); errors.Is(err, ErrLater) {
			return &wire.ClusterAnswer{State: wire.ClusterWait, Why: err.Error()}, nil
		} else if err != nil {
			return &wire.ClusterAnswer{State: wire.ClusterRefused, Why: err.Error()}, nil
		}
		return &wire.ClusterAnswer{State: wire.ClusterMay}, nil
	}
	now := c.now.Load()
	if now == nil {
		return &wire.ClusterAnswer{State: wire.ClusterRefused, Why: "this node has no shard map whose nodes can change: the cluster has none yet (kvclient cluster init), has no replicas, or an older version has made its map"}, nil
	}
	if why := c.twin.standsStill(); why != "" && q.Changes() {
		return &wire.ClusterAnswer{State: wire.ClusterRefused, Why: why, MapVersion: now.m.Version}, nil
	}
	if q.Do == wire.ClusterRecover && q.Group == 0 {
		return c.recoverMeta(ctx, q)
	}
	r := c.leads()
	if r == nil {
		return c.notSeat(now), nil
	}
	s, err := c.confirmed(ctx, r)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // it leads no more, or no majority has said that it does
		return c.notSeat(now), nil
	}
	if q.Do == wire.ClusterTasks {
		a := c.answer(s, wire.ClusterTaken)
		for i := range s.Tasks {
			a.Tasks = append(a.Tasks, c.task(s, &s.Tasks[i]))
		}
		return a, nil
	}
	if q.Do == wire.ClusterRecover {
		c.poll(s, c.lead.echoes(), time.Now()) // who answers now, and not who has answered a while ago
	}
	return c.change(ctx, r, s, q)
}

// notSeat says who is to be asked: who leads the meta group, by what the replica here knows, or any node that has one.
func (c *Changer) notSeat(now *inForce) *wire.ClusterAnswer {
	a := &wire.ClusterAnswer{State: wire.ClusterNotSeat, MapVersion: now.m.Version}
	if c.meta.running.Load() != nil {
		if st, err := c.env.Engine().Status(metaGroup); err == nil && !st.Leads {
			a.Seat = st.Config.Node(st.Leader)
		}
		return a
	}
	// One of them is asked at random, so that one that is away is not asked for ever.
	list := now.d.Groups[0].Replicas
	a.Seat = list[int(c.env.Now().UnixNano()/int64(time.Millisecond))%len(list)].Node
	return a
}

func (c *Changer) answer(s *meta.State, state string) *wire.ClusterAnswer {
	rise := seat.Level(s, c.lead.now(), c.env.Levels.Reads)
	return &wire.ClusterAnswer{State: state, Seat: c.env.Node, Version: s.Version, MapVersion: s.Map.Version, Paused: s.Paused, Level: uint8(s.Level), LevelWhy: rise.Why}
}

// change has the meta group take a change.
func (c *Changer) change(ctx context.Context, r *document.Replica, s *meta.State, q *wire.ClusterQuestion) (*wire.ClusterAnswer, error) {
	asked := time.Now()
	for try := 1; ; try++ {
		next, id, err := c.next(s, q)
		var loss *wire.ClusterLoss
		if q.Do == wire.ClusterRecover {
			next, loss, err = c.recovers(s, q)
		}
		if errors.Is(err, seat.ErrUnheard) && time.Since(asked) < unheardFor && rests(ctx, unheardRest) {
			try--
			continue
		}
		if err != nil {
			a := c.answer(s, wire.ClusterRefused)
			a.Why = err.Error()
			return a, nil
		}
		if next == nil {
			next = s
		}
		state := wire.ClusterTaken
		if q.Dry {
			state = wire.ClusterPlan
		} else if next != s {
			err := c.agree(ctx, r, next)
			switch {
			case errors.Is(err, meta.ErrRefused) && try < tries && ctx.Err() == nil:
				if s, err = c.confirmed(ctx, r); err != nil {
					return c.notSeat(c.now.Load()), nil
				}
				continue
			case errors.Is(err, meta.ErrRefused):
				a := c.answer(s, wire.ClusterRefused)
				a.Why = err.Error()
				return a, nil
			case errors.Is(err, consensus.ErrBusy):
				a := c.answer(s, wire.ClusterBusy)
				a.Why = fmt.Sprintf("the meta group takes no more at the moment, and nothing was done: ask again (%v)", err)
				return a, nil
			case errors.Is(err, document.ErrFull), errors.Is(err, consensus.ErrTooLarge):
				a := c.answer(s, wire.ClusterRefused)
				a.Why = fmt.Sprintf("what the meta group has to remember of it is too much, and nothing was done: wait until no task runs, and name fewer nodes at a time (%v)", err)
				return a, nil
			case errors.Is(err, consensus.ErrNotLeader):
				return c.notSeat(c.now.Load()), nil
			case err != nil:
				a := c.answer(s, wire.ClusterUnknown)
				a.Why = fmt.Sprintf("the meta group has not confirmed it: %v; ask for the tasks (kvclient cluster tasks), or ask for it again", err)
				return a, nil
			}
			s = next
			c.lead.poke()
		}
		a := c.answer(next, state)
		a.Loss = loss
		if t := next.Task(id); t != nil {
			told := c.task(next, t)
			if q.Dry && s.Task(id) == nil {
				told.ID = 0
			}
			a.Task = &told
		}
		if state == wire.ClusterTaken {
			a.Map = cluster.AppendMap(nil, next.Map)
		}
		return a, nil
	}
}

// next works out the state that a question asks for; nil, or s itself: nothing changes. id is the task that it is about.
func (c *Changer) next(s *meta.State, q *wire.ClusterQuestion) (next *meta.State, id uint64, err error) {
	now := seat.Millis(c.env.Now())
	switch q.Do {
	case wire.ClusterCancel:
		next, err = seat.Cancel(s, q.Task, now)
		return next, q.Task, err
	case wire.ClusterRecover:
		return nil, 0, nil // see recovers
	case wire.ClusterPause, wire.ClusterResume:
		return seat.Pause(s, q.Do == wire.ClusterPause), 0, nil
	}
	req := seat.Request{Kind: meta.Kind(q.Do), Old: q.Old, Replicas: q.Replicas}
	for _, n := range q.Nodes {
		one := seat.Node{ID: n.ID, Weight: n.Weight, Zone: n.Zone}
		if n.Store != "" {
			b, err := hex.DecodeString(n.Store)
			if err != nil || len(b) != len(one.Store) {
				return nil, 0, fmt.Errorf("%w: the store of node %.80q is %.80q, and it has %d hex digits", seat.ErrRequest, n.ID, n.Store, 2*len(one.Store))
			}
			copy(one.Store[:], b)
		}
		// A node that is in the cluster keeps what it has, also if the one whose place it takes has something else.
		if old, ok := s.Map.Draft().Nodes[q.Old]; ok && req.Kind == meta.Replace && !s.Map.Has(n.ID) {
			if one.Weight == 0 {
				one.Weight = old.Weight
			}
			if one.Zone == "" {
				one.Zone = old.Zone
			}
		}
		req.Nodes = append(req.Nodes, one)
	}
	if req.Kind == meta.Add || req.Kind == meta.Replace {
		if err := seat.MayCome(s, req.Nodes, c.env.Levels.ReadsOf); err != nil {
			return nil, 0, err
		}
	}
	next, t, err := seat.Plan(s, req, now)
	if err != nil {
		return nil, 0, err
	}
	return next, t.ID, nil
}

// recovers works out the state in which a group is replaced by one that is made of what one of its replicas has.
func (c *Changer) recovers(s *meta.State, q *wire.ClusterQuestion) (*meta.State, *wire.ClusterLoss, error) {
	next, l, err := seat.Recover(s, c.lead.now(), q.Group, q.From, seat.Millis(c.env.Now()))
	if err != nil {
		return nil, nil, err
	}
	loss := lossOf(l)
	loss.Done = next == s
	if !q.Dry && !q.Accept && !loss.Done {
		return nil, nil, unaccepted(loss)
	}
	return next, loss, nil
}

// lossOf is a loss as operators are told of it.
func lossOf(l *seat.Loss) *wire.ClusterLoss {
	return &wire.ClusterLoss{Group: l.Group, From: l.From, Replica: l.Replica, Last: l.Last, Heard: append([]string{}, l.Heard...), Away: append([]string{}, l.Away...), Made: l.Made,
		Since: l.Since, Forgets: append([]string{}, l.Forgets...)}
}

// unaccepted refuses what nobody has accepted.
func unaccepted(l *wire.ClusterLoss) error {
	since := ""
	if l.Since != 0 {
		since = fmt.Sprintf(", with all that group %d, which was made of it before, has acknowledged", l.Since)
	}
	if len(l.Forgets) > 0 {
		since += "; " + strings.Join(l.Forgets, ", ") + " would be forgotten"
	}
	return fmt.Errorf("%w: what node %q lacks of group %d would be lost: it has entries up to %d, and %s%s; that has to be accepted (kvclient cluster recover --accept-loss)",
		seat.ErrRequest, l.From, l.Group, l.Last, awayText(l.Away), since)
}

// awayText says which nodes do not answer for their replicas.
func awayText(nodes []string) string {
	if len(nodes) == 0 {
		return "no other node has a replica of it"
	}
	return "what " + strings.Join(nodes, ", ") + " may have behind that nobody knows"
}

// task is a task as operators are told of it.
func (c *Changer) task(s *meta.State, t *meta.Task) wire.ClusterTask {
	out := wire.ClusterTask{
		ID: t.ID, What: seat.Describe(t), Kind: string(t.Kind), State: string(t.State), Began: t.Began, Ended: t.Ended, Moves: []wire.ClusterMove{},
	}
	reports, d := c.lead.now(), s.Map.Draft()
	var took, left int64
	done := int64(0)
	for i := range t.Moves {
		m := &t.Moves[i]
		one := wire.ClusterMove{Group: m.Group, From: m.From, To: m.To, State: string(m.State), Began: m.Began, Ended: m.Ended}
		switch {
		case m.State == meta.Waits && !t.Over():
			one.Why = seat.Holds(s, d, reports, c.env.Limits, m)
			left++
		case m.Running():
			left++
			one.Step, one.Why, one.Behind = progress(reports, m)
		case m.State == meta.Arrived:
			took += max(0, m.Ended-m.Began) // another seat's clock may have been behind
			done++
		}
		out.Moves = append(out.Moves, one)
	}
	if done > 0 && left > 0 {
		out.LeftMS = took / done * left / int64(max(1, min(int64(c.moves()), left)))
	}
	return out
}

// moves is how many moves are under way at once.
func (c *Changer) moves() int {
	if c.env.Limits.Moves > 0 {
		return c.env.Limits.Moves
	}
	return 2
}

// progress is how far a move is that is under way.
func progress(r seat.Reports, m *meta.Move) (step, why string, behind uint64) {
	l := r.Leader(m.Group)
	if l == nil {
		return "", fmt.Sprintf("group %d has no leader that answers", m.Group), 0
	}
	if why, ok := r[m.To].Stopped[m.Group]; ok && m.To != "" {
		return "", fmt.Sprintf("the replica at node %s was stopped by an error (%s): cancel the task, and ask for it again", m.To, why), 0
	}
	if m.ToID != 0 {
		behind = l.Last - min(l.Last, l.Match[m.ToID])
	}
	return l.Step, l.Why, behind
}

// Status is the node's replica of the meta group; nil: it has none.
func (c *Changer) Status() *wire.MetaStatus {
	if c == nil {
		return nil
	}
	now := c.now.Load()
	if now == nil {
		return nil
	}
	at := now.d.Groups[0].At(c.env.Node)
	if at == nil {
		return nil
	}
	st, err := c.env.Engine().Status(metaGroup)
	if err != nil {
		st = consensus.Status{ID: consensus.ReplicaID(at.ID)}
	}
	out := &wire.MetaStatus{GroupStatus: groups.StatusOf(c.env.Node, &st, err == nil)}
	if s := c.meta.state(); s != nil {
		out.Version, out.MapVersion = s.Version, s.Map.Version
	}
	return out
}
