package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// A Conflict is two nodes of one id that were seen at once.
type Conflict struct {
	Node        string
	Addrs       []string // of gossip; the older one first. One: of who claims the id and proves nothing
	Proved      bool     // both know the cluster's secret
	Over        bool     // the younger has said goodbye since
	First, Last time.Time

	younger uint64 // its incarnation
}

const (
	// maxConflicts bounds those that are remembered.
	maxConflicts = 64
	// conflictShown is how long two lives of one node are told of after they were
	// seen last. The younger is gone within seconds; but what it has acknowledged
	// went with it, so somebody has to learn of it.
	conflictShown = 10 * time.Minute
)

// noteConflict remembers a conflict and reports whether it is news. claimed is
// where somebody claims the id without proof; "" for two lives.
func (m *Members) noteConflict(node, claimed string, older, younger statement, witnessed bool) bool {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conflictsLocked(now)
	key := node + " " + claimed
	if claimed == "" {
		key = fmt.Sprintf("%s %x %x", node, older.Incarnation, younger.Incarnation)
	}
	c := m.conflicts[key]
	if c != nil && c.Over && !witnessed {
		return false
	}
	news := c == nil || now.Sub(c.Last) > m.time.rejoin
	if c == nil {
		if len(m.conflicts) >= maxConflicts && (claimed != "" || !m.dropUnprovedLocked()) {
			// What is not remembered would be news each time that it comes.
			return claimed == "" && witnessed
		}
		c = &Conflict{Node: node, Addrs: []string{older.addr, younger.addr}, Proved: true, First: now, younger: younger.Incarnation}
		if claimed != "" {
			c.Addrs, c.Proved = []string{claimed}, false
		}
		m.conflicts[key] = c
	}
	if news {
		c.Last = now
	}
	return news
}

// dropUnprovedLocked makes room for two lives in place of a claim that proves nothing.
func (m *Members) dropUnprovedLocked() bool {
	for key, c := range m.conflicts {
		if !c.Proved {
			delete(m.conflicts, key)
			return true
		}
	}
	return false
}

// conflictsLocked forgets conflicts that nobody has seen for long.
func (m *Members) conflictsLocked(now time.Time) {
	for key, c := range m.conflicts {
		if age := now.Sub(c.Last); age > conflictShown || !c.Proved && age > m.time.conflict {
			delete(m.conflicts, key)
		}
	}
}

// ruledLately: a verdict about the node is at most one round of joining old.
func (m *Members) ruledLately(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conflicts {
		if c.Node == node && c.Proved && time.Since(c.Last) < m.time.rejoin {
			return true
		}
	}
	return false
}

// farewell says goodbye to the other node of our id, which may be nobody's member
// yet. memberlist's own goodbye is left out: it knows names only, so the other one
// would be gone, too.
func (m *Members) farewell(ctx context.Context, bye goodbye) {
	m.mu.Lock()
	var to []memberlist.Node
	for _, c := range m.conflicts {
		if n, ok := m.reachable(c.Addrs[0], bye.node); ok && c.Proved && c.younger == bye.incarnation {
			to = append(to, n)
		}
	}
	m.mu.Unlock()
	said := make(chan struct{}, len(to))
	for _, n := range to {
		if !m.begin() {
			return
		}
		go func() {
			defer m.wg.Done()
			_ = m.list.SendReliable(&n, bye.append(nil))
			said <- struct{}{}
		}()
	}
	for range to {
		select {
		case <-said:
		case <-ctx.Done():
			return
		}
	}
}

// stoodDownLocked ends the conflicts of a life that has said goodbye.
func (m *Members) stoodDownLocked(node string, incarnation uint64) (ended bool) {
	for _, c := range m.conflicts {
		if c.Node == node && c.Proved && !c.Over && c.younger == incarnation {
			c.Over, ended = true, true
		}
	}
	return ended
}
