package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// An MR is a registered region: the rdma.MR of all software fabrics. It is not
// embedded, so that a post finds it by one type assertion. Its memory is touched
// only between Acquire and Release, so that Close can wait for the last access
// under way.
type MR struct {
	pd     *PD
	kind   *Kind
	buf    []byte
	key    uint32
	access rdma.Access

	// state is mrClosed plus the number of accesses under way. Anyone may
	// add to it; only Close sets the bit, and it stays.
	state atomic.Int64
	// idle is closed by the call that ends the last access after Close.
	idle     chan struct{}
	idleOnce sync.Once
}

const mrClosed = 1 << 62

// CheckRegion says what is wrong with registering n bytes with these rights.
func CheckRegion(n int, access rdma.Access) error {
	const known = rdma.AccessLocalWrite | rdma.AccessRemoteMask
	switch {
	case n == 0:
		return fmt.Errorf("%w: a memory region of 0 bytes", rdma.ErrInvalid)
	case access&^known != 0:
		return fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(access&^known))
	case access&rdma.AccessRemoteAtomic != 0:
		return fmt.Errorf("%w: remote atomics on a memory region", rdma.ErrNotSupported)
	case access&rdma.AccessRemoteWrite != 0 && access&rdma.AccessLocalWrite == 0:
		return fmt.Errorf("%w: remote write needs local write", rdma.ErrInvalid)
	}
	return nil
}

// RegMR registers buf.
func (p *PD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	m, err := p.Register(buf, access)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Register is RegMR for a fabric that has more to do for a region: when it
// returns, peers find the region by its key.
func (p *PD) Register(buf []byte, access rdma.Access) (*MR, error) {
	if err := CheckRegion(len(buf), access); err != nil {
		return nil, err
	}
	if err := p.dev.mrs.Add("memory regions"); err != nil {
		return nil, err
	}
	if err := p.use(); err != nil {
		p.dev.mrs.Drop()
		return nil, err
	}
	key, ok := ProcessKeys().Draw()
	if !ok {
		p.unuse()
		p.dev.mrs.Drop()
		return nil, fmt.Errorf("%w: all 2^32 keys of this process are used up", rdma.ErrLimit)
	}
	m := &MR{pd: p, kind: p.dev.kind, buf: buf[:len(buf):len(buf)], key: key, access: access, idle: make(chan struct{})}
	p.dev.Regions.put(m)
	return m, nil
}

// PD returns the parent.
func (m *MR) PD() rdma.PD { return m.pd.outer }

// Owner returns the parent for comparisons.
func (m *MR) Owner() *PD { return m.pd }

// Bytes returns the memory.
func (m *MR) Bytes() []byte { return m.buf }

// Addr returns 0: remote addresses are offsets.
func (m *MR) Addr() uint64 { return 0 }

// Len returns the length in bytes.
func (m *MR) Len() uint64 { return uint64(len(m.buf)) }

// LKey returns the key.
func (m *MR) LKey() uint32 { return m.key }

// Access returns the rights given at registration.
func (m *MR) Access() rdma.Access { return m.access }

// RKey returns the key, or 0 if a peer has no use for it.
func (m *MR) RKey() uint32 {
	if m.access&rdma.AccessRemoteMask == 0 {
		return 0
	}
	return m.key
}

// Acquire begins an access, which Release ends; false means that the region is
// closed, and there is none to end.
func (m *MR) Acquire() bool {
	if m.state.Add(1)&mrClosed == 0 {
		return true
	}
	m.Release()
	return false
}

// Release ends an access.
func (m *MR) Release() {
	if m.state.Add(-1) == mrClosed {
		m.idleOnce.Do(func() { close(m.idle) })
	}
}

// Closed reports whether Close has been called.
func (m *MR) Closed() bool { return m.state.Load()&mrClosed != 0 }

// Within reports whether n bytes from off lie inside, without overflow.
func (m *MR) Within(off uint64, n uint32) bool {
	size := uint64(len(m.buf))
	return off <= size && uint64(n) <= size-off
}

// Close deregisters. It returns when no access is under way any more. It works
// in this order: no new access begins, no peer finds the region, the fabric
// takes it back from those that have found it, and then Close waits.
func (m *MR) Close() error {
	for {
		old := m.state.Load()
		if old&mrClosed != 0 {
			<-m.idle // another Close: return when that one may
			return nil
		}
		if m.state.CompareAndSwap(old, old|mrClosed) {
			if old == 0 {
				m.idleOnce.Do(func() { close(m.idle) })
			}
			break
		}
	}
	m.pd.dev.Regions.remove(m.key)
	if m.pd.Withdrawn != nil {
		m.pd.Withdrawn(m)
	}
	<-m.idle
	m.pd.unuse()
	m.pd.dev.mrs.Drop()
	return nil
}

var _ rdma.MR = (*MR)(nil)

// A Table finds regions by key. It is read for every request of every peer and
// written only at registrations, so it is cut into shards with a read-write lock
// each. A sync.Map would box the key, which is an allocation for each look-up.
type Table struct {
	shards [tableShards]tableShard
}

const tableShards = 16

type tableShard struct {
	mu sync.RWMutex
	m  map[uint32]*MR
	_  [32]byte // apart from the neighbour's cache line
}

func (t *Table) shard(key uint32) *tableShard { return &t.shards[key%tableShards] }

// put enters a region, so that peers find it.
func (t *Table) put(m *MR) {
	s := t.shard(m.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[uint32]*MR)
	}
	s.m[m.key] = m
}

// Get returns the open region with this key, or nil. It may be closed the moment
// after: see MR.Acquire.
func (t *Table) Get(key uint32) *MR {
	s := t.shard(key)
	s.mu.RLock()
	m := s.m[key]
	s.mu.RUnlock()
	return m
}

func (t *Table) remove(key uint32) {
	s := t.shard(key)
	s.mu.Lock()
	delete(s.m, key)
	s.mu.Unlock()
}
