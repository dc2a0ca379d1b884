package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// regions is the memory that the store's data lives in: what region.Memory
// asks for, over one PD per device. Slabs are registered REMOTE_READ and
// nothing else: no MR of theirs ever lets a peer write.
//
// What the store itself does not know stands here too: under which address
// and rkey a device answers for a region.
type regions struct {
	kind memory.Kind
	huge HugePages
	opt  memory.Options // what else the configuration says of the pages
	log  *limitedLog

	// byID is copied on every change, so that a View can be answered by a
	// poller without waiting for an allocation under way.
	byID atomic.Pointer[map[uint32]*slab]
	// mu serialises changes of byID and pds. It is held while memory is
	// registered: nothing but such changes waits for it.
	mu  sync.Mutex
	pds []rdma.PD // by device; nil where the device was taken out
	// spare says which devices the node may go on without, until settle; lost
	// is why it does.
	spare []bool
	lost  []error

	// old has the registrations that renew has replaced and nobody has dropped
	// yet, and those that could not be closed, by region. Guarded by mu.
	old map[uint32][]oldMR

	gathering gathering
	bump      bumper
	rotation  rotation
	renewed   atomic.Uint64 // regions that got a new rkey
	gone      atomic.Uint64 // regions given back
	published published
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
	mem  *memory.Block
	mrs  []rdma.MR // by device; nil where the device was taken out
}

func newRegions(srv *Server, pds ...rdma.PD) *regions {
	r := &regions{pds: pds, lost: make([]error, len(pds)), kind: srv.cfg.MemoryKind, huge: srv.cfg.HugePages, log: srv.log}
	r.opt = memory.Options{Node: srv.cfg.NUMANode, Prefault: srv.cfg.Prefault}
	for _, pd := range pds {
		r.opt.Shared = r.opt.Shared || pd != nil && pd.Device().Attr().Caps.Has(rdma.CapMapped)
	}
	r.old = make(map[uint32][]oldMR)
	r.rotation.asked = make(chan struct{}, 1)
	r.gathering.asked = make(chan struct{}, 1)
	r.byID.Store(&map[uint32]*slab{})
	return r
}

// Alloc implements region.Memory.
func (r *regions) Alloc(id uint32, kind layout.RegionKind, size int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (*r.byID.Load())[id] != nil {
		panic(fmt.Sprintf("server: region %d allocated twice", id))
	}
	begun := time.Now()
	mem, err := r.alloc(size, kind)
	if err != nil {
		r.log.Warn(limitMemory, "no memory for a region", "region", id, "kind", kind.String(), "bytes", size, "err", err)
		return nil, err
	}
	s := &slab{kind: kind, mem: mem}
	for dev, pd := range r.pds {
		var mr rdma.MR
		if pd != nil {
			if mr, err = pd.RegMR(mem.Bytes(), rdma.AccessRemoteRead); err != nil {
				attr := pd.Device().Attr()
				err = fmt.Errorf("server: registering region %d (%v, %d bytes) with %s/%s: %w",
					id, kind, size, attr.Fabric, pd.Device().Name(), err)
				r.log.Warn(limitMemory, "a region cannot be registered", "err", err)
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
	r.log.Debug("region registered", "region", id, "kind", kind.String(), "bytes", size, "memory", mem.Kind().String(),
		"devices", len(s.mrs), "took", time.Since(begun))
	return mem.Bytes(), nil
}

// prefaultLines is the least time between two lines about a large region whose
// pages are being taken.
const prefaultLines = time.Second

// alloc takes memory of the kind that the configuration asks for.
func (r *regions) alloc(size int, kind layout.RegionKind) (*memory.Block, error) {
	opt := r.opt
	opt.Kind, opt.Tag = r.kind, kind.String()
	told := time.Now()
	opt.OnPrefault = func(taken int) {
		if time.Since(told) >= prefaultLines {
			told = time.Now()
			r.log.Info("taking the pages of a region", "kind", kind.String(), "bytes", taken, "of", size)
		}
	}
	if r.huge == HugeOff {
		return memory.Alloc(size, opt)
	}
	opt.Kind = memory.Huge
	mem, err := memory.Alloc(size, opt)
	if r.huge == HugeTry && (errors.Is(err, memory.ErrNoHugePages) || errors.Is(err, memory.ErrNotSupported)) {
		r.log.Warn(limitMemory, "a region gets normal pages instead of huge ones, transparent ones where the kernel has them", "bytes", size, "err", err)
		opt.Kind, opt.Transparent = r.kind, true
		return memory.Alloc(size, opt)
	}
	return mem, err
}

// Free implements region.Memory: when it returns, no peer reads the region
// any more and its memory is gone.
func (r *regions) Free(id uint32) error {
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
func (r *regions) change(f func(map[uint32]*slab)) {
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

// maySpare says which devices the node can do without: one with which a region
// cannot be registered (locked memory is short, say) is taken out, as long as
// nobody has been told of it.
func (r *regions) maySpare(spare []bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = spare
}

// settle ends that: clients are about to come. It returns why devices were
// taken out; nil for those that were not.
func (r *regions) settle() (lost []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = nil
	return r.lost
}

// giveUpLocked takes a device out if the node can do without it.
func (r *regions) giveUpLocked(dev int, err error) bool {
	if r.spare == nil || !r.spare[dev] || r.detachLocked(dev) != nil {
		return false
	}
	r.lost[dev] = err
	return true
}

// detach takes a device out: no region is registered with it any more, and none
// will be. A registration that cannot be closed keeps the memory of its region.
func (r *regions) detach(dev int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.detachLocked(dev)
}

func (r *regions) detachLocked(dev int) error {
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

// attach puts a device in that was taken out and is back: every region is
// registered with it, and those that come. After an error, or when ctx ends, none is.
func (r *regions) attach(ctx context.Context, dev int, pd rdma.PD) error {
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
			return errors.Join(err, r.detach(dev))
		}
	}
	return nil
}

// join registers one region, if it is still there and was not registered meanwhile.
func (r *regions) join(id uint32, dev int) error {
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

// wire returns how a client of device dev reaches a region. ok is false while
// the region is not (or no longer) registered.
func (r *regions) wire(dev int, reg layout.Region) (out wire.Region, ok bool) {
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

// bytes returns how much memory is registered, and how much of it in huge pages.
func (r *regions) bytes() (all, huge int64) {
	for _, s := range *r.byID.Load() {
		all += int64(s.mem.Size())
		if s.mem.Kind() == memory.Huge {
			huge += int64(s.mem.Size())
		}
	}
	return all, huge
}
