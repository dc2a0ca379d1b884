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

// groups are the replicas of a session's server, as far as they were asked for.
type groups struct {
	list atomic.Pointer[map[uint32]*GroupInfo] // replaced as a whole, under mu; nil: none yet

	mu     sync.Mutex // a leaf
	wanted map[uint32]bool
	asked  map[uint32]int64 // when, by the coarse clock
	asking bool
}

// groupInfoRest is the shortest time between two questions for the same group.
const groupInfoRest = 20 * time.Millisecond

// GroupOf is what is known of the server's replica of a group; nil: it is not known, and is being asked for.
func (s *Session) GroupOf(group uint32) *GroupInfo {
	if list := s.groups.list.Load(); list != nil {
		if i := (*list)[group]; i != nil {
			return i
		}
	}
	s.SeekGroup(group)
	return nil
}

// SeekGroup has the server asked for a group, unless that was done a moment ago. It does not wait.
func (s *Session) SeekGroup(group uint32) {
	g := &s.groups
	now := s.Clock.Coarse()
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, ok := g.asked[group]; ok && now-at < int64(groupInfoRest) || !s.Words || s.IsDown() {
		return
	}
	if g.asked == nil {
		g.asked, g.wanted = map[uint32]int64{}, map[uint32]bool{}
	}
	g.asked[group] = now
	g.wanted[group] = true
	if !g.asking {
		g.asking = true
		s.Owner.Go(s.askGroups)
	}
}

// ForgetGroup drops what is known of a group, if it is i, and has it asked for.
func (s *Session) ForgetGroup(group uint32, i *GroupInfo) {
	g := &s.groups
	g.mu.Lock()
	if list := g.list.Load(); list != nil && (*list)[group] == i {
		g.setLocked(group, nil)
	}
	g.mu.Unlock()
	s.SeekGroup(group)
}

func (g *groups) setLocked(group uint32, i *GroupInfo) {
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
func (g *groups) next() (group uint32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for group = range g.wanted {
		delete(g.wanted, group)
		return group, true
	}
	g.asking = false
	return 0, false
}

// askGroups asks for the groups that are wanted, one after the other.
func (s *Session) askGroups(ctx context.Context) {
	for {
		group, ok := s.groups.next()
		if !ok {
			return
		}
		within, cancel := context.WithTimeout(ctx, s.Config.Timeout)
		p := s.Clock.Unlimited(within)
		i, err := s.fetchGroup(&p, group)
		cancel()
		if err != nil { // it has no replica yet, or is away: calls go by SEND, and ask again
			s.Log.Debug("what a server has of a group is not known", "server", s.Addr, "group", group, "err", err)
			continue
		}
		g := &s.groups
		g.mu.Lock()
		g.setLocked(group, i)
		g.mu.Unlock()
	}
}

// fetchGroup asks the server for its replica of a group.
func (s *Session) fetchGroup(p *base.Limit, group uint32) (*GroupInfo, error) {
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
func (s *Session) Slow() bool { return s.Clock.Coarse() < s.slowUntil.Load() }

// WasSlow notes such a READ.
func (s *Session) WasSlow() { s.slowUntil.Store(s.Clock.Coarse() + int64(slowFor)) }

// slowFor is for how long others are READ rather.
const slowFor = 250 * time.Millisecond
