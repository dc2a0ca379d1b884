package server

import (
	"context"
	"slices"
	"sync"
)

// A stageLine is where the large puts of a node wait for staging memory. Three
// bounds hold at once: the node's, that of the space (whose memory it is), and
// the tenant's share of the node's. Each tenant has a line of his own, and the
// lines take turns:
//
//   - who waits for his own share, or behind another of his own puts, keeps nobody
//     else waiting;
//   - whose turn it is and who finds too little in the node, or in the space, is not
//     passed by others who want the same: a large value would wait for ever behind
//     small ones.
//
// What is counted is the size that is really taken, a power of two, not the bytes
// that a client has announced.
type stageLine struct {
	limit int64               // bytes in use, of all spaces together
	share func() int64        // bytes in use of one tenant
	hit   func(tenant *login) // one had to wait for his share

	mu      sync.Mutex
	used    int64 // bytes handed out, in whole sizes
	kept    int64 // bytes in the free lists of all spaces
	owners  map[*login]*stageOwner
	turns   []*stageOwner // those with a line, whose turn is next first
	waiting int           // puts in all lines
	pools   []*staging    // of all spaces
}

// A stageOwner is a tenant who has staging memory, or waits for it.
type stageOwner struct {
	tenant *login
	used   int64
	line   []*stageWaiter // oldest first
}

type stageWaiter struct {
	class int
	pool  *staging
	ready chan struct{} // closed when its bytes are counted in used
}

// reserve counts a size in, in turn.
func (l *stageLine) reserve(ctx context.Context, g *staging, tenant *login, class int) error {
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
func (l *stageLine) unreserve(g *staging, tenant *login, class int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(l.owners[tenant], g, -stageSize(class))
	l.admit()
}

// admit lets in who waits, tenant by tenant. mu is held.
func (l *stageLine) admit() {
	for l.admitOne() {
	}
}

func (l *stageLine) admitOne() bool {
	var full []*staging // spaces in which somebody's turn has come
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
func (l *stageLine) mineFits(o *stageOwner, class int) bool {
	return o.used+stageSize(class) <= l.share()
}

// leave takes a waiter out of his line. mu is held.
func (l *stageLine) leave(o *stageOwner, i int) {
	l.waiting--
	o.line[i].pool.waiting--
	if o.line = slices.Delete(o.line, i, i+1); len(o.line) == 0 {
		l.turns = slices.DeleteFunc(l.turns, func(other *stageOwner) bool { return other == o })
		l.forget(o)
	}
}

// count counts bytes in, or out. mu is held.
func (l *stageLine) count(o *stageOwner, g *staging, n int64) {
	l.used += n
	g.used += n
	o.used += n
	l.owners[o.tenant] = o
	l.forget(o)
}

// forget forgets a tenant who has nothing and wants nothing. mu is held.
func (l *stageLine) forget(o *stageOwner) {
	if o.used == 0 && len(o.line) == 0 {
		delete(l.owners, o.tenant)
	}
}

// wanted says whether somebody waits whom the return of a piece would help: he is
// of the same tenant, or is within his share and waits for the same space, or for the
// node's memory.
func (l *stageLine) wanted(s *stage) bool {
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

// most is what the tenant with the most has in use.
func (l *stageLine) most() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.owners {
		n = max(n, o.used)
	}
	return n
}

// shareParts is into how many parts a bound is divided where tenants share it:
// one of them may have one part.
const shareParts = 4

// stagingShare is how much staging memory one tenant may have in use: all where
// nobody else can come, else a part that holds the largest value.
func (srv *Server) stagingShare() int64 {
	all := srv.root.cfg.StagingBytes
	if srv.root.logins.alone() {
		return all
	}
	return max(all/shareParts, stageSize(stageClasses-1))
}

// openStaging makes the staging memory of the node, or of a space, which waits in
// the node's line.
func (srv *Server) openStaging() {
	main := srv.root == srv
	line := &stageLine{
		limit: srv.cfg.StagingBytes, share: srv.stagingShare, owners: make(map[*login]*stageOwner),
		hit: func(tenant *login) { srv.loginHit(tenant, limitLoginStaging) },
	}
	if !main {
		line = srv.root.staging.line
	}
	srv.staging = newStaging(srv.devices, srv.cfg.StagingBytes, srv.cfg.MemoryKind, line)
	srv.staging.main = main
}
