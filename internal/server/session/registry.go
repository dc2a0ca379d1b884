package session

import (
	"cmp"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Registry is all connections of a node: the places of those that are being set up, and
// the sessions of the node and of each space, in groups. One lock guards it and all groups;
// nothing else is locked under it, and it is never held over a wait.
type Registry struct {
	maxOpens int // sessions, and those being set up
	perHost  int // sessions of one host
	bounds   *base.Bounds

	mu      sync.Mutex
	lastID  uint64
	setups  setups
	opensOf map[string]int // of opens, by host
	opens   int            // of all groups
}

// RegistryLimits are the bounds of a registry: on sessions, and on those that are being set
// up, of all hosts and of one.
type RegistryLimits struct {
	Sessions, PerHost     int
	Setups, SetupsPerHost int
	// Grace is how long a connection that is being set up is left alone by newcomers of
	// its own source; zero: 200 ms.
	Grace time.Duration
}

func NewRegistry(limits RegistryLimits, bounds *base.Bounds) *Registry {
	return &Registry{
		maxOpens: limits.Sessions, perHost: limits.PerHost, bounds: bounds,
		setups: newSetups(limits.Setups, limits.SetupsPerHost, cmp.Or(limits.Grace, setupGrace)), opensOf: make(map[string]int),
	}
}

// Admit takes one of the places for connections that are being set up. nil: the
// newcomer must be refused, and the error has the bound that is in the way.
func (r *Registry) Admit(src Source) (*Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := r.maxOpens - r.opens
	if room > 0 && r.opensOf[src.host] >= r.perHost {
		return nil, r.bounds.Hit(base.BoundHostSessions)
	}
	place, met := r.setups.take(src, room)
	var err error
	for _, k := range met {
		err = r.bounds.Hit(k)
	}
	return place, err
}

// Clear gives it back.
func (r *Registry) Clear(p *Place) {
	r.mu.Lock()
	r.setups.cleared(p)
	r.mu.Unlock()
}

// MakeRoom takes the place of another one in p's space, because there is nothing left for
// p (setups).
func (r *Registry) MakeRoom(p *Place) {
	r.mu.Lock()
	r.setups.makeRoom(p)
	r.mu.Unlock()
}

// Claim notes the nonce of a request, or says that it is a copy.
func (r *Registry) Claim(p *Place, nonce wire.Nonce) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setups.claim(p, nonce)
}

// Route notes in which group the session of a place will be.
func (r *Registry) Route(p *Place, in *Group) {
	r.mu.Lock()
	p.group = in
	r.mu.Unlock()
}

// enter counts the set-up of a session in, with the life of its space; false once the
// group is sealed or serves says no.
func (r *Registry) enter(of *Group, life *sync.WaitGroup, serves func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.sealed || !serves() {
		return false
	}
	life.Add(1)
	return true
}

// seal ends that: no session comes into the group any more.
func (r *Registry) seal(of *Group) {
	r.mu.Lock()
	of.sealed = true
	r.mu.Unlock()
}

// add enters a session that is being set up, and gives it its number.
func (r *Registry) add(of *Group, s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastID++
	s.ID = r.lastID
	of.all[s.ID] = s
}

// opened counts a session over from those being set up to those that are open,
// or says which bound is in the way.
func (r *Registry) opened(of *Group, s *Session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := s.Login
	switch {
	case int(l.Sessions.Load()) >= l.MaxSessions:
		return l.Hit(r.bounds, base.BoundLoginSessions)
	case r.opensOf[s.setup.host] >= r.perHost:
		return r.bounds.Hit(base.BoundHostSessions)
	case !r.setups.give(s.setup): // to a newcomer, while Hello was on its way
		return base.ErrBound(base.BoundSetups) // counted when it was taken
	}
	l.Sessions.Add(1)
	r.opensOf[s.setup.host]++
	r.opens++
	of.opens++
	s.counted = true
	return nil
}

// forget takes a finished session out. It reports whether it was open.
func (r *Registry) forget(of *Group, s *Session) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(of.all, s.ID)
	if !s.counted {
		r.setups.cleared(s.setup)
		return false
	}
	s.Login.Sessions.Add(-1)
	if r.opensOf[s.setup.host]--; r.opensOf[s.setup.host] <= 0 {
		delete(r.opensOf, s.setup.host)
	}
	r.opens--
	of.opens--
	return true
}

// list returns the sessions of a group as they are now.
func (r *Registry) list(of *Group) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Session, 0, len(of.all))
	for _, s := range of.all {
		list = append(list, s)
	}
	return list
}

// Counts returns how many connections are being set up and how many sessions are open, in
// all groups together.
func (r *Registry) Counts() (setups, opens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.setups.places), r.opens
}

// opensIn returns how many sessions of a group are open.
func (r *Registry) opensIn(of *Group) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return of.opens
}

// Fullest returns how many places, and how many sessions, the host with the most has.
func (r *Registry) Fullest() (setups, opens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.setups.hosts {
		setups = max(setups, n)
	}
	for _, n := range r.opensOf {
		opens = max(opens, n)
	}
	return setups, opens
}
