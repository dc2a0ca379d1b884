package membership

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// publishView makes a new view if anything differs from the last one, and wakes
// the goroutines that wait for changes.
func (m *Members) publishView() {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &cluster.View{Version: 1, Cluster: m.cfg.Cluster, Self: m.cfg.NodeID, Members: []cluster.Member{m.self}}
	alive := int64(1)
	for id, p := range m.peers {
		if p.State == cluster.Suspect && now.Sub(p.suspect) > m.time.suspect {
			p.State, p.Since = cluster.Alive, now // it was refuted, or we would know
		}
		gone := p.State == cluster.Left || p.State == cluster.Dead
		if gone && now.Sub(p.Since) > m.time.forget {
			m.forgetLocked(id)
			continue
		}
		if !gone {
			alive++
		}
		member := p.Member
		if t := p.table; t != nil && t.incarnation == p.Incarnation && t.version > member.TableVersion {
			member.TableVersion, member.TableDigest, member.Regions = t.version, t.digest, t.regions
		}
		v.Members = append(v.Members, member)
	}
	m.count.Store(alive)
	slices.SortFunc(v.Members, func(a, b cluster.Member) int { return cmp.Compare(a.ID, b.ID) })
	old := m.view.Load()
	news := m.tables.news
	m.tables.news = false
	if old != nil {
		if slices.EqualFunc(old.Members, v.Members, sameMember) {
			if news { // the metadata told of it before
				close(m.next)
				m.next = make(chan struct{})
			}
			return
		}
		v.Version = old.Version + 1
		m.tell(old, v)
	}
	m.view.Store(v)
	close(m.next)
	m.next = make(chan struct{})
}

func sameMember(a, b cluster.Member) bool {
	return a.ID == b.ID && a.Role == b.Role && a.Incarnation == b.Incarnation && a.Gossip == b.Gossip &&
		a.State == b.State && a.Reads == b.Reads && a.Since.Equal(b.Since) && a.Regions == b.Regions &&
		a.TableVersion == b.TableVersion && a.TableDigest == b.TableDigest &&
		a.MapVersion == b.MapVersion && a.MapDigest == b.MapDigest && slices.Equal(a.Endpoints, b.Endpoints)
}

// tell logs which nodes came and which went.
func (m *Members) tell(old, v *cluster.View) {
	for i := range v.Members {
		p := &v.Members[i]
		was := old.Member(p.ID)
		switch {
		case p.ID == v.Self:
		case was == nil || was.State != p.State:
			level := slog.LevelInfo
			if p.State == cluster.Dead || p.State == cluster.Suspect {
				level = slog.LevelWarn
			}
			m.say(event{level: level, kind: sayState + " " + p.ID, msg: "gossip: a node is " + p.State.String(), args: []any{"node", p.ID, "at", p.Gossip, "incarnation", fmt.Sprintf("%016x", p.Incarnation)}})
		case was.Incarnation != p.Incarnation:
			m.say(event{level: slog.LevelInfo, kind: sayState + " " + p.ID, msg: "gossip: a node has restarted", args: []any{"node", p.ID, "at", p.Gossip, "incarnation", fmt.Sprintf("%016x", p.Incarnation)}})
		}
	}
}
