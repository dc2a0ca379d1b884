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
	Addrs       []string // of gossip; the older one first. If there is one only, it is the address of a node that claims the id and proves nothing
	Proved      bool     // both know the cluster's secret
	Over        bool     // the younger has said goodbye since
	First, Last time.Time

	younger uint64 // its incarnation
}

const (
	// maxConflicts bounds those that are remembered.
	maxConflicts = 64
	// conflictShown is how long two lives of one node are reported after they were
	// seen last. The younger one ends within seconds, but writes that it has
	// acknowledged are lost with it, so an operator has to learn of it.
	conflictShown = 10 * time.Minute
)

// noteConflict records a conflict and reports whether it is new. claimed is the
// address at which the id is claimed without proof; it is "" for two lives.
func (r *referee) noteConflict(node, claimed string, older, younger statement, witnessed bool) bool {
	now := time.Now()
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.conflictsLocked(now)
	key := node + " " + claimed
	if claimed == "" {
		key = fmt.Sprintf("%s %x %x", node, older.Incarnation, younger.Incarnation)
	}
	c := r.conflicts[key]
	if c != nil && c.Over && !witnessed {
		return false
	}
	news := c == nil || now.Sub(c.Last) > r.m.time.rejoin
	if c == nil {
		if len(r.conflicts) >= maxConflicts && (claimed != "" || !r.dropUnprovedLocked()) {
			// A conflict that is not remembered would be news each time that it comes.
			return claimed == "" && witnessed
		}
		c = &Conflict{Node: node, Addrs: []string{older.addr, younger.addr}, Proved: true, First: now, younger: younger.Incarnation}
		if claimed != "" {
			c.Addrs, c.Proved = []string{claimed}, false
		}
		r.conflicts[key] = c
	}
	if news {
		c.Last = now
	}
	return news
}

// dropUnprovedLocked makes room for two lives by dropping a claim that proves nothing.
func (r *referee) dropUnprovedLocked() bool {
	for key, c := range r.conflicts {
		if !c.Proved {
			delete(r.conflicts, key)
			return true
		}
	}
	return false
}

// conflictsLocked drops conflicts that were last seen long ago.
func (r *referee) conflictsLocked(now time.Time) {
	for key, c := range r.conflicts {
		if age := now.Sub(c.Last); age > conflictShown || !c.Proved && age > r.m.time.conflict {
			delete(r.conflicts, key)
		}
	}
}

// ruledLately reports whether there is a verdict about the node that is at most one
// round of joining old.
func (r *referee) ruledLately(node string) bool {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	for _, c := range r.conflicts {
		if c.Node == node && c.Proved && time.Since(c.Last) < r.m.time.rejoin {
			return true
		}
	}
	return false
}

// farewell sends a goodbye to the other node of our id, which may be no member yet.
// memberlist's own goodbye is left out: it names nodes only, so the other node would
// be taken for gone, too.
func (r *referee) farewell(ctx context.Context, bye goodbye) {
	r.m.mu.Lock()
	var to []memberlist.Node
	for _, c := range r.conflicts {
		if n, ok := r.m.reachable(c.Addrs[0], bye.node); ok && c.Proved && c.younger == bye.incarnation {
			to = append(to, n)
		}
	}
	r.m.mu.Unlock()
	said := make(chan struct{}, len(to))
	for _, n := range to {
		if !r.m.begin() {
			return
		}
		go func() {
			defer r.m.wg.Done()
			_ = r.m.list.SendReliable(&n, bye.append(nil))
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
func (r *referee) stoodDownLocked(node string, incarnation uint64) (ended bool) {
	for _, c := range r.conflicts {
		if c.Node == node && c.Proved && !c.Over && c.younger == incarnation {
			c.Over, ended = true, true
		}
	}
	return ended
}
