package server

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/deaf"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A deafQP is the client of a session.
type deafQP struct {
	*deaf.QP
	over chan struct{} // closed when the session has ended
	rail *session.Rail
	held int64 // bytes that were held for the tenant before the session began
}

// deafRails are the rails over deaf devices, by *space.Space. They end with it.
var deafRails sync.Map

// deafRail returns the one of a node, or of a space.
func deafRail(t testing.TB, sp *space.Space) *session.Rail {
	if r, ok := deafRails.Load(sp); ok {
		return r.(*session.Rail)
	}
	opened := base.NewDevice(nil, "", deaf.Device{}, sp.Draining.Load, func(*base.Device, error) {})
	r, err := sp.MakeRail(opened)
	if err == nil {
		r.Index = 0 // in regions and staging: as the first real one
		err = r.MakeLanes(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.RunLanes()
	deafRails.Store(sp, r)
	return r
}

// deafSession makes a session over a deafQP, and opens it or not.
func deafSession(t testing.TB, srv *Server, open bool) (*session.Session, *deafQP) {
	return deafSessionOf(t, srv.main, srv.logins.Find(wire.Tenant{}), open)
}

// deafSessionOf makes one of a login that uses the space.
func deafSessionOf(t testing.TB, sp *space.Space, by *auth.Login, open bool) (*session.Session, *deafQP) {
	t.Helper()
	r := deafRail(t, sp)
	place, err := sp.Registry.Admit(session.SourceOf("192.0.2.1:1"))
	if place == nil {
		t.Fatal(err)
	}
	req := deaf.NewRequest()
	k := session.Knock{ConnRequest: req, Connect: deaf.Connect, Version: wire.VersionMax, Login: by, Place: place, Incarnation: sp.Incarnation}
	s, err := sp.Sessions.Begin(r.Pick(), k)
	if err != nil {
		t.Fatal(err)
	}
	s.Packs = true // its Connect names no features
	held := by.Held.Load()
	over := make(chan struct{})
	go func() {
		defer close(over)
		run, gone, ok := sp.Enter()
		if ok {
			defer gone()
		}
		s.Serve(run, k)
	}()
	q := &deafQP{req.Accepted(t, by.Secret.Reveal()), over, r, held}
	if open {
		q.Open(t, session.MinReplySize, func() bool { return !s.Busy() })
		if s.Ended() {
			t.Fatal("it does not open")
		}
	}
	return s, q
}

// feed lets one message arrive and waits until its handler is done.
func feed(t testing.TB, s *session.Session, q *deafQP, msg []byte) {
	t.Helper()
	q.Feed(t, msg, func() bool { return !s.Busy() })
}

// endDeaf ends a deaf session and checks that it has left nothing behind. A session of the
// same tenant that began later and holds places has ended before.
func endDeaf(t testing.TB, s *session.Session, q *deafQP) {
	t.Helper()
	q.End()
	select {
	case <-q.over:
	case <-time.After(20 * time.Second):
		t.Fatal("a session does not end")
	}
	q.Mu.Lock()
	if n := len(q.Recvs); n != 0 {
		t.Errorf("%d receives are posted on a queue pair that is closed", n)
	}
	q.Mu.Unlock()
	if s.Busy() {
		t.Error("a request is under way in a session that has ended")
	}
	if n := s.Login.Held.Load(); n > q.held {
		t.Errorf("%d bytes are held for a tenant whose session has ended, %d before it began", n, q.held)
	}
	for i, n := range q.rail.Buffers() {
		// Another session of the test may have some.
		if n.Used > 16 {
			t.Errorf("%d buffers of kind %d in use", n.Used, i)
		}
	}
}

// A between stands between sessions and their handler.
type between struct {
	session.Handler
	before atomic.Pointer[func(*session.Request)] // is called with each request
}

// standBetween stands before the handler of the sessions that are opened from now on.
func standBetween(sp *space.Space) *between {
	b := &between{Handler: sp.Sessions.Handler}
	sp.Sessions.Handler = b
	return b
}

func (b *between) Open(s *session.Session) (session.Conn, wire.Welcome, error) {
	c, w, err := b.Handler.Open(s)
	return betweenConn{c, b}, w, err
}

type betweenConn struct {
	session.Conn
	b *between
}

func (c betweenConn) Handle(r *session.Request) {
	if f := c.b.before.Load(); f != nil {
		(*f)(r)
	}
	c.Conn.Handle(r)
}
