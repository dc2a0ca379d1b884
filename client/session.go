package client

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A session is one connection to one incarnation of a server, with everything
// that is only good as long as it lasts: the view with its rkeys, the lease,
// the directory and location caches, the credits. None of it outlives the
// session, so nothing of a former incarnation can be believed by mistake: the
// types see to it.
//
// It ends once, for one reason: fail says why and returns; teardown, in a
// goroutine of its own, waits for the fabric to let go of every buffer and for
// callers to leave.
type session struct {
	c           *peer
	t           *transport
	addr        string    // as in Config.Servers
	way         way       // how it was reached
	skipped     []Skipped // and how it was not
	born        time.Time
	version     uint8 // of the messages
	sendOnly    bool  // no right to READ (sendonly.go)
	incarnation uint64
	welcome     wire.Welcome
	server      string      // welcome.ServerID, copied
	node        string      // who he has proved to be, in a cluster
	newsDue     atomic.Bool // it may see another cluster now
	newsAsked   atomic.Bool // somebody is asking it

	sealIn atomic.Pointer[wire.Seal] // of what comes; whoever polls the CQ opens it
	outbox outbox                    // of what is sent

	qp     rdma.QP
	direct rdma.DirectReader // qp, if its READs can be done without it
	now    func() int64      // the lease clock: the peer's, or monoNanos
	cq     rdma.CQ
	d      *rdma.Dispatcher
	rq     requests
	mm     messages // the slots and receives of rq

	reads    *turnstile // send queue space for READs
	view     atomic.Pointer[view]
	dir      *layout.Dir
	cache    *locCache
	lease    lease
	time     serverTime
	touches  touches
	suspects suspects

	wantCredits atomic.Bool   // somebody waits for credits: tell the server
	viewWanted  atomic.Uint64 // a view version that is known to exist
	toldView    atomic.Uint64 // what the last Ping said (viewuse.go)
	looked      atomic.Int64  // coarse time at which a beat or Ping showed the view version
	replaced    replaced
	refreshing  atomic.Bool  // somebody is fetching a view
	beatWanted  atomic.Bool  // the keeper should READ a beat
	pingTurn    *turnstile   // one Ping at a time
	pinged      atomic.Int64 // coarse time of the last Ping
	heard       atomic.Int64 // coarse time of the last message from the server
	sentAt      atomic.Int64 // coarse time of the last request
	askedAt     atomic.Int64 // likewise, Pings aside

	readsPosted, readsDone atomic.Uint64 // batches; mindCalls compares them
	overdue                overdue

	users   atomic.Int64  // slots in use, and teardown waits for them
	idle    chan struct{} // cap 1: users has become 0
	downNow atomic.Bool
	down    chan struct{} // closed when the session takes no more work
	gone    chan struct{} // closed when nothing of it is left

	mu    sync.Mutex
	cause error // why it is down
}

// use enters the session; false if it is down. unuse leaves it.
func (s *session) use() bool {
	s.users.Add(1)
	if s.downNow.Load() { // looked at after the count: see teardown
		s.unuse()
		return false
	}
	return true
}

func (s *session) unuse() {
	if s.users.Add(-1) == 0 && s.downNow.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

func (s *session) isDown() bool { return s.downNow.Load() }

// fail ends the session for the given reason, once. It does not wait.
func (s *session) fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return
	}
	s.cause = cause
	s.downNow.Store(true)
	close(s.down)
	go s.teardown()
}

// why returns what ended the session.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return errLost
	}
	return s.cause
}

// watchQP turns the end of the connection into the end of the session.
func (s *session) watchQP() {
	select {
	case <-s.qp.Done():
		s.fail(s.qp.Err())
	case <-s.down:
	}
}

// drainPatience bounds the wait for a fabric that does not flush its receives, or
// its READs, although Close has returned: a broken fabric must not hang Close.
const drainPatience = 5 * time.Second

