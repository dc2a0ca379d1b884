package memory

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// Staging hands out registered memory of a space into which large values are READ. All
// of it together is bounded, over all devices and spaces; a put that finds none waits in
// the line of its tenant (StageLine). A space has a bound of its own below the
// node's. The bounds hold for what is kept for later use, too: where memory is made,
// what is kept is freed for it, in the same space first, then in the others.
//
// Order of locks: a space's mu, then that of the line. No goroutine holds those of two spaces.
// Memory is kept in sizes of powers of two and used again, because mapping and
// registering cost more than a READ of the same size. All methods are safe for
// concurrent use.
type Staging struct {
	kind  mem.Kind
	limit int64      // bytes in use and kept, together
	line  *StageLine // of the node: its bound, and the waiting

	mu     sync.Mutex
	sinks  []*sinks // by device
	kept   int64    // bytes in the free lists of all sinks
	closed bool

	// Guarded by line.mu.
	used    int64 // bytes handed out, in whole sizes
	waiting int   // puts that wait for memory of this pool
}

// A Sink is a device that READs into staging memory: its PD, where the memory is
// registered, and what it can do.
type Sink struct {
	PD   rdma.PD
	Attr rdma.DeviceAttr
}

// sinks is the staging memory of one device: what is registered there can be
// used by no other.
type sinks struct {
	pd     rdma.PD
	access rdma.Access
	keep   bool                   // registrations may outlive a READ
	cheap  bool                   // a registration pins nothing: one for a single READ is worth it
	free   [stageClasses][]*Stage // by class; guarded by Staging.mu
}

// A Stage is one piece of staging memory. It is its holder's until Release, and the
// holder uses it on one goroutine at a time.
type Stage struct {
	pool   *Staging
	of     *sinks
	tenant *base.Account // whose share it is counted in
	class  int
	mem    *mem.Block
	room   Room    // stands in for mem
	mr     rdma.MR // nil once sealed
	n      int     // bytes asked for
}

// A Room is memory of somebody else's that stands in for a piece of staging memory.
type Room interface {
	Bytes() []byte // of the value, exactly
	Release()      // no READ into it is outstanding
}

// Sizes are 64 KiB to 64 MiB.
const (
	stageShift   = 16
	stageClasses = 11

	// MaxStage is the size of the largest piece, which holds the largest value.
	MaxStage int64 = 1 << (stageShift + stageClasses - 1)
)

func stageClass(n int) int {
	return max(0, bits.Len(uint(max(n, 1)-1))-stageShift)
}

func stageSize(class int) int64 { return 1 << (stageShift + class) }

// NewStaging makes an empty pool. Where the sink of a READ needs REMOTE_WRITE
// (iWARP NICs) the right is given for the time of one READ only, so nothing
// that is registered is kept.
func NewStaging(devices []Sink, limit int64, kind mem.Kind, line *StageLine) *Staging {
	g := &Staging{kind: kind, limit: limit, line: line}
	for _, d := range devices {
		g.sinks = append(g.sinks, newSinks(d))
	}
	line.mu.Lock()
	line.pools = append(line.pools, g)
	line.mu.Unlock()
	return g
}

func newSinks(d Sink) *sinks {
	k := &sinks{pd: d.PD, access: rdma.AccessLocalWrite, keep: true}
	k.cheap = d.Attr.Caps&(rdma.CapDiesWithProcess|rdma.CapMapped) != 0 // it is done in software
	if d.Attr.Caps.Has(rdma.CapReadSinkWrite) {
		k.access |= rdma.AccessRemoteWrite
		k.keep, k.cheap = false, false
	}
	return k
}

// Attach makes the pool serve a device in the place of the one before it.
func (g *Staging) Attach(dev int, d Sink) {
	g.mu.Lock()
	g.sinks[dev] = newSinks(d)
	g.mu.Unlock()
}

