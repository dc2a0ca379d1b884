//go:build linux

package shm

import (
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/rdma"
)

// A remote is a region of the peer that we have mapped. It is touched only
// between a take and a release, so that it can be unmapped once nobody does.
type remote struct {
	slot *atomic.Uint64 // in the peer's half
	want uint64         // what it says while the region may be read
	data []byte         // the region
	raw  []byte         // the mapping

	// state is remoteClosed plus the number of readers.
	state atomic.Int64
	idle  chan struct{}
	once  sync.Once
}

const remoteClosed = 1 << 62

func (r *remote) acquire() bool {
	if r.state.Add(1)&remoteClosed == 0 {
		return true
	}
	r.release()
	return false
}

func (r *remote) release() {
	if r.state.Add(-1) == remoteClosed {
		r.once.Do(func() { close(r.idle) })
	}
}

// close waits for the readers and unmaps. Called once.
func (r *remote) close() {
	if r.state.Add(remoteClosed) == remoteClosed {
		r.once.Do(func() { close(r.idle) })
	}
	<-r.idle
	_ = memory.UnmapSealed(r.raw)
}

// open reports whether the region may be read at this moment. It is asked before
// a copy and after it: once the peer has taken a region back, what lies there may
// be something else, and no copy that began before counts.
func (r *remote) open() bool { return r.slot.Load() == r.want }

// copy fills dst from a place of the region; false if it may not be.
func (r *remote) copy(dst []byte, addr uint64) bool {
	size := uint64(len(r.data))
	if addr > size || uint64(len(dst)) > size-addr || !r.open() {
		return false
	}
	copyRegion(dst, r.data, addr)
	return r.open() || teeth.Off(teeth.D6RegionWord)
}

// scatter is copy into a list. local says that it is our own memory that will
// not do.
func (r *remote) scatter(l *sgl, addr uint64, n uint32) (ok, local bool) {
	size := uint64(len(r.data))
	if addr > size || uint64(n) > size-addr || !r.open() {
		return false, false
	}
	for i := range l.n {
		e := l.at(i)
		if e.len == 0 {
			continue
		}
		if !e.mr.within(e.off, e.len) || !e.mr.acquire() {
			return false, true
		}
		copyRegion(e.mr.buf[e.off:e.off+uint64(e.len)], r.data, addr)
		e.mr.release()
		addr += uint64(e.len)
	}
	return r.open() || teeth.Off(teeth.D6RegionWord), false
}

// seen are the regions of the peer that are mapped here, by rkey. Readers take no
// lock: the map is copied on change.
type seen struct {
	byKey atomic.Pointer[map[uint32]*remote]

	mu     sync.Mutex
	closed bool
	limits mapLimits
	total  *count // mappings of all connections of the fabric
	sum    *sum   // their bytes, of those that it has accepted; nil: no bound
	maps   int
	bytes  int64
}

// mapLimits bound what a peer can make us map. A mapping costs little but
// address space and one of the process's mappings (vm.max_map_count), if the pages
// are the peer's: backed wants them all to be there already, so that he cannot make
// us pay for them by showing holes. What is not mapped is read through the rings.
type mapLimits struct {
	maps   int
	bytes  int64
	backed bool
}

// A sum bounds bytes. Safe for concurrent use.
type sum struct {
	n     atomic.Int64
	limit int64
}

// add counts n more; false: that would be too many.
func (s *sum) add(n int64) bool {
	if s.n.Add(n) > s.limit {
		s.n.Add(-n)
		return false
	}
	return true
}

func (s *seen) has(key uint32) bool {
	m := s.byKey.Load()
	return m != nil && (*m)[key] != nil
}

// take finds a region for a reader, who releases it.
func (s *seen) take(key uint32) *remote {
	m := s.byKey.Load()
	if m == nil {
		return nil
	}
	if r := (*m)[key]; r != nil && r.acquire() {
		return r
	}
	return nil
}

// change replaces the map by a changed copy. s.mu is held.
func (s *seen) change(f func(m map[uint32]*remote)) {
	m := make(map[uint32]*remote)
	if old := s.byKey.Load(); old != nil {
		for k, r := range *old {
			m[k] = r
		}
	}
	f(m)
	s.byKey.Store(&m)
}

// fits counts a mapping of n bytes in, or says that it is one too many.
func (s *seen) fits(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.maps >= s.limits.maps || n > s.limits.bytes-s.bytes {
		return false
	}
	if s.sum != nil && !s.sum.add(n) {
		return false
	}
	if s.total.add("mapped regions") != nil {
		if s.sum != nil {
			s.sum.n.Add(-n)
		}
		return false
	}
	s.maps++
	s.bytes += n
	return true
}

// unfit counts it out.
func (s *seen) unfit(n int64) {
	s.mu.Lock()
	s.maps--
	s.bytes -= n
	s.mu.Unlock()
	if s.sum != nil {
		s.sum.n.Add(-n)
	}
	s.total.drop()
}

// add makes regions known to readers.
func (s *seen) add(list map[uint32]*remote) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(func(m map[uint32]*remote) {
		for k, r := range list {
			m[k] = r
		}
	})
}

// forget unmaps a region that no reader can find.
func (s *seen) forget(r *remote) {
	n := int64(len(r.raw))
	r.close()
	s.unfit(n)
}

// drop unmaps a region that the peer has taken back.
func (s *seen) drop(key uint32) {
	s.mu.Lock()
	var gone *remote
	if m := s.byKey.Load(); m != nil {
		gone = (*m)[key]
	}
	if gone != nil {
		s.change(func(m map[uint32]*remote) { delete(m, key) })
	}
	s.mu.Unlock()
	if gone != nil {
		s.forget(gone)
	}
}

// close unmaps everything; the goroutine of the socket has ended.
func (s *seen) close() {
	s.mu.Lock()
	s.closed = true
	old := s.byKey.Swap(nil)
	s.mu.Unlock()
	if old == nil {
		return
	}
	for _, r := range *old {
		s.forget(r)
	}
}

// ReadDirect implements rdma.DirectReader.
func (q *qp) ReadDirect(sink []byte, at rdma.RemoteAddr) rdma.Status {
	if q.dying.Load() {
		return rdma.StatusWRFlushErr
	}
	r := q.seen.take(at.RKey)
	if r == nil {
		if q.dying.Load() {
			return rdma.StatusWRFlushErr
		}
		return rdma.StatusLocQPOpErr
	}
	ok := r.copy(sink, at.Addr)
	var c cause
	if !ok {
		c = q.refused()
	}
	r.release()
	if !ok {
		if q.dying.Load() {
			return rdma.StatusWRFlushErr
		}
		q.fail(c)
		return c.status
	}
	return rdma.StatusSuccess
}

// refused is the end that a READ of ours brings which the peer does not allow; or
// does not allow any more, because it ends the connection. The caller holds one of
// the peer's regions, and with it the channel.
func (q *qp) refused() cause {
	if last := bye(q.ch.in.bye.Load()); last != byeNone && last != byeAccess {
		c := hungUp(last, nil)
		c.status = rdma.StatusRetryExcErr
		return c
	}
	c := forbidden("a READ of ours", errShown)
	c.status = rdma.StatusRemAccessErr
	return c
}

var _ rdma.DirectReader = (*qp)(nil)
