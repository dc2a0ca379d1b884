package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions is the memory that the store's data lives in: what region.Memory
// asks for, over one PD per device. Regions are registered REMOTE_READ and
// nothing else: no MR of theirs ever lets a peer write. All methods are safe for
// concurrent use.
//
// What the store itself does not know stands here too: under which address
// and rkey a device answers for a region.
type Regions struct {
	cfg RegionsConfig
	opt mem.Options // what the configuration says of the pages, but for their kind
	log *base.Log

	// byID is copied on every change, so that a View can be answered by a
	// poller without waiting for an allocation under way.
	byID atomic.Pointer[map[uint32]*slab]
	// mu serialises changes of byID and pds. It is held while memory is
	// registered: nothing but such changes waits for it.
	mu  sync.Mutex
	pds []rdma.PD // by device; nil where the device was taken out
	// spare says which devices the node may go on without, until Settle; lost
	// is why it does.
	spare []bool
	lost  []error

	// old has the registrations that renew has replaced and that are not dropped
	// yet, and those that could not be closed, by region. Guarded by mu.
	old map[uint32][]oldMR

	gathering gathering
	onChange  atomic.Pointer[func()]
}

// An oldMR is a registration that no table names any more.
type oldMR struct {
	dev int
	mr  rdma.MR
}

// A slab is one region: its memory and its registration with each device.
// Immutable.
type slab struct {
	kind layout.RegionKind
	mem  *mem.Block
	mrs  []rdma.MR // by device; nil where the device was taken out
}

// RegionsConfig says what memory regions are taken from.
type RegionsConfig struct {
	Kind     mem.Kind
	Huge     HugePages
	NUMANode *int // nil: any
	Prefault bool // take the pages from the machine before a region is used
}

// NewRegions makes the memory of a store over these devices; there are no regions yet.
func NewRegions(cfg RegionsConfig, log *base.Log, pds ...rdma.PD) *Regions {
	r := &Regions{cfg: cfg, pds: pds, lost: make([]error, len(pds)), log: log}
	r.opt = mem.Options{Node: cfg.NUMANode, Prefault: cfg.Prefault}
	for _, pd := range pds {
		r.opt.Shared = r.opt.Shared || pd != nil && pd.Device().Attr().Caps.Has(rdma.CapMapped)
	}
	r.old = make(map[uint32][]oldMR)
	r.gathering.asked = make(chan struct{}, 1)
	r.byID.Store(&map[uint32]*slab{})
	return r
}

// Alloc implements region.Memory.
func (r *Regions) Alloc(id uint32, kind layout.RegionKind, size int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (*r.byID.Load())[id] != nil {
		panic(fmt.Sprintf("server: region %d allocated twice", id))
	}
	begun := time.Now()
	pages, err := r.alloc(size, kind)
	if err != nil {
		r.log.Warn(base.LogMemory, "no memory for a region", "region", id, "kind", kind.String(), "bytes", size, "err", err)
		return nil, err
	}
	return r.registerLocked(id, kind, pages, begun)
}

// register makes a region of memory that there is, which it frees if that fails.
func (r *Regions) register(id uint32, kind layout.RegionKind, pages *mem.Block) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.registerLocked(id, kind, pages, time.Now())
}

func (r *Regions) registerLocked(id uint32, kind layout.RegionKind, pages *mem.Block, begun time.Time) (_ []byte, err error) {
	size := pages.Size()
	s := &slab{kind: kind, mem: pages}
	for dev, pd := range r.pds {
		var mr rdma.MR
		if pd != nil {
			if mr, err = pd.RegMR(pages.Bytes(), rdma.AccessRemoteRead); err != nil {
				attr := pd.Device().Attr()
				err = fmt.Errorf("server: registering region %d (%v, %d bytes) with %s/%s: %w",
					id, kind, size, attr.Fabric, pd.Device().Name(), err)
				r.log.Warn(base.LogMemory, "a region cannot be registered", "err", err)
				if r.giveUpLocked(dev, err) {
					s.mrs = append(s.mrs, nil)
					continue
				}
				return nil, errors.Join(err, s.close())
			}
		}
		s.mrs = append(s.mrs, mr)
	}
	r.change(func(m map[uint32]*slab) { m[id] = s })
	r.gathering.ask() // the one before it is full
	r.log.Debug("region registered", "region", id, "kind", kind.String(), "bytes", size, "memory", pages.Kind().String(),
		"devices", len(s.mrs), "took", time.Since(begun))
	return pages.Bytes(), nil
}

// prefaultLines is the least time between two lines about a large region whose
// pages are being taken.
const prefaultLines = time.Second

