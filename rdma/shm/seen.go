//go:build linux

package shm

import (
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/prefetch"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A remote is a region of the peer that we have mapped. It is touched only between
// take and release, so that it can be unmapped once no reader uses it.
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
	_ = memfd.UnmapSealed(r.raw)
}

// open reports whether the region may be read at this moment. It is asked before a
// copy and after it: once the peer has taken a region back, its memory may be used
// for something else, and no copy that began before counts.
func (r *remote) open() bool { return r.slot.Load() == r.want }

// copy fills dst from a place of the region. It returns false if that is not
// allowed.
func (r *remote) copy(dst []byte, addr uint64) bool {
	size := uint64(len(r.data))
	if addr > size || uint64(len(dst)) > size-addr || !r.open() {
		return false
	}
	mem.Copy(dst, r.data, addr)
	return r.open()
}

// scatter is copy into a list. local says that the fault lies in our own memory.
func (r *remote) scatter(l *soft.SGL, addr uint64, n uint32) (ok, local bool) {
	size := uint64(len(r.data))
	if addr > size || uint64(n) > size-addr || !r.open() {
		return false, false
	}
	for i := range l.Len() {
		e := l.At(i)
		if e.Len == 0 {
			continue
		}
		if !e.MR.Within(e.Off, e.Len) || !e.MR.Acquire() {
			return false, true
		}
		mem.Copy(e.MR.Bytes()[e.Off:e.Off+uint64(e.Len)], r.data, addr)
		e.MR.Release()
		addr += uint64(e.Len)
	}
	return r.open(), false
}

// seen has the regions of the peer that are mapped here, by rkey. Readers take no
// lock: the map is copied on change.
type seen struct {
	byKey atomic.Pointer[map[uint32]*remote]

	mu     sync.Mutex
	closed bool
	limits mapLimits
	total  *soft.Count // mappings of all connections of the fabric
	sum    *sum        // bytes of all connections that the device has accepted; nil: no bound
	maps   int
	bytes  int64
}

// mapLimits bound what a peer can make us map. If the pages are the peer's, a
// mapping costs little but address space and one of the process's mappings
// (vm.max_map_count). backed demands that all pages are there already: without it a
// peer could make us pay for them by showing holes. Regions that are not mapped are
// read through the rings.
type mapLimits struct {
	maps   int
	bytes  int64
	backed bool
}

// A sum bounds bytes. It is safe for concurrent use.
type sum struct {
	n     atomic.Int64
	limit int64
}

// add counts n more. It returns false if that would be too many.
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

// take finds a region for a reader, which must call release.
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

// fits counts a mapping of n bytes in, or returns false if it is one too many.
func (s *seen) fits(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.maps >= s.limits.maps || n > s.limits.bytes-s.bytes {
		return false
	}
	if s.sum != nil && !s.sum.add(n) {
		return false
	}
	if s.total.Add("mapped regions") != nil {
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
	s.total.Drop()
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
	if q.Dying() {
		return rdma.StatusWRFlushErr
	}
	r := q.seen.take(at.RKey)
	if r == nil {
		if q.Dying() {
			return rdma.StatusWRFlushErr
		}
		return rdma.StatusLocQPOpErr
	}
	if r.copy(sink, at.Addr) {
		r.release()
		return rdma.StatusSuccess
	}
	c := q.refused() // while we have the region
	r.release()
	if q.Dying() {
		return rdma.StatusWRFlushErr
	}
	q.fail(c)
	return c.Send
}

// aheadBytes is how much of one READ is asked for before it is made: a processor has some dozens of lines of 64 bytes
// under way at a time, and fetches the rest of a longer copy by itself.
const aheadBytes = 256

// PrefetchDirect implements rdma.DirectPrefetcher. It does not hold the region: an address at which nothing
// is mapped any more is as good to a prefetch as any.
func (q *qp) PrefetchDirect(at rdma.RemoteAddr, n int) {
	m := q.seen.byKey.Load()
	if m == nil {
		return
	}
	r := (*m)[at.RKey]
	if r == nil || at.Addr >= uint64(len(r.data)) {
		return
	}
	ahead := r.data[at.Addr:]
	n = min(n, aheadBytes, len(ahead))
	for off := 0; off < n; off += prefetch.LineSize {
		prefetch.Line(&ahead[off])
	}
	if n > 0 {
		prefetch.Line(&ahead[n-1]) // READs begin where their item begins, which is no line of the cache
	}
}

// refused ends a READ of this end that the peer does not allow, or does not
// allow any more because it ends the connection. The caller holds one of the peer's
// regions, and with it the channel.
func (q *qp) refused() cause {
	if last := bye(q.ch.in.bye.Load()); last != byeNone && last != byeAccess {
		c := hungUp(last, nil)
		c.Send = rdma.StatusRetryExcErr
		return c
	}
	c := forbidden("a READ of ours", errShown)
	c.Send = rdma.StatusRemAccessErr
	return c
}

var (
	_ rdma.DirectReader     = (*qp)(nil)
	_ rdma.DirectPrefetcher = (*qp)(nil)
)
