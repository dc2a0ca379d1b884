package session

import (
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Which views a session's READs go by. rkeys change and regions go while gets are
// made, and a READ with an rkey that is no more would end the connection. So the
// server keeps what it takes out of the table until every session has said that
// it is past it, and a session says so truthfully:
//
//	newer view in force ──▶ nothing is posted under the old one ──▶ what was posted
//	                        (post looks after it has counted itself)   has completed
//	                                                                        │
//	                                                     Ping: the oldest version in use
//
// No clock and no lease is asked. A get is not held up: what it has prepared under
// an old view is posted by the newer one, place by place.
//
// That there is a newer view is shown by the beat, which gets carry along, and by
// the reply to each Ping; the watch sees to it that one of them comes by once in a
// keepalive. It is fetched by a goroutine of its own. Only a get that meets a
// region that it does not know fetches it itself.

// replaced are the views of a session that were in force, and whose READs may be
// under way.
type replaced struct {
	mu   sync.Mutex
	list []*View
}

// TakeView puts v in force if it is newer.
func (s *Session) TakeView(v *View) {
	if s.replaceView(v) {
		s.newsDue.Store(true) // the version counts the changes of the cluster, too
		s.Owner.Wake()
	}
}

// replaceView is takeView under its lock; it reports whether v replaces another view.
func (s *Session) replaceView(v *View) bool {
	r := &s.replaced
	r.mu.Lock()
	defer r.mu.Unlock()
	old := s.view.Load()
	if old != nil {
		if old.Version >= v.Version {
			return false
		}
		r.list = append(r.list, old)
	}
	s.view.Store(v)
	s.Counts.ViewRefreshes.Add(1)
	return old != nil
}

// UsedView returns the oldest version that READs of this session may still go
// by: none by an older one is under way, or will be posted.
func (l *sight) UsedView() uint64 {
	r := &l.replaced
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := l.view.Load().Version
	kept := r.list[:0]
	for _, v := range r.list {
		// A batch that is about to be posted under it has counted itself, or will see
		// that the view was replaced.
		if v.InUse() {
			kept = append(kept, v)
			oldest = min(oldest, v.Version)
		}
	}
	clear(r.list[len(kept):])
	r.list = kept
	return oldest
}

// enterView counts the batch as posted under the view in force, and has its READs
// go by that.
func (b *Reads) enterView() error {
	for {
		v := b.s.view.Load()
		v.under.Add(1)
		if b.s.view.Load() != v {
			v.under.Add(-1) // replaced meanwhile, and perhaps given up already
			continue
		}
		if v == b.View {
			return nil
		}
		for i, p := range b.from {
			remote, ok := v.at(p, int(b.sges[i].Len))
			if !ok {
				v.under.Add(-1)
				return base.ErrNoRegion
			}
			b.wrs[i].Remote = remote
		}
		b.View = v
		return nil
	}
}

// sawView notes that the server has a view of that version.
func (s *Session) sawView(version uint64) {
	s.looked.Store(s.Clock.Coarse())
	if version <= s.view.Load().Version {
		return
	}
	for {
		old := s.viewWanted.Load()
		if old >= version || s.viewWanted.CompareAndSwap(old, version) {
			break
		}
	}
	s.Owner.Wake()
}

// viewInPing is what a Ping says of the views in use.
func (l *sight) viewInPing() uint64 {
	v := l.UsedView()
	l.toldView.Store(v)
	return v
}

// checkView tells the server when old views are out of use, and asks it whether
// there is a newer one, if neither beat nor Ping has told for a while.
func (m *memory) checkView() {
	s := m.s
	if !s.pingTurnFree() {
		return
	}
	if s.UsedView() > s.toldView.Load() || s.Clock.Coarse()-s.looked.Load() >= quiet(s) {
		m.ping(nil)
	}
}

// ReadDirect READs from a place by the view in force. It is false if that view does
// not have the place.
func (s *Session) ReadDirect(stripe int, p layout.Place, sink []byte) (rdma.Status, bool) {
	v := s.enterDirect(stripe)
	remote, ok := v.at(p, len(sink))
	status := rdma.StatusSuccess
	if ok {
		status = s.direct.ReadDirect(sink, remote)
	}
	v.direct[stripe].n.Add(-1)
	return status, ok
}

// enterDirect counts a READ by the view in force, in direct[stripe], and returns that
// view.
func (l *sight) enterDirect(stripe int) *View {
	for {
		v := l.view.Load()
		v.direct[stripe].n.Add(1)
		if l.view.Load() == v { // as batch.enterView
			return v
		}
		v.direct[stripe].n.Add(-1)
	}
}

// Copies are READs of mapped memory that are made together.
type Copies []Copy

// A Copy is one of Copies.
type Copy struct {
	Place  layout.Place
	Sink   []byte
	Status rdma.Status
	Known  bool // the view has the place; otherwise nothing was READ

	remote rdma.RemoteAddr
}

// Read does what Session.ReadDirect does, for each place by the same view, and has the processor fetch all of
// them before it copies the first.
func (copies Copies) Read(s *Session, stripe int) {
	v := s.enterDirect(stripe)
	defer v.direct[stripe].n.Add(-1)
	for i := range copies {
		c := &copies[i]
		if c.remote, c.Known = v.at(c.Place, len(c.Sink)); c.Known && s.ahead != nil {
			s.ahead.PrefetchDirect(c.remote, len(c.Sink))
		}
	}
	for i := range copies {
		if c := &copies[i]; c.Known {
			c.Status = s.direct.ReadDirect(c.Sink, c.remote)
		}
	}
}

// LearnRegions fetches a newer view than the one a get was made with, and
// reports whether there is one now. One get does it, at the cost of the SEND
// that it would have made anyway; those beside it ask for their value.
func (s *Session) LearnRegions(p *base.Limit, version uint64) bool {
	if s.view.Load().Version > version {
		return true
	}
	if !s.refreshing.CompareAndSwap(false, true) {
		return false
	}
	defer s.refreshing.Store(false)
	if err := s.RefreshView(p); err != nil {
		return false // the value's own request will meet the reason again
	}
	return s.view.Load().Version > version
}
