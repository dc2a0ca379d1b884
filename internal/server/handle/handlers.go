package handle

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An Env is what the handlers of one space use of the space and of its node.
type Env struct {
	Store     *store.Store
	Shards    int
	Regions   *memory.Regions   // what clients of a device are told of them
	Followers *memory.Followers // of the sessions that may READ
	Staging   *memory.Staging
	Sessions  *session.Group
	Owned     *base.Ownership // of the node; nil: it is alone
	Shared    func() bool     // whether more than one tenant may use the space
	Fence     *base.Fence
	Clock     base.Clock
	Counters  *base.Counters
	Bounds    *base.Bounds
	Makers    *Makers // of documents
	// LeaderOf is the node of a replica that leads a group, "" if that is not known; nil: the space has no replicas.
	LeaderOf func(consensus.GroupID, consensus.ReplicaID) string

	// The workers. Those of Clusters and Admins are the node's.
	Gets     *work.Pool // gets, and writes that ask the disk
	Scans    *work.Pool // what takes long by nature, so that gets do not queue behind it
	Clusters *work.Pool // what a client has to know before it can begin; no scan can fill them
	Admins   *work.Pool // what an operator asks

	Lease         time.Duration // of the store
	LeaseOff      bool          // clients READ without one
	MaxPoll       time.Duration // how long a watch may wait
	MaxWatches    int           // that wait at the same time
	TenantWatches int           // of them, those of one tenant
}

// Handlers are the handler of the sessions of one space.
type Handlers struct {
	Env
	grow    growth
	slow    slowdown
	watches watches       // long polls that wait (watch.go)
	held    atomic.Int64  // places that are held for clients
	heads   chan struct{} // a token for whoever reads the parts of a head, to compare them

	submitTo func(*store.Write) error // Store.Submit; tests stand before it
}

var _ session.Handler = (*Handlers)(nil)

// New makes the handlers of a space that is open.
func New(env Env) *Handlers {
	return &Handlers{
		Env: env, grow: growth{wake: make(chan struct{}, 1)}, slow: slowdown{wake: make(chan struct{}, 1)},
		submitTo: env.Store.Submit, heads: make(chan struct{}, 1),
	}
}

// Watches returns how many watches wait.
func (h *Handlers) Watches() int { return h.watches.waiting() }

// Growing returns how many writes wait for memory that is being registered.
func (h *Handlers) Growing() int { return h.grow.waiting() }

// Slowed returns how many writes wait because the log is nearly full.
func (h *Handlers) Slowed() int { return h.slow.waiting() }

// Refuse answers the watches that wait, and no watch waits from then on; and the scans
// that wait for workers: the space is closing, and a queue of scans may take longer than
// it has.
func (h *Handlers) Refuse() {
	h.watches.close()
	for _, s := range h.Sessions.List() {
		for _, r := range take(h.Scans, s) {
			r.Fail(wire.StatusClosing, "")
		}
		s.Flush()
	}
}

// Held returns how many places are held for clients.
func (h *Handlers) Held() int { return int(h.held.Load()) }

// A conn is what the handlers know of one session.
type conn struct {
	h   *Handlers
	env *Env // of h
	s   *session.Session

	follower memory.Follower // by which tables the client READs

	nextTouches atomic.Int64 // when touches are taken again, by the clock of the space
	documents   documents
	polls       int // watches that wait; guarded by watches.mu

	mu       sync.Mutex // a leaf, as documents.mu is
	holds    map[uint64]*hold
	nextHold uint64
	closed   bool // no place is held any more
}

func (h *Handlers) newConn(s *session.Session) *conn { return &conn{h: h, env: &h.Env, s: s} }

func (h *Handlers) Open(s *session.Session) (session.Conn, wire.Welcome, error) {
	env := &h.Env
	if err := env.Fence.Err(); err != nil {
		return nil, wire.Welcome{}, err
	}
	// The reclaim version first: places learnt from now on are younger.
	reclaim := env.Store.ReclaimVersion()
	view := env.Store.View()
	w := wire.Welcome{
		Incarnation: env.Store.Incarnation(), ViewVersion: view.Version, ReclaimVersion: reclaim,
		MaxValue: maxValue, MaxKey: maxKey, Shards: view.Shards, Regions: uint32(len(view.Regions)),
	}
	if env.LeaseOff {
		w.Flags |= wire.WelcomeLeaseOff
	}
	if !s.OneSided {
		w.Flags |= wire.WelcomeSendOnly
		w.Regions = 0
	}
	if s.Words() {
		w.Flags |= wire.WelcomeWords
	}
	if env.Owned != nil {
		w.Flags |= wire.WelcomeClustered
	}
	if s.Parts {
		w.MaxValue = layout.MaxWholeLen
		if env.Store.Parts().MayLose() {
			w.Flags |= wire.WelcomeCache
		}
	}
	if env.Store.WantsTouches() {
		w.Flags |= wire.WelcomeTouches
	}
	c := h.newConn(s)
	env.Followers.Add(&c.follower, c)
	return c, w, nil
}