// alloc takes memory of the kind that the configuration asks for.
func (r *Regions) alloc(size int, kind layout.RegionKind) (*mem.Block, error) {
	opt := r.opt
	opt.Kind, opt.Tag = r.cfg.Kind, kind.String()
	told := time.Now()
	opt.OnPrefault = func(taken int) {
		if time.Since(told) >= prefaultLines {
			told = time.Now()
			r.log.Info("taking the pages of a region", "kind", kind.String(), "bytes", taken, "of", size)
		}
	}
	if r.cfg.Huge == HugeOff || r.cfg.Huge == HugeAuto {
		return r.near(size, opt)
	}
	opt.Kind = mem.Huge
	pages, err := r.near(size, opt)
	if r.cfg.Huge == HugeTry && (errors.Is(err, mem.ErrNoHugePages) || errors.Is(err, mem.ErrNotSupported)) {
		r.log.Warn(base.LogMemory, "a region gets normal pages instead of huge ones, transparent ones where the kernel has them", "bytes", size, "err", err)
		opt.Kind, opt.Transparent = r.cfg.Kind, true
		return r.near(size, opt)
	}
	return pages, err
}

// near takes memory from the NUMA node of the configuration, or from any where the
// process may not choose, as in many containers: the node is chosen for speed, and its
// memory is no condition for a region.
func (r *Regions) near(size int, opt mem.Options) (*mem.Block, error) {
	pages, err := mem.Alloc(size, opt)
	if opt.Node == nil || !errors.Is(err, mem.ErrNotSupported) {
		return pages, err
	}
	node := *opt.Node
	opt.Node = nil
	why := err
	if pages, err = mem.Alloc(size, opt); err == nil {
		r.log.Warn(base.LogMemory, "a region gets memory of any NUMA node", "wanted", node, "bytes", size, "err", why)
	}
	return pages, err
}

// Free implements region.Memory: when it returns, no peer reads the region
// any more and its memory is gone.
func (r *Regions) Free(id uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := (*r.byID.Load())[id]
	if s == nil {
		return fmt.Errorf("server: region %d is not registered", id)
	}
	r.change(func(m map[uint32]*slab) { delete(m, id) })
	if err := r.dropOldLocked(id); err != nil {
		return errors.Join(err, s.deregister()) // the memory stays
	}
	return s.close()
}

// change replaces byID by a changed copy. r.mu is held.
func (r *Regions) change(f func(map[uint32]*slab)) {
	old := *r.byID.Load()
	m := make(map[uint32]*slab, len(old)+1)
	for k, v := range old {
		m[k] = v
	}
	f(m)
	r.byID.Store(&m)
}

// close deregisters with every device, then frees.
func (s *slab) close() error {
	if err := s.deregister(); err != nil {
		return err // the memory stays: a NIC may still read it
	}
	return s.mem.Free()
}

func (s *slab) deregister() error {
	var errs []error
	for _, mr := range s.mrs {
		if mr == nil {
			continue
		}
		if err := mr.Close(); err != nil {
			errs = append(errs, fmt.Errorf("server: deregistering %d bytes of %v: %w", s.mem.Size(), s.kind, err))
		}
	}
	return errors.Join(errs...)
}

// MaySpare says which devices the node can do without: one with which a region
// cannot be registered (locked memory is short, say) is taken out, as long as
// no client has been told of it.
func (r *Regions) MaySpare(spare []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = spare
}

// Settle ends what MaySpare began: clients are about to come. It returns why devices
// were taken out; nil for those that were not.
func (r *Regions) Settle() (lost []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = nil
	return r.lost
}

// giveUpLocked takes a device out if the node can do without it.
func (r *Regions) giveUpLocked(dev int, err error) bool {
	if r.spare == nil || !r.spare[dev] || r.detachLocked(dev) != nil {
		return false
	}
	r.lost[dev] = err
	return true
}

// Detach takes a device out: no region is registered with it any more, and none
// will be. A registration that cannot be closed keeps the memory of its region.
func (r *Regions) Detach(dev int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.detachLocked(dev)
}

func (r *Regions) detachLocked(dev int) error {
	r.pds[dev] = nil
	r.change(func(m map[uint32]*slab) {
		for id, s := range m {
			if mr := s.mrs[dev]; mr != nil {
				m[id] = s.with(dev, nil)
				r.old[id] = append(r.old[id], oldMR{dev, mr})
			}
		}
	})
	var errs []error
	for id := range r.old {
		errs = append(errs, r.closeOldLocked(id, func(o oldMR) bool { return o.dev == dev }))
	}
	return errors.Join(errs...)
}

// Attach puts a device in that was taken out and is back: every region is
// registered with it, and those that come. After an error, or when ctx ends, none is.
func (r *Regions) Attach(ctx context.Context, dev int, pd rdma.PD) error {
	r.mu.Lock()
	r.pds[dev] = pd
	ids := slices.Collect(maps.Keys(*r.byID.Load()))
	r.mu.Unlock()
	for _, id := range ids {
		err := ctx.Err()
		if err == nil {
			err = r.join(id, dev)
		}
		if err != nil {
			return errors.Join(err, r.Detach(dev))
		}
	}
	return nil
}

// join registers one region, if it is still there and was not registered meanwhile.
func (r *Regions) join(id uint32, dev int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := (*r.byID.Load())[id]
	if s == nil || s.mrs[dev] != nil {
		return nil
	}
	mr, err := r.pds[dev].RegMR(s.mem.Bytes(), rdma.AccessRemoteRead)
	if err != nil {
		return fmt.Errorf("server: registering region %d (%v, %d bytes) with the device that is back: %w", id, s.kind, s.mem.Size(), err)
	}
	r.change(func(m map[uint32]*slab) { m[id] = s.with(dev, mr) })
	return nil
}

