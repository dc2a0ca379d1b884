package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What a session is told of its server's replicas, by which READs of replicated keys are believed (layout.Cell). It is asked for beside the calls,
// which go by SEND until it is there. It may be hours old: a get READs the cells, and so learns whether it still holds.

// A GroupInfo is what a server has said of its replica of a group. It is immutable.
type GroupInfo struct {
	Cell   layout.Place
	Term   uint64 // in which the replica leads; 0: it does not
	Config uint64
	Voters []string // nodes
}

// Groups are the replicas of a session's server, as far as they were asked for. Safe for concurrent use.
type Groups struct {
	s    *Session
	list atomic.Pointer[map[uint32]*GroupInfo] // replaced as a whole, under mu; nil: none yet

	mu     sync.Mutex // a leaf
	wanted map[uint32]bool
	asked  map[uint32]int64 // when, by the coarse clock
	asking bool

	slowUntil atomic.Int64 // coarse time (WasSlow)
}

// groupInfoRest is the shortest time between two questions for the same group.
const groupInfoRest = 20 * time.Millisecond

// doubtRest is the shortest time between a question for a group and another one because of Doubt. As long as no other voter can be reached it asks again
// and again, at each server that leads a group.
const doubtRest = time.Second

// Of is what is known of the server's replica of a group; nil: it is not known, and is being asked for.
func (g *Groups) Of(group uint32) *GroupInfo {
	if list := g.list.Load(); list != nil {
		if i := (*list)[group]; i != nil {
			return i
		}
	}
	g.Seek(group)
	return nil
}

// Seek has the server asked for a group, unless that was done a moment ago. It does not wait.
func (g *Groups) Seek(group uint32) {
	g.seek(group, groupInfoRest)
}

// Doubt has the server asked again for a group that it leads, unless that was done within doubtRest. It does not wait; what is known is believed until then.
//
// It is for gets that find too few of the voters to vouch for what they READ. Voters that have left the group may be why, and such a get READs no cell that would
// show it: without this question each later get would look for the same voters, and go by SEND, for as long as the session lasts.
func (g *Groups) Doubt(group uint32) { g.seek(group, doubtRest) }

func (g *Groups) seek(group uint32, rest time.Duration) {
	s := g.s
	if g.want(group, s.Clock.Coarse(), rest) {
		s.Owner.Go(g.ask) // no lock is held
	}
}

// want notes that a group is to be asked for, if that was not done within rest, and reports whether somebody has to begin.
func (g *Groups) want(group uint32, now int64, rest time.Duration) (begin bool) {
	s := g.s
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, ok := g.asked[group]; ok && now-at < int64(rest) || !s.Words || s.IsDown() {
		return false
	}
	if g.asked == nil {
		g.asked, g.wanted = map[uint32]int64{}, map[uint32]bool{}
	}
	g.asked[group] = now
	g.wanted[group] = true
	begin = !g.asking
	g.asking = true
	return begin
}

// Forget drops what is known of a group, if it is i, and has it asked for.
func (g *Groups) Forget(group uint32, i *GroupInfo) {
	g.mu.Lock()
	if list := g.list.Load(); list != nil && (*list)[group] == i {
		g.setLocked(group, nil)
	}
	g.mu.Unlock()
	g.Seek(group)
}

func (g *Groups) setLocked(group uint32, i *GroupInfo) {
	list := map[uint32]*GroupInfo{}
	if old := g.list.Load(); old != nil {
		for id, i := range *old {
			list[id] = i
		}
	}
	if list[group] = i; i == nil {
		delete(list, group)
	}
	g.list.Store(&list)
}

// next is a group that is to be asked for; false: there is none, and nobody asks any more.
func (g *Groups) next() (group uint32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for group = range g.wanted {
		delete(g.wanted, group)
		return group, true
	}
	g.asking = false
	return 0, false
}

// ask asks for the groups that are wanted, one after the other.
func (g *Groups) ask(ctx context.Context) {
	s := g.s
	for {
		group, ok := g.next()
		if !ok {
			return
		}
		within, cancel := context.WithTimeout(ctx, s.Config.Timeout)
		p := s.Clock.Unlimited(within)
		i, err := fetchGroup(s, &p, group)
		cancel()
		if err != nil { // it has no replica yet, or is away: calls go by SEND, and ask again
			s.Log.Debug("what a server has of a group is not known", "server", s.Addr, "group", group, "err", err)
			continue
		}
		g.mu.Lock()
		g.setLocked(group, i)
		g.mu.Unlock()
	}
}

// fetchGroup asks the server for its replica of a group.
func fetchGroup(s *Session, p *base.Limit, group uint32) (*GroupInfo, error) {
	sl, err := s.Open(p)
	if err != nil {
		return nil, err
	}
	r, err := sl.Call(p, wire.AppendGroupInfoRequest(sl.Buf[:0], sl.ID(), wire.GroupInfoRequest{Group: group}))
	if err != nil {
		return nil, err
	}
	m, err := wire.ParseGroupInfo(r.Body)
	if err != nil {
		return nil, r.Malformed(err)
	}
	if m.Group != group || m.Cell > uint64(layout.MaxPlace) {
		return nil, r.Malformed(fmt.Errorf("group %d with its cell at %#x, asked for group %d", m.Group, m.Cell, group))
	}
	i := &GroupInfo{Cell: layout.Place(m.Cell), Term: m.Term, Config: m.Config}
	for node := range m.Voters {
		i.Voters = append(i.Voters, string(node))
	}
	r.Done()
	return i, nil
}

// Slow reports whether a READ of the server went unanswered lately, so that others are READ rather.
func (g *Groups) Slow() bool { return g.s.Clock.Coarse() < g.slowUntil.Load() }

// WasSlow notes such a READ.
func (g *Groups) WasSlow() { g.slowUntil.Store(g.s.Clock.Coarse() + int64(slowFor)) }

// slowFor is for how long others are READ rather.
const slowFor = 250 * time.Millisecond
