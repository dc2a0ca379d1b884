//go:build linux

package shm

import (
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"golang.org/x/sys/unix"
)

// showing is what the peer of a QP is shown: the descriptors of those regions of
// its PD that lie in a memfd and may be read remotely, once REMOTE_READ has been
// granted. Each has a word in our half that says whether it may be read now; a
// region that has none, or whose descriptor has not arrived yet, is read through
// the rings. mu guards it; exports.mu comes before it.
type showing struct {
	q       *qp
	mu      sync.Mutex
	half    *half // nil: not connected, or over
	granted bool
	slotOf  map[*soft.MR]uint16
	used    int      // slots ever used
	free    []uint16 // slots given back
	news    []notice // to be told, in order
	telling bool     // a goroutine is at it
}

// A notice tells the peer of a region, or that one is gone.
type notice struct {
	mr    *soft.MR // nil: gone
	where memfd.Backing
	slot  uint16
	key   uint32
}

// exports are the regions of a PD that its peers may map, and those peers.
type exports struct {
	mu      sync.Mutex
	regions map[*soft.MR]memfd.Backing // that lie in a memfd and may be read remotely
	peers   map[*qp]struct{}           // connected QPs, whose peers are shown them
}

// show tells all peers of a new region.
func (p *pd) show(m *soft.MR, where memfd.Backing) {
	x := &p.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.regions == nil {
		x.regions = make(map[*soft.MR]memfd.Backing)
	}
	x.regions[m] = where
	for q := range x.peers {
		q.show.mu.Lock()
		q.show.showLocked(m, where)
		q.show.mu.Unlock()
	}
}

// hide takes a region back from all peers, if it was shown to any.
func (p *pd) hide(m *soft.MR) {
	x := &p.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, shown := x.regions[m]; !shown {
		return
	}
	delete(x.regions, m)
	for q := range x.peers {
		q.show.mu.Lock()
		q.show.hideLocked(m)
		q.show.mu.Unlock()
	}
}

// start begins, when the QP is connected. exports.mu is taken.
func (s *showing) start(h *half) {
	x := &s.q.pd.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.peers == nil {
		x.peers = make(map[*qp]struct{})
	}
	x.peers[s.q] = struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half = h
	s.grantLocked()
}

// grant puts new rights into force. Called when QP.access has them.
func (s *showing) grant() {
	x := &s.q.pd.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grantLocked()
}

// grantLocked: exports.mu and show.mu are held.
func (s *showing) grantLocked() {
	s.granted = s.q.Access()&rdma.AccessRemoteRead != 0
	if s.half == nil {
		return
	}
	for m, slot := range s.slotOf {
		s.half.slots[slot].Store(s.word(m))
	}
	if !s.granted {
		return
	}
	for m, where := range s.q.pd.exports.regions {
		s.showLocked(m, where)
	}
}

// word is what stands in the slot of a region.
func (s *showing) word(m *soft.MR) uint64 {
	if !s.granted {
		return 0
	}
	return slotValid | uint64(m.LKey())
}

// showLocked gives a region a slot and tells the peer. show.mu is held.
func (s *showing) showLocked(m *soft.MR, where memfd.Backing) {
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
		s.slotOf = make(map[*soft.MR]uint16)
	}
	s.slotOf[m] = slot
	s.half.slots[slot].Store(s.word(m))
	s.tellLocked(notice{mr: m, where: where, slot: slot, key: m.LKey()})
}

// hideLocked takes a region back: after it has returned, no copy by the peer
// counts that was not over before. The caller holds show.mu.
func (s *showing) hideLocked(m *soft.MR) {
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
	s.tellLocked(notice{key: m.LKey()})
}

func (s *showing) tellLocked(n notice) {
	s.news = append(s.news, n)
	if !s.telling {
		s.telling = true
		s.q.sockets.Go(s.tell)
	}
}

// tell sends the notices that wait, and ends. It may wait for the socket: a peer
// that does not read it delays only itself.
func (s *showing) tell() {
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
			if !e.mr.Acquire() {
				continue
			}
			fd, err := unix.FcntlInt(uintptr(e.where.FD), unix.F_DUPFD_CLOEXEC, 0)
			e.mr.Release()
			if err != nil {
				continue // no descriptors left: it is read through the rings
			}
			fds = append(fds, fd)
			b = appendShown(b, e.slot, e.key, e.where, uint64(len(e.mr.Bytes())))
		}
		s.news = slices.Delete(s.news, 0, n)
		if n == 0 {
			s.telling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if len(b) > 0 {
			_ = s.q.sendMessage(append([]byte{msgRegions}, b...), fds) // else read through the rings
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// stop ends it, when the QP is in ERR. Until everything is taken back it keeps
// mu: a region that is closed meanwhile waits for that.
func (s *showing) stop() {
	x := &s.q.pd.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.peers, s.q)
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
