package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/server/base"
)

// A StageLine is where the large puts of a node wait for staging memory. Three
// bounds hold at once: the node's, that of the space (whose memory it is), and
// the tenant's share of the node's. Each tenant has a line of its own, and the
// lines take turns:
//
//   - a put that waits for its tenant's share, or behind another put of its tenant, keeps
//     no other tenant waiting;
//   - a put whose turn it is and that finds too little in the node, or in the space, is not
//     passed by others that want the same, because a large value would wait for ever
//     behind small ones.
//
// What is counted is the size that is really taken, a power of two, not the bytes
// that a client has announced.
type StageLine struct {
	limit int64                      // bytes in use, of all spaces together
	share func() int64               // bytes in use of one tenant
	hit   func(tenant *base.Account) // one had to wait for its share

	mu      sync.Mutex
	used    int64 // bytes handed out, in whole sizes
	kept    int64 // bytes in the free lists of all spaces
	owners  map[*base.Account]*stageOwner
	turns   []*stageOwner // those with a line, whose turn is next first
	waiting int           // puts in all lines
	pools   []*Staging    // of all spaces
}

// A stageOwner is a tenant that has staging memory, or waits for it.
type stageOwner struct {
	tenant *base.Account
	used   int64
	line   []*stageWaiter // oldest first
}

type stageWaiter struct {
	class int
	pool  *Staging
	ready chan struct{} // closed when its bytes are counted in used
}

// NewStageLine makes the line of a node. share is how many bytes one tenant may have in
// use, asked with the line's lock held; hit is told of each that had to wait for its share.
func NewStageLine(limit int64, share func() int64, hit func(*base.Account)) *StageLine {
	return &StageLine{limit: limit, share: share, hit: hit, owners: make(map[*base.Account]*stageOwner)}
}

// reserve counts a size in, in turn.
func (l *StageLine) reserve(ctx context.Context, g *Staging, tenant *base.Account, class int) error {
	l.mu.Lock()
	o := l.owners[tenant]
	if o == nil {
		o = &stageOwner{tenant: tenant}
		l.owners[tenant] = o
	}
	mine := l.mineFits(o, class)
	if l.waiting == 0 && mine && g.used+stageSize(class) <= g.limit && l.used+stageSize(class) <= l.limit {
		l.count(o, g, stageSize(class))
		l.mu.Unlock()
		return nil
	}
	w := &stageWaiter{class: class, pool: g, ready: make(chan struct{})}
	if len(o.line) == 0 {
		l.turns = append(l.turns, o)
	}
	o.line = append(o.line, w)
	l.waiting++
	g.waiting++
	l.admit()
	l.mu.Unlock()
	if !mine {
		l.hit(tenant)
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(o.line, w); i >= 0 {
		l.leave(o, i)
	} else {
		l.count(o, g, -stageSize(class)) // it was let in at the same moment
	}
	l.admit()
	return ctx.Err()
}

// unreserve counts a size out.
func (l *StageLine) unreserve(g *Staging, tenant *base.Account, class int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(l.owners[tenant], g, -stageSize(class))
	l.admit()
}

// admit lets in the puts that wait, tenant by tenant. mu is held.
func (l *StageLine) admit() {
	for l.admitOne() {
	}
}

func (l *StageLine) admitOne() bool {
	var full []*Staging // spaces in which the turn of a put has come
	for i, o := range l.turns {
		w := o.line[0]
		size := stageSize(w.class)
		switch {
		case !l.mineFits(o, w.class) || slices.Contains(full, w.pool):
			continue
		case w.pool.used+size > w.pool.limit:
			full = append(full, w.pool)
			continue
		case l.used+size > l.limit:
			return false
		}
		l.turns = append(slices.Delete(l.turns, i, i+1), o) // the others first
		l.leave(o, 0)
		l.count(o, w.pool, size)
		close(w.ready)
		return true
	}
	return false
}

// mineFits says whether a size is within the tenant's share. mu is held.
func (l *StageLine) mineFits(o *stageOwner, class int) bool {
	return o.used+stageSize(class) <= l.share()
}

// leave takes a waiter out of its line. mu is held.
func (l *StageLine) leave(o *stageOwner, i int) {
	l.waiting--
	o.line[i].pool.waiting--
	if o.line = slices.Delete(o.line, i, i+1); len(o.line) == 0 {
		l.turns = slices.DeleteFunc(l.turns, func(other *stageOwner) bool { return other == o })
		l.forget(o)
	}
}

// count counts bytes in, or out. mu is held.
func (l *StageLine) count(o *stageOwner, g *Staging, n int64) {
	l.used += n
	g.used += n
	o.used += n
	l.owners[o.tenant] = o
	l.forget(o)
}

// forget forgets a tenant that has nothing and wants nothing. mu is held.
func (l *StageLine) forget(o *stageOwner) {
	if o.used == 0 && len(o.line) == 0 {
		delete(l.owners, o.tenant)
	}
}

// wanted says whether a put waits that the return of a piece would help: it is of the
// same tenant, or its tenant is within its share and it waits for the same space, or for the
// node's memory.
func (l *StageLine) wanted(s *Stage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.turns {
		w := o.line[0]
		if o.tenant == s.tenant || l.mineFits(o, w.class) && (w.pool == s.pool || l.used+stageSize(w.class) > l.limit) {
			return true
		}
	}
	return false
}

// InUse returns the bytes handed out in all spaces, and how many puts wait.
func (l *StageLine) InUse() (bytes int64, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used, l.waiting
}

// Most is what the tenant with the most has in use.
func (l *StageLine) Most() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.owners {
		n = max(n, o.used)
	}
	return n
}