// teardown runs once, after fail. The order matters: replies that have already
// arrived are delivered before the rest is told that the session is lost, and
// memory goes only when neither fabric nor caller can touch it.
func (s *session) teardown() {
	defer close(s.gone)
	lost := errLost
	s.rq.turns.close(lost)
	s.rq.credits.close(lost)
	s.reads.close(lost)
	s.pingTurn.close(lost)
	s.qp.Close() // flushes; every completion is on the CQ when it returns
	if s.rq.posted.Load() == 0 {
		s.drainedAll()
	}
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	if s.d.Err() == nil { // nobody polls a completion queue that has failed
		select {
		case <-s.rq.drained:
		case <-timer.C:
			s.c.log.Error("fabric did not flush all receives", "server", s.addr)
		}
	}
	for _, sl := range s.rq.slots {
		if id := sl.inflight.Load(); id != 0 {
			s.d.Complete(id, rdma.WC{Status: rdma.StatusWRFlushErr})
			if late := sl.late.Swap(0); late != 0 {
				sl.part() // its waiter left long ago
			}
		}
	}
	// Who waits for a READ that the fabric has lost sleeps in the queue: its end
	// wakes him.
	wake := time.AfterFunc(drainPatience, func() {
		s.c.log.Error("fabric did not flush all READs", "server", s.addr)
		_ = s.cq.Close() // destroy says what is wrong with it
	})
	s.d.Close() // flushes what is left: SENDs, READs given up on
	wake.Stop()
	for s.users.Load() != 0 {
		<-s.idle
	}
	s.destroy()
}

// drainedAll notes that the fabric holds no receive; it counts only at the end.
func (s *session) drainedAll() {
	if !s.isDown() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.rq.drained:
	default:
		close(s.rq.drained)
	}
}

// destroy frees what build made, as far as it came.
func (s *session) destroy() {
	var errs []error
	if s.qp != nil {
		errs = append(errs, s.qp.Close())
	}
	if s.d != nil {
		errs = append(errs, s.d.Close())
		s.c.waits.end(s.d)
	}
	if s.cq != nil {
		errs = append(errs, s.cq.Close())
	}
	switch {
	case s.mm.mr == nil:
	case s.rq.posted.Load() != 0: // the fabric has lost some of it: for nobody else
		errs = append(errs, s.mm.close())
	default:
		errs = append(errs, s.c.transports.putMessages(s.t, s.mm))
	}
	s.c.transports.leave(s.t)
	if err := errors.Join(errs...); err != nil {
		s.c.log.Error("closing a connection", "server", s.addr, "err", err)
	}
}

// goodbye: the server will end the session. Requests under way are still
// answered; new ones wait for the next session.
func (s *session) goodbye(h wire.Header, body []byte) {
	s.c.log.Info("server ends the session", "server", s.addr, "why", wire.ParseGoodbye(h, body))
	s.c.retire(s)
}

// info describes the session for people.
func (s *session) info() ServerInfo {
	conn, attr := s.qp.Info(), s.t.dev.Attr()
	p := conn.Path
	if p.Device == "" {
		p.Device = s.t.dev.Name()
	}
	return ServerInfo{
		Address: s.addr, ID: s.server, Node: s.node, Incarnation: s.incarnation, Session: s.welcome.Session,
		Protocol: s.version, Shards: int(s.welcome.Shards),
		MaxKey: int(s.welcome.MaxKey), MaxValue: int64(s.welcome.MaxValue),
		LeaseOff:  s.lease.off,
		Transport: conn.Detail, Fabric: attr.Fabric, Software: s.t.software, Device: p.Device,
		Port: p.Port, GID: p.GID, GIDIndex: p.GIDIndex, GIDType: p.GIDType,
		PeerGID: p.PeerGID, LID: p.LID, MTU: p.MTU,
		Why: s.way.why, Skipped: s.skipped,
	}
}
