package server

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
)

// staging hands out registered memory into which large values are READ. All
// of it together is bounded, over all devices; who finds none waits in line. A
// space has a bound of its own below the node's, and waits for both.
// Order of locks: a space's mu, then the node's.
// Memory is kept in sizes of powers of two and used again, because mapping and
// registering cost more than a READ of the same size.
type staging struct {
	kind  memory.Kind
	limit int64    // bytes in use and kept, together
	node  *staging // of a space: the node's, whose bound holds for all spaces together

	mu      sync.Mutex
	sinks   []*sinks       // by device
	used    int64          // bytes handed out, in whole sizes
	kept    int64          // bytes in the free lists of all sinks
	waiting []*stageWaiter // oldest first
	closed  bool
}

// sinks is the staging memory of one device: what is registered there can be
// used by no other.
type sinks struct {
	pd     rdma.PD
	access rdma.Access
	keep   bool                   // registrations may outlive a READ
	free   [stageClasses][]*stage // by class; guarded by staging.mu
}

// A stage is one piece of staging memory.
type stage struct {
	pool  *staging
	of    *sinks
	class int
	mem   *memory.Block
	mr    rdma.MR // nil once sealed
	n     int     // bytes asked for
}

type stageWaiter struct {
	class int
	ready chan struct{} // closed when its bytes are counted in used
}

// Sizes are 64 KiB to 64 MiB.
const (
	stageShift   = 16
	stageClasses = 11
)

func stageClass(n int) int {
	return max(0, bits.Len(uint(max(n, 1)-1))-stageShift)
}

func stageSize(class int) int64 { return 1 << (stageShift + class) }

// newStaging makes an empty pool. Where the sink of a READ needs REMOTE_WRITE
// (iWARP NICs) the right is given for the time of one READ only, so nothing
// that is registered is kept.
func newStaging(devices []*device, limit int64, kind memory.Kind) *staging {
	g := &staging{kind: kind, limit: limit}
	for _, d := range devices {
		k := &sinks{pd: d.pd, access: rdma.AccessLocalWrite, keep: true}
		if d.attr.Caps.Has(rdma.CapReadSinkWrite) {
			k.access |= rdma.AccessRemoteWrite
			k.keep = false
		}
		g.sinks = append(g.sinks, k)
	}
	return g
}

// get returns memory for n bytes that device dev can READ into, waiting until
// the bound allows it. The caller owns it until release.
func (g *staging) get(ctx context.Context, dev, n int) (*stage, error) {
	class := stageClass(n)
	if err := g.reserve(ctx, class); err != nil {
		return nil, err
	}
	if g.node != nil {
		if err := g.node.reserve(ctx, class); err != nil {
			g.unreserveOwn(class)
			return nil, err
		}
	}
	g.mu.Lock()
	of := g.sinks[dev]
	if k := len(of.free[class]); k > 0 {
		s := of.free[class][k-1]
		of.free[class] = of.free[class][:k-1]
		g.unkeepLocked(class)
		g.mu.Unlock()
		s.n = n
		return s, nil
	}
	evicted := g.evictLocked()
	g.mu.Unlock()
	for _, s := range evicted {
		s.destroy()
	}
	s, err := g.make(of, class, n)
	if err != nil {
		g.unreserve(class)
	}
	return s, err
}

// reserve counts a size in, in turn.
func (g *staging) reserve(ctx context.Context, class int) error {
	g.mu.Lock()
	if len(g.waiting) == 0 && g.used+stageSize(class) <= g.limit {
		g.used += stageSize(class)
		g.mu.Unlock()
		return nil
	}
	w := &stageWaiter{class: class, ready: make(chan struct{})}
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, o := range g.waiting {
		if o == w {
			g.waiting = append(g.waiting[:i], g.waiting[i+1:]...)
			g.admitLocked()
			return ctx.Err()
		}
	}
	g.used -= stageSize(class) // it was let in at the same moment
	g.admitLocked()
	return ctx.Err()
}

// unreserve counts it out, with the node too.
func (g *staging) unreserve(class int) {
	g.unreserveOwn(class)
	if g.node != nil {
		g.node.unreserveOwn(class)
	}
}

