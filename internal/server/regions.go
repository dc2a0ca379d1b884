package server

import (
	"fmt"
	"sync"
	"sync/atomic"

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
	pds  []rdma.PD // one per device; fixed
	kind memory.Kind

	// byID is copied on every change, so that a View can be answered by a
	// poller without waiting for an allocation under way.
	byID atomic.Pointer[map[uint32]*slab]
	mu   sync.Mutex // serialises changes of byID
}

// A slab is one region: its memory and its registration with each device.
type slab struct {
	kind layout.RegionKind
	mem  *memory.Block
	mrs  []rdma.MR // by index of regions.pds
}

func newRegions(kind memory.Kind, pds ...rdma.PD) *regions {
	r := &regions{pds: pds, kind: kind}
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
	mem, err := memory.Alloc(size, memory.Options{Kind: r.kind, Tag: kind.String()})
	if err != nil {
		return nil, err
	}
	s := &slab{kind: kind, mem: mem}
	for _, pd := range r.pds {
		mr, err := pd.RegMR(mem.Bytes(), rdma.AccessRemoteRead)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("server: registering region %d (%v, %d bytes): %w", id, kind, size, err)
		}
		s.mrs = append(s.mrs, mr)
	}
	r.change(func(m map[uint32]*slab) { m[id] = s })
	return mem.Bytes(), nil
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
	for _, mr := range s.mrs {
		if err := mr.Close(); err != nil {
			// The memory stays: a NIC may still read it.
			return fmt.Errorf("server: deregistering %d bytes of %v: %w", s.mem.Size(), s.kind, err)
		}
	}
	return s.mem.Free()
}

// wire returns how a client of device dev reaches a region. ok is false while
// the region is not (or no longer) registered.
func (r *regions) wire(dev int, reg layout.Region) (out wire.Region, ok bool) {
	s := (*r.byID.Load())[reg.ID]
	if s == nil || dev >= len(s.mrs) {
		return wire.Region{}, false
	}
	mr := s.mrs[dev]
	return wire.Region{
		ID: reg.ID, Kind: uint8(reg.Kind), Base: uint64(reg.Base), Length: reg.Length,
		Addr: mr.Addr(), RKey: mr.RKey(),
	}, true
}

// bytes returns how much memory is registered.
func (r *regions) bytes() (n int64) {
	for _, s := range *r.byID.Load() {
		n += int64(s.mem.Size())
	}
	return n
}
