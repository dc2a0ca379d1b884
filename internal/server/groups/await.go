package groups

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/consensus/transport"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// Whoever stops nodes one after the other is to wait until the node before is ready (caught.go). A node that is about to end makes sure of it: it asks the other
// nodes of its groups which of their replicas have not caught up since their start, and serves on while
//
//	a group has no majority of voters without it that have caught up,
//	and has one with those that are at nodes which answer, and have not.
//
// If it ended at once, the leader of such a group, or the one that it hands the group to, would be deposed for want of a majority, and what is written meanwhile would
// have an unknown outcome. That lasts longer than it looks: a node that has just come back meets the others before its replicas take part (meet.go), and waits meetFor
// for the one that has ended meanwhile.
//
// A node that does not answer is asked again for silentFor, because gossip may be about to tell of its new address, and is not waited for then: so the last nodes of a
// cluster that ends as a whole end soon.
//
// The question, and its answer:
//
//	┌kind┬ 0 ┐        ┌group┬ … ┐
//	└1   ┴7  ┘        └4    ┴   ┘    kind: QuestionLacking; each group of which the replica here has not caught up, little endian, rising
//
// A node that refuses the question, because it is of an older version, is taken for one whose replicas have all caught up.

const (
	kindLacking = wire.QuestionLacking
	lackingHead = 8

	// awaitFor is for how long a node that is about to end waits, and at most for half of the time that it has. It is longer than meetFor: a node that has just
	// come back may wait for so long for another one that is down.
	awaitFor = meetFor + 2*time.Second
	// askFor is for how long an answer is waited for.
	askFor = time.Second
	// silentFor is for how long nodes are asked again that do not answer.
	silentFor = 100 * time.Millisecond
	// askEvery is the rest between two questions.
	askEvery = 20 * time.Millisecond
)

// appendLacking appends the question.
func appendLacking(dst []byte) []byte { return append(dst, kindLacking, 0, 0, 0, 0, 0, 0, 0) }

// asksLacking says whether another node asks it. An error: it does, in a way that this node does not know.
func asksLacking(question []byte) (bool, error) {
	switch {
	case len(question) == 0 || question[0] != kindLacking:
		return false, nil
	case !slices.Equal(question, appendLacking(nil)):
		return true, fmt.Errorf("%w: a question of kind %d has %d bytes, of which all but the first are 0, and this one has %d", cluster.ErrMalformed, kindLacking, lackingHead, len(question))
	}
	return true, nil
}

// appendGroups appends the answer.
func appendGroups(dst []byte, list []Lacking) []byte {
	for _, l := range list {
		dst = binary.LittleEndian.AppendUint32(dst, l.Group)
	}
	return dst
}

// parseGroups reads it.
func parseGroups(b []byte) (list []uint32, err error) {
	if len(b)%4 != 0 || len(b)/4 > cluster.MaxGroups {
		return nil, fmt.Errorf("%w: a list of groups in %d bytes", cluster.ErrMalformed, len(b))
	}
	for ; len(b) > 0; b = b[4:] {
		group := binary.LittleEndian.Uint32(b)
		if n := len(list); n > 0 && list[n-1] >= group {
			return nil, fmt.Errorf("%w: group %d stands behind group %d", cluster.ErrMalformed, group, list[n-1])
		}
		list = append(list, group)
	}
	return list, nil
}

// An others is a node, as it asks the other ones of its groups and answers them.
type others struct{ *Groups }

// answer answers what another node asks.
func (g others) answer(ctx context.Context, node string, question []byte) ([]byte, error) {
	switch mine, err := asksLacking(question); {
	case err != nil:
		return nil, err
	case mine:
		return appendGroups(nil, g.Lacking(g.current())), nil
	case g.env.Answer == nil:
		return nil, fmt.Errorf("%w: a question of a kind that this node does not know", cluster.ErrMalformed)
	}
	return g.env.Answer(ctx, node, question)
}

// AwaitOthers waits, at a node that is about to end, until its groups have a majority without it, if there are nodes that are about to take part again. It returns after
// awaitFor at most, and after half of the time that ctx leaves.
func AwaitOthers(ctx context.Context, g *Groups) {
	if g == nil {
		return
	}
	limit := awaitFor
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if a := until(ctx, (others{g}).look); len(a.late) > 0 {
		g.env.Log.Warn(base.LogAlways, "this node ends although a group has no majority without it: replicas at other nodes have not caught up since their start; stop a node when all others are ready (/readyz)",
			"group", a.group, "at", a.late, "after", limit)
	}
}

// An awaiting says for what a node that is about to end had better wait.
type awaiting struct {
	group consensus.GroupID
	late  []string // the nodes at which its replicas have not caught up, and with which it has a majority; nil: that of no group is waited for
	short bool     // if late is nil: so few nodes answer that some group has no majority with them, which others that have just come back could change
}

// until looks until nothing is to be waited for, or ctx ends, and returns what was seen last: what a look sees that ctx has ended does not count, because nobody has
// answered it.
func until(ctx context.Context, look func(context.Context) awaiting) (last awaiting) {
	for began := time.Now(); ; {
		a := look(ctx)
		if ctx.Err() != nil {
			return last
		}
		last = a
		if len(a.late) == 0 && (!a.short || time.Since(began) >= silentFor) {
			return a
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return a
		}
	}
}

// look asks the other nodes of this node's groups.
func (g others) look(ctx context.Context) (a awaiting) {
	var own []consensus.Status
	says := make(map[string][]uint32)
	for _, c := range g.mapped() {
		if st, err := g.engine.Status(c.ID); err == nil {
			own = append(own, st)
			for _, v := range st.Config.Voters {
				if v.ID != st.ID {
					says[v.Node] = nil
				}
			}
		}
	}
	g.ask(ctx, says)
	for i := range own {
		one := awaits(&own[i], says)
		if len(one.late) > 0 {
			return one
		}
		a.short = a.short || one.short
	}
	return a
}

// ask asks nodes, the keys of says, which of their replicas have not caught up. Those that do not answer are taken out.
func (g others) ask(ctx context.Context, says map[string][]uint32) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, node := range slices.Collect(maps.Keys(says)) {
		wg.Go(func() {
			b, err := g.link.Ask(ctx, node, appendLacking(nil))
			if _, lost := errors.AsType[*transport.LostError](err); lost { // it was the way to the process that has ended
				b, err = g.link.Ask(ctx, node, appendLacking(nil))
			}
			list, bad := parseGroups(b)
			_, refused := errors.AsType[*transport.AskError](err)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && bad == nil:
				says[node] = list
			case err != nil && !refused && !errors.Is(err, transport.ErrOlder):
				delete(says, node)
			}
		})
	}
	wg.Wait()
}

// awaits is what a group lacks without this node, of whose replica the status is st. says has the groups that other nodes lack; who is not in it does not answer.
func awaits(st *consensus.Status, says map[string][]uint32) (a awaiting) {
	if st.Fenced != nil || !st.Config.Voter(st.ID) {
		return a
	}
	a.group = st.Group
	caught, most := 0, st.Config.Majority()
	for _, v := range st.Config.Voters {
		lacks, answers := says[v.Node]
		switch {
		case v.ID == st.ID || !answers:
		case slices.Contains(lacks, uint32(st.Group)):
			a.late = append(a.late, v.Node)
		default:
			caught++
		}
	}
	if few := caught+len(a.late) < most; few || caught >= most {
		a.late = nil
		a.short = few && len(st.Config.Voters) > most // else no others are a majority
	}
	return a
}
