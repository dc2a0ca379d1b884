//go:build linux

package shm

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/rdma"
)

// An mr is a registered region. Its memory is touched only between acquire
// and release, so that Close can wait for the last access under way.
type mr struct {
	pd     *pd
	buf    []byte
	key    uint32
	access rdma.Access

	backing memory.Backing // if backed: where in which memfd it lies
	backed  bool

	// state is mrClosed plus the number of accesses under way. Anyone may
	// add to it; only Close sets the bit, and it stays.
	state atomic.Int64
	// idle is closed by whoever ends the last access after Close.
	idle     chan struct{}
	idleOnce sync.Once
}

const mrClosed = 1 << 62

// RegMR registers buf.
func (p *pd) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	const known = rdma.AccessLocalWrite | rdma.AccessRemoteMask
	switch {
	case len(buf) == 0:
		return nil, fmt.Errorf("%w: a memory region of 0 bytes", rdma.ErrInvalid)
	case access&^known != 0:
		return nil, fmt.Errorf("%w: unknown access rights %#x", rdma.ErrInvalid, uint32(access&^known))
	case access&rdma.AccessRemoteAtomic != 0:
		return nil, fmt.Errorf("%w: remote atomics on a memory region", rdma.ErrNotSupported)
	case access&rdma.AccessRemoteWrite != 0 && access&rdma.AccessLocalWrite == 0:
		return nil, fmt.Errorf("%w: remote write needs local write", rdma.ErrInvalid)
	}
	if err := p.dev.numMR.add("memory regions"); err != nil {
		return nil, err
	}
	if err := p.use(); err != nil {
		p.dev.numMR.drop()
		return nil, err
	}
	key, ok := processKeys().draw()
	if !ok {
		p.unuse()
		p.dev.numMR.drop()
		return nil, fmt.Errorf("%w: all 2^32 keys of this process are used up", rdma.ErrLimit)
	}
	m := &mr{pd: p, buf: buf[:len(buf):len(buf)], key: key, access: access, idle: make(chan struct{})}
	m.backing, m.backed = memory.BackingOf(buf)
	p.dev.mrs.put(m)
	if m.shows() {
		p.show(m)
	}
	return m, nil
}

func (m *mr) PD() rdma.PD         { return m.pd }
func (m *mr) Bytes() []byte       { return m.buf }
func (m *mr) Addr() uint64        { return 0 }
func (m *mr) Len() uint64         { return uint64(len(m.buf)) }
func (m *mr) LKey() uint32        { return m.key }
func (m *mr) Access() rdma.Access { return m.access }

// RKey is the key, or 0 if a peer has no use for it.
func (m *mr) RKey() uint32 {
	if m.access&rdma.AccessRemoteMask == 0 {
		return 0
	}
	return m.key
}

// acquire begins an access; false means that the region is closed.
func (m *mr) acquire() bool {
	if m.state.Add(1)&mrClosed == 0 {
		return true
	}
	m.release()
	return false
}

// release ends an access.
func (m *mr) release() {
	if m.state.Add(-1) == mrClosed {
		m.idleOnce.Do(func() { close(m.idle) })
	}
}

// within reports whether n bytes from off lie inside, without overflow.
func (m *mr) within(off uint64, n uint32) bool {
	size := uint64(len(m.buf))
	return off <= size && uint64(n) <= size-off
}

// Close deregisters. It returns when no access is under way any more.
func (m *mr) Close() error {
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
	m.pd.dev.mrs.remove(m.key)
	if m.shows() {
		m.pd.hide(m)
	}
	<-m.idle
	m.pd.unuse()
	m.pd.dev.numMR.drop()
	return nil
}

// mrTable finds regions by key. It is read for every request of every peer
// and written at registrations only, so it is cut into shards with a
// read-write lock each. A sync.Map would box the key, an allocation a look-up.
type mrTable struct {
	shards [mrShards]mrShard
}

const mrShards = 16

type mrShard struct {
	mu sync.RWMutex
	m  map[uint32]*mr
	_  [32]byte // apart from the neighbour's cache line
}

func (t *mrTable) shard(key uint32) *mrShard { return &t.shards[key%mrShards] }

func (t *mrTable) put(m *mr) {
	s := t.shard(m.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[uint32]*mr)
	}
	s.m[m.key] = m
}

func (t *mrTable) get(key uint32) *mr {
	s := t.shard(key)
	s.mu.RLock()
	m := s.m[key]
	s.mu.RUnlock()
	return m
}

func (t *mrTable) remove(key uint32) {
	s := t.shard(key)
	s.mu.Lock()
	delete(s.m, key)
	s.mu.Unlock()
}