// Detach frees what is kept for a device; what is out is freed when it is released.
func (g *Staging) Detach(dev int) {
	g.mu.Lock()
	g.sinks[dev].keep = false
	free := g.takeFreeLocked(g.sinks[dev])
	g.mu.Unlock()
	for _, s := range free {
		s.destroy()
	}
}

// takeFreeLocked takes out what is kept for a device.
func (g *Staging) takeFreeLocked(of *sinks) (free []*Stage) {
	for c := range of.free {
		for range of.free[c] {
			g.unkeepLocked(c)
		}
		free = append(free, of.free[c]...)
		of.free[c] = nil
	}
	return free
}

// Get returns memory for n bytes that device dev can READ into, waiting until
// the bounds allow it: the node's, the space's and the tenant's share. The caller
// owns it until release.
//
// room, if it is not nil, is asked for memory to READ into instead, once the bounds allow for as
// much, and where that can be had for one READ at no cost; it may say nil. A right for a peer is
// never given on it.
func (g *Staging) Get(ctx context.Context, tenant *base.Account, dev, n int, room func() Room) (*Stage, error) {
	class := stageClass(n)
	if err := g.line.reserve(ctx, g, tenant, class); err != nil {
		return nil, err
	}
	g.mu.Lock()
	of := g.sinks[dev]
	if room != nil && of.cheap {
		g.mu.Unlock()
		if s := g.around(of, tenant, class, room); s != nil {
			return s, nil
		}
		g.mu.Lock()
	}
	if k := len(of.free[class]); k > 0 {
		s := of.free[class][k-1]
		of.free[class] = of.free[class][:k-1]
		g.unkeepLocked(class)
		g.mu.Unlock()
		s.tenant, s.n = tenant, n
		return s, nil
	}
	evicted := g.evictLocked()
	g.mu.Unlock()
	for _, s := range append(evicted, g.line.evict(g)...) {
		s.destroy()
	}
	s, err := g.make(of, class, n)
	if err != nil {
		g.line.unreserve(g, tenant, class)
		return nil, err
	}
	s.tenant = tenant
	return s, nil
}

// around makes a piece of what room says; nil: it has nothing.
func (g *Staging) around(of *sinks, tenant *base.Account, class int, room func() Room) *Stage {
	r := room()
	if r == nil {
		return nil
	}
	mr, err := of.pd.RegMR(r.Bytes(), rdma.AccessLocalWrite)
	if err != nil {
		r.Release()
		return nil
	}
	return &Stage{pool: g, of: of, tenant: tenant, class: class, room: r, mr: mr, n: len(r.Bytes())}
}

// keepLocked counts a piece as kept, if the bounds allow it.
func (g *Staging) keepLocked(class int) bool {
	l := g.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.closed || g.used+g.kept > g.limit || l.used+l.kept > l.limit {
		return false
	}
	l.kept += stageSize(class)
	g.kept += stageSize(class)
	return true
}

// unkeepLocked undoes it.
func (g *Staging) unkeepLocked(class int) {
	g.kept -= stageSize(class)
	g.line.mu.Lock()
	g.line.kept -= stageSize(class)
	g.line.mu.Unlock()
}

// overLocked says whether what is in use and kept is more than a bound: the space's or
// the node's.
func (g *Staging) overLocked() bool {
	g.line.mu.Lock()
	defer g.line.mu.Unlock()
	return g.used+g.kept > g.limit || g.line.used+g.line.kept > g.line.limit
}

// evict takes kept memory out of the spaces beside g until the node's bound holds.
func (l *StageLine) evict(g *Staging) (out []*Stage) {
	l.mu.Lock()
	var pools []*Staging
	if l.used+l.kept > l.limit {
		pools = slices.Clone(l.pools)
	}
	l.mu.Unlock()
	for _, other := range pools {
		if other != g {
			other.mu.Lock()
			out = append(out, other.evictLocked()...)
			other.mu.Unlock()
		}
	}
	return out
}

