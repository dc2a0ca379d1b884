package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// How the seat is found: the node that leads the meta group, which alone answers questions about the cluster.
//
//	any node ──▶ "ask n2" ──▶ n2 ──▶ the answer
//	         ──▶ "nobody is known", no answer, nonsense ──▶ another node … ──▶ all were asked: a rest, and again from the beginning
//
// It ends with the answer, or with the context. A question may be asked twice, so one that got no answer is asked of the next node.

const (
	seatAsks  = 16                     // nodes that are asked between two rests
	seatRest  = 100 * time.Millisecond // the first rest
	seatRests = time.Second            // the longest
	// seatPart is which part of the time of a call one node may take that does not answer, if that is not less than seatLeast.
	seatPart  = 4
	seatLeast = 500 * time.Millisecond
	// seatQuick is what one node may take at most for a question that changes nothing, seatSlow for one that the meta group has to agree on.
	seatQuick = 3 * time.Second
	seatSlow  = 12 * time.Second
)

// ErrRefused: the cluster does not do what was asked for, and nothing has changed; the text says why.
var ErrRefused = errors.New("the cluster refuses")

// A seeker is one question on its way to the seat. It is used by one goroutine.
type seeker struct {
	rt       *route.Router
	question wire.ClusterQuestion
	text     []byte // the question, as it is sent

	failed  map[string]error // by node: why it has not answered, of its last try
	heard   bool             // a node has said that nobody is known to be the seat, or who is
	busy    string           // what the seat has too much of, if it was the last to say so; it has done nothing
	unknown error            // the question may have been answered: why that is not known
}

// newSeeker checks the size of a question. ErrOptions.
func newSeeker(rt *route.Router, q wire.ClusterQuestion) (*seeker, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if len(text) > wire.MaxClusterQuestion {
		return nil, fmt.Errorf("%w: a question of %d bytes, at most %d are possible: name fewer nodes at a time", client.ErrOptions, len(text), wire.MaxClusterQuestion)
	}
	return &seeker{rt: rt, question: q, text: text, failed: make(map[string]error)}, nil
}

// ask finds the seat and returns its answer, which is valid. ctx has a deadline.
//
// ErrRefused, ErrDenied; ErrUnsupported if all nodes are of versions that do not know such questions. When ctx ends: ErrOutcomeUnknown
// if something may have changed; ErrUnavailable if nobody leads the meta group; else why the nodes did not answer.
func (s *seeker) ask(ctx context.Context) (wire.ClusterAnswer, error) {
	rest := seatRest
	for round := 0; ; round++ {
		answer, err := s.round(ctx, round)
		if answer.State != "" || err != nil {
			return answer, err
		}
		if !base.Pause(ctx, rest) {
			return wire.ClusterAnswer{}, s.over(ctx)
		}
		rest = min(2*rest, seatRests)
		_ = s.rt.Refresh(ctx, nil) // who has come since; if that fails, what is known has to do
	}
}

// round asks nodes until one of them has answered. A zero answer without an error: none has, and it may be that one does later.
func (s *seeker) round(ctx context.Context, round int) (none wire.ClusterAnswer, err error) {
	queue, asked, old := s.nodes(round), make(map[string]bool), 0
	for len(queue) > 0 && len(asked) < seatAsks && ctx.Err() == nil {
		node := queue[0]
		queue = queue[1:]
		if asked[node] {
			continue
		}
		asked[node] = true
		answer, err := s.at(ctx, node)
		switch {
		case errors.Is(err, client.ErrDenied) || errors.Is(err, client.ErrAuth) || errors.Is(err, client.ErrClosed) && route.IsClosed(s.rt):
			return none, err
		case err != nil:
			if errors.Is(err, client.ErrUnsupported) {
				old++
			}
			if errors.Is(err, client.ErrOutcomeUnknown) {
				s.unknown = err
			}
			s.failed[node] = err
			continue
		}
		delete(s.failed, node)
		s.busy = ""
		switch answer.State {
		case wire.ClusterNotSeat:
			s.heard = true
			if answer.Seat != "" {
				queue = append([]string{answer.Seat}, queue...)
			}
		case wire.ClusterBusy:
			s.busy = fmt.Sprintf("node %q: %s", node, whyOf(answer))
			return none, nil // and not the next node, which would say that this one is the seat
		case wire.ClusterUnknown:
			s.heard = true
			s.unknown = fmt.Errorf("node %q: %s", node, whyOf(answer))
		case wire.ClusterRefused:
			return none, fmt.Errorf("%w: %s", ErrRefused, whyOf(answer))
		default:
			return answer, nil
		}
	}
	if old > 0 && old == len(asked) {
		return none, fmt.Errorf("%w: the nodes of this cluster run a version that cannot change it; finish the upgrade", client.ErrUnsupported)
	}
	return none, nil
}

// whyOf is the reason of an answer, harmless to a terminal. What the answer is called by the node stands before it, and in the error already.
func whyOf(a wire.ClusterAnswer) string {
	why := strings.TrimPrefix(wire.CleanText([]byte(a.Why)), "cluster: ")
	return cmp.Or(strings.TrimPrefix(why, "not possible: "), "it does not say why")
}

