package server

import (
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// handlers are the handler of the sessions of one space.
type handlers struct {
	srv     *Server
	grow    growth
	watches watches      // long polls that wait (watch.go)
	held    atomic.Int64 // places that are held for clients
}

var _ session.Handler = (*handlers)(nil)

func newHandlers(srv *Server) *handlers {
	return &handlers{srv: srv, grow: growth{wake: make(chan struct{}, 1)}}
}

// A conn is what the handlers know of one session.
type conn struct {
	h   *handlers
	srv *Server // the space, as h.srv
	s   *session.Session

	follower memory.Follower // by which tables the client READs

	nextTouches atomic.Int64 // when touches are taken again, Server.now
	documents   documents
	polls       int // watches that wait; guarded by watches.mu

	mu       sync.Mutex // a leaf, as documents.mu is
	holds    map[uint64]*hold
	nextHold uint64
	closed   bool // no place is held any more
}

func (h *handlers) newConn(s *session.Session) *conn { return &conn{h: h, srv: h.srv, s: s} }

func (h *handlers) Open(s *session.Session) (session.Conn, wire.Welcome, error) {
	srv := h.srv
	if err := srv.Err(); err != nil {
		return nil, wire.Welcome{}, err
	}
	// The reclaim version first: places learnt from now on are younger.
	reclaim := srv.store.ReclaimVersion()
	view := srv.store.View()
	w := wire.Welcome{
		Incarnation: srv.incarnation, ViewVersion: view.Version, ReclaimVersion: reclaim,
		MaxValue: maxValue, MaxKey: maxKey, Shards: view.Shards, Regions: uint32(len(view.Regions)),
	}
	if srv.cfg.LeaseOff {
		w.Flags |= wire.WelcomeLeaseOff
	}
	if !s.Login.OneSided {
		w.Flags |= wire.WelcomeSendOnly
		w.Regions = 0
	}
	if srv.owned != nil {
		w.Flags |= wire.WelcomeClustered
	}
	if srv.store.WantsTouches() {
		w.Flags |= wire.WelcomeTouches
	}
	c := h.newConn(s)
	srv.turnover.Followers.Add(&c.follower, c)
	return c, w, nil
}

// Handle judges a request by its type and has it run where its row says.
func (c *conn) Handle(r *session.Request) {
	o, _ := r.Scratch.(*op)
	if o == nil { // the first request in this buffer
		o = &op{Request: r}
		r.Scratch = o
	}
	srv := c.srv
	o.c, o.row = c, srv.root.kinds.row(r.Header.Type, r.Body)
	if !o.permit() {
		return
	}
	switch o.row.where {
	case onLane:
		o.row.run(o)
	case onGets:
		srv.pool.submit(o)
	case onScans:
		srv.scans.submit(o)
	case onCluster:
		srv.root.clusters.submit(o)
	case onAdmin:
		srv.root.admins.submit(o)
	}
}

func (c *conn) Tick(now int64) { c.expireHolds(now) }

func (c *conn) Cancel() {
	h := c.h
	h.grow.drop(c)
	h.watches.drop(c)
	root := h.srv.root
	for _, w := range [...]*workers{h.srv.pool, h.srv.scans, root.clusters, root.admins} {
		for _, o := range w.take(c.s) {
			o.Drop()
		}
	}
}

func (c *conn) Close() {
	c.srv.turnover.Followers.Remove(&c.follower)
	c.dropHolds()
}

// Dismiss asks a client that READs by a table which is too old to connect again.
func (c *conn) Dismiss() {
	c.s.Dismiss(base.CauseTable, "connect again for the new region table")
}

// Cut ends the session of one that has not.
func (c *conn) Cut(why error) { c.s.End(base.CauseTable, why) }

// An op is a request as its handler sees it. It stays with the receive buffer of the
// request, and is used again for the next one that arrives there.
type op struct {
	*session.Request
	c     *conn
	row   *row
	write store.Write
	stage *memory.Stage // of a large put or batch
	asks  bool          // the write waits for the disk, on the pool
	poll  poll          // of a watch
}

// Reset drops what the op refers to, so that an idle buffer keeps nothing alive. The
// stage is not released: whoever drops a request that has one does that first.
func (o *op) Reset() {
	o.c, o.stage, o.asks = nil, nil, false
	o.write = store.Write{}
	o.poll = poll{}
}

// refuse answers with what an error of the store means to a client.
func (o *op) refuse(err error) {
	st, detail := statusOf(err)
	o.Failed(st, detail, err)
}