// evictLocked takes kept memory of other sizes or devices out until what is in use and
// kept stays within the bound.
func (g *Staging) evictLocked() (out []*Stage) {
	for c := stageClasses - 1; c >= 0; c-- {
		for _, of := range g.sinks {
			for len(of.free[c]) > 0 && g.overLocked() {
				k := len(of.free[c]) - 1
				out = append(out, of.free[c][k])
				of.free[c] = of.free[c][:k]
				g.unkeepLocked(c)
			}
		}
	}
	return out
}

func (g *Staging) make(of *sinks, class, n int) (*Stage, error) {
	pages, err := mem.Alloc(int(stageSize(class)), mem.Options{Kind: g.kind, Tag: "staging"})
	if err != nil {
		return nil, err
	}
	mr, err := of.pd.RegMR(pages.Bytes(), of.access)
	if err != nil {
		pages.Free()
		return nil, err
	}
	return &Stage{pool: g, of: of, class: class, mem: pages, mr: mr, n: n}, nil
}

func (s *Stage) destroy() {
	if s.mr != nil && s.mr.Close() != nil {
		return // the memory stays: a NIC may still write it
	}
	if s.room != nil {
		s.room.Release()
		return
	}
	s.mem.Free()
}

// MR is its registration, the local end of a READ; nil once it is sealed.
func (s *Stage) MR() rdma.MR { return s.mr }

// Exposed says whether a peer may write the memory until it is sealed.
func (s *Stage) Exposed() bool { return s.of.access&rdma.AccessRemoteMask != 0 }

// Wanted says whether a put waits that the return of the piece would help.
func (s *Stage) Wanted() bool { return s.pool.line.wanted(s) }

// Bytes is the value.
func (s *Stage) Bytes() []byte {
	if s.room != nil {
		return s.room.Bytes()
	}
	return s.mem.Bytes()[:s.n:s.n]
}

// Seal takes away what right a peer has on the memory, and of memory that is somebody else's the
// registration. No READ into it is outstanding. From here on no peer can change what
// is checked, made durable and published, three looks at the same bytes.
func (s *Stage) Seal() error {
	if !s.Exposed() && s.room == nil {
		return nil
	}
	if err := s.mr.Close(); err != nil {
		return fmt.Errorf("server: taking back the right to write a sink: %w", err)
	}
	s.mr = nil
	return nil
}

// Release gives the memory back. No READ into it is outstanding, and the store
// is done with it. A nil stage is none.
func (s *Stage) Release() {
	if s == nil {
		return
	}
	g := s.pool
	g.mu.Lock()
	keep := s.room == nil && s.of.keep && g.keepLocked(s.class)
	if keep {
		s.of.free[s.class] = append(s.of.free[s.class], s)
	}
	g.mu.Unlock()
	if !keep {
		s.destroy()
	}
	g.line.unreserve(g, s.tenant, s.class)
}

// Close frees what is kept; what is out is freed when it is released.
func (g *Staging) Close() {
	g.mu.Lock()
	g.closed = true
	var free []*Stage
	for _, of := range g.sinks {
		free = append(free, g.takeFreeLocked(of)...)
	}
	g.mu.Unlock()
	g.line.mu.Lock()
	g.line.pools = slices.DeleteFunc(g.line.pools, func(other *Staging) bool { return other == g })
	g.line.mu.Unlock()
	for _, s := range free {
		s.destroy()
	}
}

// InUse returns the bytes handed out, and how many puts wait.
func (g *Staging) InUse() (bytes int64, waiting int) {
	g.line.mu.Lock()
	defer g.line.mu.Unlock()
	return g.used, g.waiting
}

// Line is where the puts wait that want memory of it.
func (g *Staging) Line() *StageLine { return g.line }

// Kept returns the bytes that are registered and not handed out.
func (g *Staging) Kept() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept
}