// keepLocked counts a piece as kept, if the bounds allow it.
func (g *staging) keepLocked(class int) bool {
	size := stageSize(class)
	if g.closed || g.used+g.kept > g.limit {
		return false
	}
	if n := g.node; n != nil {
		n.mu.Lock()
		fits := n.used+n.kept <= n.limit
		if fits {
			n.kept += size
		}
		n.mu.Unlock()
		if !fits {
			return false
		}
	}
	g.kept += size
	return true
}

// unkeepLocked undoes it.
func (g *staging) unkeepLocked(class int) {
	g.kept -= stageSize(class)
	if n := g.node; n != nil {
		n.mu.Lock()
		n.kept -= stageSize(class)
		n.mu.Unlock()
	}
}

func (g *staging) unreserveOwn(class int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= stageSize(class)
	g.admitLocked()
}

// admitLocked lets in who waits, in order.
func (g *staging) admitLocked() {
	for len(g.waiting) > 0 && g.used+stageSize(g.waiting[0].class) <= g.limit {
		w := g.waiting[0]
		g.waiting = g.waiting[1:]
		g.used += stageSize(w.class)
		close(w.ready)
	}
}

// evictLocked takes kept memory of other sizes or devices out until what is in use and
// kept stays within the bound.
func (g *staging) evictLocked() (out []*stage) {
	for c := stageClasses - 1; c >= 0; c-- {
		for _, of := range g.sinks {
			for len(of.free[c]) > 0 && g.used+g.kept > g.limit {
				k := len(of.free[c]) - 1
				out = append(out, of.free[c][k])
				of.free[c] = of.free[c][:k]
				g.unkeepLocked(c)
			}
		}
	}
	return out
}

func (g *staging) make(of *sinks, class, n int) (*stage, error) {
	mem, err := memory.Alloc(int(stageSize(class)), memory.Options{Kind: g.kind, Tag: "staging"})
	if err != nil {
		return nil, err
	}
	mr, err := of.pd.RegMR(mem.Bytes(), of.access)
	if err != nil {
		mem.Free()
		return nil, err
	}
	return &stage{pool: g, of: of, class: class, mem: mem, mr: mr, n: n}, nil
}

func (s *stage) destroy() {
	if s.mr != nil && s.mr.Close() != nil {
		return // the memory stays: a NIC may still write it
	}
	s.mem.Free()
}

// bytes is the value.
func (s *stage) bytes() []byte { return s.mem.Bytes()[:s.n:s.n] }

// seal takes away what right a peer has on the memory. No READ into it is
// outstanding. From here on nobody can change what is checked, made durable
// and published, three looks at the same bytes.
func (s *stage) seal() error {
	if s.of.access&rdma.AccessRemoteMask == 0 {
		return nil
	}
	if err := s.mr.Close(); err != nil {
		return fmt.Errorf("server: taking back the right to write a sink: %w", err)
	}
	s.mr = nil
	return nil
}

// release gives the memory back. No READ into it is outstanding, and the store
// is done with it. A nil stage is none.
func (s *stage) release() {
	if s == nil {
		return
	}
	g := s.pool
	g.mu.Lock()
	keep := s.of.keep && g.keepLocked(s.class)
	if keep {
		s.of.free[s.class] = append(s.of.free[s.class], s)
	}
	g.mu.Unlock()
	if !keep {
		s.destroy()
	}
	g.unreserve(s.class)
}

// close frees what is kept; what is out is freed when it is released.
func (g *staging) close() {
	g.mu.Lock()
	g.closed = true
	var free []*stage
	for _, of := range g.sinks {
		for c := range of.free {
			for range of.free[c] {
				g.unkeepLocked(c)
			}
			free = append(free, of.free[c]...)
			of.free[c] = nil
		}
	}
	g.mu.Unlock()
	for _, s := range free {
		s.destroy()
	}
}

// inUse returns the bytes handed out, and how many callers wait.
func (g *staging) inUse() (bytes int64, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, len(g.waiting)
}
