//go:build linux

package shm

import (
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"golang.org/x/sys/unix"
)

// showing is what the peer of a QP is shown: the descriptors of those regions of
// its PD that lie in a memfd and may be read remotely, once REMOTE_READ has been
// granted. Each has a word in our half that says whether it may be read now; a
// region that has none, or whose descriptor is not there yet, is read through the
// rings. Guarded by mu; pd.mu comes before it.
type showing struct {
	mu      sync.Mutex
	half    *half // nil: not connected, or over
	granted bool
	slotOf  map[*mr]uint16
	used    int      // slots ever used
	free    []uint16 // slots given back
	news    []notice // to be told, in order
	telling bool     // a goroutine is at it
}

// A notice tells the peer of a region, or that one is gone.
type notice struct {
	mr   *mr // nil: gone
	slot uint16
	key  uint32
}

// shows reports whether a region can be shown at all.
func (m *mr) shows() bool { return m.backed && m.access&rdma.AccessRemoteRead != 0 }

// show tells all peers of a new region.
func (p *pd) show(m *mr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shared == nil {
		p.shared = make(map[*mr]struct{})
	}
	p.shared[m] = struct{}{}
	for q := range p.sharing {
		q.show.mu.Lock()
		q.showLocked(m)
		q.show.mu.Unlock()
	}
}

// hide takes it back from all.
func (p *pd) hide(m *mr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shared, m)
	for q := range p.sharing {
		q.show.mu.Lock()
		q.hideLocked(m)
		q.show.mu.Unlock()
	}
}

// startShowing begins, when the QP is connected. pd.mu is taken.
func (q *qp) startShowing(h *half) {
	p := q.pd
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sharing == nil {
		p.sharing = make(map[*qp]struct{})
	}
	p.sharing[q] = struct{}{}
	s := &q.show
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half = h
	q.grantLocked()
}

// grant puts new rights into force. Called when QP.access has them.
func (q *qp) grant() {
	p := q.pd
	p.mu.Lock()
	defer p.mu.Unlock()
	q.show.mu.Lock()
	defer q.show.mu.Unlock()
	q.grantLocked()
}

// grantLocked: pd.mu and show.mu are held.
func (q *qp) grantLocked() {
	s := &q.show
	s.granted = rdma.Access(q.access.Load())&rdma.AccessRemoteRead != 0
	if s.half == nil {
		return
	}
	for m, slot := range s.slotOf {
		s.half.slots[slot].Store(s.word(m))
	}
	if !s.granted {
		return
	}
	for m := range q.pd.shared {
		q.showLocked(m)
	}
}

// word is what stands in the slot of a region.
func (s *showing) word(m *mr) uint64 {
	if !s.granted {
		return 0
	}
	return slotValid | uint64(m.key)
}

// showLocked gives a region a slot and tells the peer. show.mu is held.
func (q *qp) showLocked(m *mr) {
	s := &q.show
	if s.half == nil || !s.granted {
		return
	}
	if _, known := s.slotOf[m]; known {
		return
	}
	var slot uint16
	switch n := len(s.free); {
	case n > 0:
		slot, s.free = s.free[n-1], s.free[:n-1]
	case s.used < slotCount:
		slot = uint16(s.used)
		s.used++
	default:
		return // read through the rings
	}
	if s.slotOf == nil {
		s.slotOf = make(map[*mr]uint16)
	}
	s.slotOf[m] = slot
	s.half.slots[slot].Store(s.word(m))
	q.tellLocked(notice{mr: m, slot: slot, key: m.key})
}

// hideLocked takes a region back: when it returns no copy by the peer that is not
// over yet counts any more. show.mu is held.
func (q *qp) hideLocked(m *mr) {
	s := &q.show
	slot, known := s.slotOf[m]
	if !known || s.half == nil {
		return
	}
	s.half.slots[slot].Store(0)
	delete(s.slotOf, m)
	s.free = append(s.free, slot)
	if i := slices.IndexFunc(s.news, func(n notice) bool { return n.mr == m }); i >= 0 {
		s.news = slices.Delete(s.news, i, i+1) // it was never told
		return
	}
	q.tellLocked(notice{key: m.key})
}

func (q *qp) tellLocked(n notice) {
	s := &q.show
	s.news = append(s.news, n)
	if !s.telling {
		s.telling = true
		q.sockets.Go(q.tell)
	}
}

// tell sends what there is to tell and ends. It may wait for the socket: a peer
// that does not read it keeps nobody else waiting.
func (q *qp) tell() {
	s := &q.show
	for {
		var b []byte
		var fds []int
		s.mu.Lock()
		if s.half == nil {
			s.news = nil
		}
		n := 0
		for n < len(s.news) && n < maxNotices {
			e := s.news[n]
			n++
			if e.mr == nil {
				b = appendGone(b, e.key)
				continue
			}
			// A descriptor of our own: the region may be closed while we wait.
			if !e.mr.acquire() {
				continue
			}
			fd, err := unix.FcntlInt(uintptr(e.mr.backing.FD), unix.F_DUPFD_CLOEXEC, 0)
			e.mr.release()
			if err != nil {
				continue // no descriptors left: it is read through the rings
			}
			fds = append(fds, fd)
			b = appendShown(b, e.slot, e.key, e.mr.backing, uint64(len(e.mr.buf)))
		}
		s.news = slices.Delete(s.news, 0, n)
		if n == 0 {
			s.telling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if len(b) > 0 {
			_ = q.sendMessage(append([]byte{msgRegions}, b...), fds) // else read through the rings
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// stopShowing ends it, when the QP is in ERR. Until all is taken back nobody can
// pass us by: a region that is closed meanwhile waits for that.
func (q *qp) stopShowing() {
	q.pd.mu.Lock()
	defer q.pd.mu.Unlock()
	delete(q.pd.sharing, q)
	s := &q.show
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.half == nil {
		return
	}
	for _, slot := range s.slotOf {
		s.half.slots[slot].Store(0)
	}
	s.half, s.slotOf, s.news = nil, nil, nil
}