// nodes are those to be asked, those first that gossip believes alive, by id; each round begins with others.
func (s *seeker) nodes(round int) (list []string) {
	_, m, members := s.rt.Seen()
	if m == nil {
		return nil
	}
	away := make(map[string]bool)
	for i := range members {
		away[members[i].ID] = members[i].State != cluster.Alive
	}
	for _, n := range m.Nodes {
		list = append(list, n.ID)
	}
	at := round * seatAsks % len(list)
	list = append(slices.Clone(list[at:]), list[:at]...)
	slices.SortStableFunc(list, func(a, b string) int {
		switch {
		case away[a] == away[b]:
			return 0
		case away[a]:
			return 1
		}
		return -1
	})
	return list
}

// at asks one node, once.
func (s *seeker) at(ctx context.Context, node string) (wire.ClusterAnswer, error) {
	p, err := s.rt.Peer(node)
	if err != nil {
		return wire.ClusterAnswer{}, err
	}
	part := min(s.rt.Config().Timeout, seatQuick)
	if s.question.Changes() {
		part = min(s.rt.Config().Timeout, seatSlow)
	}
	if end, ok := ctx.Deadline(); ok {
		part = min(part, max(time.Until(end)/seatPart, seatLeast))
	}
	ctx, cancel := context.WithTimeout(ctx, part)
	defer cancel()
	text, err := document(ctx, p, wire.AdminCluster, s.text)
	if err != nil {
		return wire.ClusterAnswer{}, err
	}
	answer, err := parseAnswer(s.question, text)
	if err != nil {
		class := client.ErrProtocol
		if s.question.Changes() {
			class = client.ErrOutcomeUnknown
		}
		return answer, p.Fail("admin cluster", nil, "", base.Caused(class, err))
	}
	return answer, nil
}

// parseAnswer holds the answer to a question to what makes sense.
func parseAnswer(q wire.ClusterQuestion, text []byte) (a wire.ClusterAnswer, err error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return wire.ClusterAnswer{}, fmt.Errorf("an answer about the cluster that is no JSON of that: %s", wire.CleanText([]byte(err.Error())))
	}
	may := []string{wire.ClusterRefused, wire.ClusterBusy, wire.ClusterUnknown, wire.ClusterNotSeat, wire.ClusterTaken}
	switch {
	case q.Do == wire.ClusterJoin:
		may = []string{wire.ClusterRefused, wire.ClusterMay, wire.ClusterWait}
	case q.Dry || q.Do == wire.ClusterTasks: // nothing is done, whatever it is called
		may = append(may, wire.ClusterPlan)
	}
	bad := ""
	switch needs := q.Dry || a.State == wire.ClusterTaken; {
	case !slices.Contains(may, a.State):
		bad = fmt.Sprintf("the state %q", clipped(a.State))
	case a.State == wire.ClusterNotSeat && a.Seat != "" && cluster.CheckNodeID(a.Seat) != nil:
		bad = fmt.Sprintf("the seat %q", clipped(a.Seat))
	case needs && a.State != wire.ClusterTaken && a.State != wire.ClusterPlan:
	case needs && a.Task == nil && (makesTask(q.Do) || q.Do == wire.ClusterCancel):
		bad = "no task"
	case needs && a.Task != nil && a.Task.ID == 0 && !q.Dry:
		bad = "a task without a number"
	case q.Do == wire.ClusterCancel && a.Task != nil && a.Task.ID != q.Task:
		bad = fmt.Sprintf("task %d", a.Task.ID)
	}
	if bad != "" {
		return wire.ClusterAnswer{}, fmt.Errorf("an answer to %q with %s", q.Do, bad)
	}
	return a, nil
}

// clipped shortens a text from outside for an error.
func clipped(s string) string { return wire.CleanText([]byte(s[:min(len(s), 64)])) }

// makesTask says whether what is asked for comes to a task.
func makesTask(do string) bool {
	return slices.Contains([]string{string(AddNodes), string(RemoveNodes), string(ReplaceNode), string(Rebalance), string(SetReplicas)}, do)
}

// over is the error of a search that its context has ended.
func (s *seeker) over(ctx context.Context) error {
	why := base.AsTimeout(ctx.Err())
	e := &client.PartialError{Total: len(s.failed)}
	for node, err := range s.failed {
		e.Failures = append(e.Failures, client.Failure{Index: -1, Node: node, Err: err})
	}
	slices.SortFunc(e.Failures, func(a, b client.Failure) int { return cmp.Compare(a.Node, b.Node) })
	switch {
	case s.unknown != nil && s.question.Changes():
		return fmt.Errorf("%w; to ask again does no harm", base.Caused(client.ErrOutcomeUnknown, s.unknown))
	case errors.Is(why, context.Canceled):
		return why
	case s.busy != "":
		return fmt.Errorf("%w: %s", client.ErrOverloaded, s.busy)
	case s.heard:
		text := "the nodes that answer know of nobody who leads the meta group: a majority of its nodes must be up"
		if nodes := s.meta(); len(nodes) > 0 {
			text += " (" + strings.Join(nodes, ", ") + ")"
		}
		return fmt.Errorf("%w: %s", client.ErrUnavailable, text)
	case len(e.Failures) > 0:
		return e
	}
	return why
}

// meta are the nodes of the meta group, by the map in force.
func (s *seeker) meta() (nodes []string) {
	m := s.rt.Map()
	if m == nil || m.Replication == nil || m.Replication.Meta == nil {
		return nil
	}
	for _, p := range m.Replication.Meta.Replicas {
		nodes = append(nodes, m.Nodes[p.Node].ID)
	}
	slices.Sort(nodes)
	return nodes
}