// with is the slab with another registration with one device.
func (s *slab) with(dev int, mr rdma.MR) *slab {
	c := *s
	c.mrs = slices.Clone(s.mrs)
	c.mrs[dev] = mr
	return &c
}

// Wire returns how a client of device dev reaches a region. ok is false while
// the region is not (or no longer) registered.
func (r *Regions) Wire(dev int, reg layout.Region) (out wire.Region, ok bool) {
	s := (*r.byID.Load())[reg.ID]
	if s == nil || dev >= len(s.mrs) || s.mrs[dev] == nil {
		return wire.Region{}, false
	}
	mr := s.mrs[dev]
	return wire.Region{
		ID: reg.ID, Kind: uint8(reg.Kind), Base: uint64(reg.Base), Length: reg.Length,
		Addr: mr.Addr(), RKey: mr.RKey(),
	}, true
}

// Bytes returns how much memory is registered, and how much of it was put into huge pages, reserved or transparent
// ones; of the latter those that came by HugeAuto are counted.
func (r *Regions) Bytes() (all, huge int64) {
	for _, s := range *r.byID.Load() {
		all += int64(s.mem.Size())
		if s.mem.Kind() == mem.Huge {
			huge += int64(s.mem.Size())
		}
		huge += s.mem.Gathered()
	}
	return all, huge
}

// OnChange has f called after each change of the region table: a region added, a
// rkey renewed, a region retired or gone. It may be called from any goroutine,
// several times for one change; it must not block.
func (r *Regions) OnChange(f func()) { r.onChange.Store(&f) }

// Changed tells of a change. It is the store's OnView.
func (r *Regions) Changed() {
	if f := r.onChange.Load(); f != nil {
		(*f)()
	}
}

// gathering is what is known of regions whose pages came one by one, as they were
// used, and are to become transparent huge ones once the region is full: a
// software fabric then reads them with a hundredth of the address translations.
type gathering struct {
	asked chan struct{} // capacity 1
	// done are the regions that have been gone through. Of the goroutine of Turnover.Run.
	done map[uint32]bool
}

// ask says that there may be a full region. It does not block.
func (g *gathering) ask() {
	select {
	case g.asked <- struct{}{}:
	default:
	}
}

// gatherEvery is how often HugeAuto looks whether there is something to gather.
const gatherEvery = time.Second

// gatherPeriod is gatherEvery where there may be something to gather, else 0.
func (r *Regions) gatherPeriod() time.Duration {
	if r.cfg.Huge != HugeAuto || !r.opt.Shared {
		return 0
	}
	return gatherEvery
}

// gatherFilled goes through what is full of all regions. Where nothing has come since the last time
// it costs a system call for each region.
func (r *Regions) gatherFilled(ctx context.Context) {
	for _, s := range *r.byID.Load() {
		s.mem.GatherFilled(func() bool { return ctx.Err() == nil })
	}
}

// gather goes through the full regions, which are all but the newest of each
// kind. Where huge_pages is off there is nothing to do.
func (r *Regions) gather(ctx context.Context) {
	if r.cfg.Huge != HugeTry {
		return
	}
	all := *r.byID.Load()
	newest := make(map[layout.RegionKind]uint32)
	for id, s := range all {
		newest[s.kind] = max(newest[s.kind], id)
	}
	if r.gathering.done == nil {
		r.gathering.done = make(map[uint32]bool)
	}
	for id := range r.gathering.done {
		if all[id] == nil {
			delete(r.gathering.done, id)
		}
	}
	for id, s := range all {
		if r.gathering.done[id] || newest[s.kind] == id || s.mem.Kind() != mem.Mmap {
			continue
		}
		r.gathering.done[id] = true
		s.mem.Gather(func() bool { return ctx.Err() == nil })
	}
}

// HugePages says whether memory is taken from huge pages (vm.nr_hugepages): a
// device registers and translates them many times faster.
type HugePages uint8

const (
	// HugeOff takes normal pages.
	HugeOff HugePages = iota
	// HugeTry takes normal pages where there are no huge ones, and logs that.
	HugeTry
	// HugeOn fails where there are none.
	HugeOn
	// HugeAuto takes normal pages, and puts those that other processes map into transparent
	// huge ones once they are full: it needs nothing of the machine, and takes no more memory.
	HugeAuto
)

func (h HugePages) String() string {
	switch h {
	case HugeOff:
		return "off"
	case HugeTry:
		return "try"
	case HugeOn:
		return "on"
	case HugeAuto:
		return "auto"
	}
	return fmt.Sprintf("HugePages(%d)", uint8(h))
}

// UnmarshalText is the inverse of HugePages.String; it makes HugePages an
// encoding.TextUnmarshaler.
func (h *HugePages) UnmarshalText(text []byte) error {
	for v := HugeOff; v <= HugeAuto; v++ {
		if v.String() == string(text) {
			*h = v
			return nil
		}
	}
	return fmt.Errorf("memory: huge pages %q: must be auto, off, try or on", text)
}
