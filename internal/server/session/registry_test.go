package session

import (
	"errors"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// TestRegistry: sessions of all groups count for the node, its hosts and their tenant; a
// session that has lost its place does not open; nothing is left of those that are
// forgotten, and nobody comes into a group that is sealed.
func TestRegistry(t *testing.T) {
	r := NewRegistry(RegistryLimits{Sessions: 4, PerHost: 2, Setups: 8, SetupsPerHost: 8}, new(base.Bounds))
	main, space := &Group{all: make(map[uint64]*Session)}, &Group{all: make(map[uint64]*Session)}
	l := &auth.Login{Tenant: auth.Tenant{MaxSessions: 3}}
	begin := func(of *Group, host string) *Session {
		t.Helper()
		place, err := r.Admit(Source{host, "net"})
		if place == nil {
			t.Fatal(err)
		}
		s := &Session{Login: l, setup: place}
		r.add(of, s)
		return s
	}
	want := func(setups, opens, ofSpace int) {
		t.Helper()
		if s, o := r.Counts(); s != setups || o != opens || r.opensIn(space) != ofSpace || int(l.Sessions.Load()) != opens {
			t.Fatalf("%d being set up, %d open, %d in the space, %d of the tenant; want %d, %d, %d", s, o, r.opensIn(space), l.Sessions.Load(), setups, opens, ofSpace)
		}
	}
	a, b, c := begin(main, "x"), begin(space, "x"), begin(space, "x")
	want(3, 0, 0)
	for _, s := range []*Session{a, b} {
		of := main
		if s == b {
			of = space
		}
		if err := r.opened(of, s); err != nil {
			t.Fatal(err)
		}
	}
	want(1, 2, 1)
	if err := r.opened(space, c); !errors.Is(err, base.ErrBound(base.BoundHostSessions)) {
		t.Errorf("a third session of a host: %v", err)
	}
	if place, err := r.Admit(Source{"x", "net"}); place != nil || !errors.Is(err, base.ErrBound(base.BoundHostSessions)) {
		t.Errorf("a place for a host that has its sessions: %v", err)
	}
	lost := begin(space, "y")
	r.mu.Lock()
	r.setups.remove(lost.setup) // as an eviction does
	r.setups.ending++
	r.mu.Unlock()
	if err := r.opened(space, lost); !errors.Is(err, base.ErrBound(base.BoundSetups)) {
		t.Errorf("one that has lost its place: %v", err)
	}
	if a.ID == b.ID || len(r.list(space)) != 3 || len(r.list(main)) != 1 {
		t.Errorf("%d in the space, %d in the node", len(r.list(space)), len(r.list(main)))
	}
	if setups, opens := r.Fullest(); setups != 1 || opens != 2 {
		t.Errorf("the fullest host has %d places and %d sessions", setups, opens)
	}
	for s, open := range map[*Session]bool{b: true, c: false, lost: false} {
		if r.forget(space, s) != open {
			t.Errorf("session %d: open is not %v", s.ID, open)
		}
	}
	want(0, 1, 0)
	if !r.forget(main, a) || len(r.list(main))+len(r.list(space)) != 0 || len(r.opensOf) != 0 || r.setups.ending != 0 {
		t.Errorf("left: %v, %d ending", r.opensOf, r.setups.ending)
	}
	want(0, 0, 0)
	var life sync.WaitGroup
	yes := func() bool { return true }
	if r.enter(space, &life, func() bool { return false }) || !r.enter(space, &life, yes) {
		t.Error("a group lets in who is not served, or not who is")
	}
	r.seal(space)
	if r.enter(space, &life, yes) || !r.enter(main, &life, yes) {
		t.Error("a group that is sealed lets one in, or another one does not")
	}
	life.Done()
	life.Done()
	life.Wait()
}
