package client

import (
	"sync"

	"github.com/rdmakv/rdmakv/internal/teeth"
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
	list []*view
}

// takeView puts v in force if it is newer.
func (s *session) takeView(v *view) {
	r := &s.replaced
	r.mu.Lock()
	defer r.mu.Unlock()
	old := s.view.Load()
	if old != nil {
		if old.Version >= v.Version {
			return
		}
		r.list = append(r.list, old)
		s.newsDue.Store(true) // the version counts the changes of the cluster, too
		s.c.poke()
	}
	s.view.Store(v)
	s.c.n.views.Add(1)
}

// usedView returns the oldest version that READs of this session may still go
// by: none by an older one is under way, or will be posted.
func (s *session) usedView() uint64 {
	r := &s.replaced
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := s.view.Load().Version
	if teeth.Off(teeth.D6ReadsEndFirst) {
		return oldest
	}
	kept := r.list[:0]
	for _, v := range r.list {
		// Who is about to post under it has counted itself, or will see that it
		// was replaced.
		if v.inUse() {
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
func (b *batch) enterView() error {
	for {
		v := b.s.view.Load()
		v.under.Add(1)
		if b.s.view.Load() != v {
			v.under.Add(-1) // replaced meanwhile, and perhaps given up already
			continue
		}
		if v == b.v {
			return nil
		}
		for i, p := range b.from {
			remote, ok := v.at(p, int(b.sges[i].Len))
			if !ok {
				v.under.Add(-1)
				return errNoRegion
			}
			b.wrs[i].Remote = remote
		}
		b.v = v
		return nil
	}
}

// sawView notes that the server has a view of that version.
func (s *session) sawView(version uint64) {
	s.looked.Store(s.c.coarse.Load())
	if version <= s.view.Load().Version {
		return
	}
	for {
		old := s.viewWanted.Load()
		if old >= version || s.viewWanted.CompareAndSwap(old, version) {
			break
		}
	}
	s.c.poke()
}

// viewInPing is what a Ping says of the views in use.
func (s *session) viewInPing() uint64 {
	v := s.usedView()
	s.toldView.Store(v)
	return v
}

// mindView tells the server when old views are out of use, and asks it whether
// there is a newer one, if neither beat nor Ping has told for a while.
func (m *minding) mindView() {
	s := m.s
	if !s.pingTurnFree() {
		return
	}
	if s.usedView() > s.toldView.Load() || s.c.coarse.Load()-s.looked.Load() >= s.quiet() {
		m.ping(nil)
	}
}