// Handle judges a request by its type and has it run where its row says.
func (c *conn) Handle(r *session.Request) {
	o, _ := r.Scratch.(*op)
	if o == nil { // the first request in this buffer
		o = &op{Request: r}
		r.Scratch = o
	}
	o.c, o.row = c, rowOf(r.Header.Type, r.Body)
	if !o.permit() {
		return
	}
	switch o.row.where {
	case onLane:
		o.row.run(o)
	case onGets:
		submit(c.env.Gets, o)
	case onScans:
		submit(c.env.Scans, o)
	case onCluster:
		submit(c.env.Clusters, o)
	case onAdmin:
		submit(c.env.Admins, o)
	}
}

func (c *conn) Tick(now int64) { c.expireHolds(now) }

func (c *conn) Cancel() {
	c.h.grow.drop(c)
	c.h.slow.drop(c)
	c.h.watches.drop(c)
	for _, p := range [...]*work.Pool{c.env.Gets, c.env.Scans, c.env.Clusters, c.env.Admins} {
		for _, o := range take(p, c.s) {
			drop(o)
		}
	}
}

// Close is called when no READ of the session completes any more.
func (c *conn) Close() {
	c.env.Followers.Remove(&c.follower)
	c.dropHolds()
}

// Dismiss asks a client that READs by a table which is too old to connect again.
func (c *conn) Dismiss() {
	c.s.Dismiss(base.CauseTable, "connect again for the new region table")
}

// Cut ends the session of a client that has not done so.
func (c *conn) Cut(why error) { c.s.End(base.CauseTable, why) }

// An op is a request as its handler sees it. It stays with the receive buffer of the
// request, and serves the next request that arrives there.
type op struct {
	*session.Request
	c     *conn
	row   *row
	write store.Write
	stage *memory.Stage // of a large put or batch
	aged  time.Duration // of the write's age, what addAge has added
	waits int64         // since when it is slowed down, on the clock of the node; 0: it is not
	asks  bool          // the write waits for the disk, on the pool
	reign uint64        // in which this node leads the group of the key; 0: it is in none
	poll  poll          // of a watch
	// shards are those of the group of keys that is asked for; nil: the request is for no group. They are the map's.
	shards []uint16
}

// Reset drops what the op refers to, so that an idle buffer keeps nothing alive. It
// does not release the stage: what drops a request that has one releases it before.
func (o *op) Reset() {
	o.c, o.stage, o.asks, o.reign, o.shards = nil, nil, false, 0, nil
	o.write = store.Write{}
	o.poll = poll{}
}

// refuse answers with what an error of the store means to a client.
func (o *op) refuse(err error) {
	if refusedLeader(o, err) {
		return
	}
	st, detail := statusOf(err)
	o.Failed(st, detail, err)
}

// pooled is a request as a pool of workers sees it.
type pooled op

func (j *pooled) Drop()          { drop((*op)(j)) }
func (j *pooled) Again() bool    { return j.poll.begun }
func (j *pooled) AddGrant(n int) { (*op)(j).Request.AddGrant(n) }

// Run handles the request where it may wait for the disk.
func (j *pooled) Run() {
	if j.asks {
		(*op)(j).ask()
		return
	}
	j.row.run((*op)(j))
}

func (j *pooled) Refuse() {
	r, l := (*op)(j), j.Session.Login
	r.Withhold()
	r.stage.Release()
	r.Overloaded(base.BoundLoginQueue, fmt.Sprintf("tenant %s has %d requests of this kind in the queue", l.Label, l.MaxQueued))
}

// submit queues a request with workers, which refuse it if its login has too many in
// the queue, or drop it if its session or the pool has ended.
func submit(to *work.Pool, r *op) { to.Submit(r.Session.Line(), (*pooled)(r)) }

// take takes the waiting requests of a session out; they are the caller's.
func take(from *work.Pool, s *session.Session) (mine []*op) {
	for _, j := range from.Take(s.Line()) {
		mine = append(mine, (*op)(j.(*pooled)))
	}
	return mine
}
