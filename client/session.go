package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
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
	c           *Client
	addr        string
	version     uint8 // of the messages
	incarnation uint64
	welcome     wire.Welcome
	server      string // welcome.ServerID, copied

	qp rdma.QP
	cq rdma.CQ
	d  *rdma.Dispatcher
	rq requests
	mm *memory.Block // message buffers
	mr []rdma.MR     // over mm

	reads *turnstile // send queue space for READs
	view  atomic.Pointer[view]
	dir   *layout.Dir
	cache *locCache
	lease lease

	wantCredits atomic.Bool   // somebody waits for credits: tell the server
	viewWanted  atomic.Uint64 // a view version that is known to exist
	refreshing  atomic.Bool   // somebody is fetching a view
	beatWanted  atomic.Bool   // the keeper should READ a beat
	pingTurn    *turnstile    // one Ping at a time
	pinged      atomic.Int64  // coarse time of the last Ping
	heard       atomic.Int64  // coarse time of the last message from the server
	sentAt      atomic.Int64  // coarse time of the last request

	readsPosted, readsDone atomic.Uint64 // batches; the watch compares them

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

// connect makes a session with the server at addr: connection, proof of the
// secret in both directions, Hello and Welcome, region table, first lease.
func (c *Client) connect(ctx context.Context, addr string) (_ *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	s := &session{
		c: c, addr: addr,
		reads:    newTurnstile(c.cfg.MaxReads, c.cfg.MaxWaiting),
		pingTurn: newTurnstile(1, c.cfg.MaxWaiting),
		idle:     make(chan struct{}, 1),
		down:     make(chan struct{}),
		gone:     make(chan struct{}),
	}
	s.version = wire.VersionMax
	if err := s.build(); err != nil {
		s.destroy()
		return nil, err
	}
	defer func() {
		if err != nil {
			s.fail(err)
			<-s.gone
		}
	}()
	go s.watchQP()

	secret := c.cfg.Secret
	request := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax}
	rand.Read(request.Nonce[:])
	hello := wire.AppendConnect(nil, secret, request)
	info, err := s.qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: hello})
	if err != nil {
		return nil, connectError(err, info.PrivateData)
	}
	accept, err := wire.ParseAccept(info.PrivateData)
	if err != nil {
		return nil, fmt.Errorf("%w: whoever answers at %s does not speak this protocol: %v", ErrProtocol, addr, err)
	}
	if !wire.VerifyAccept(secret, hello, info.PrivateData) {
		return nil, fmt.Errorf("%w: the server does not know the secret", ErrAuth)
	}
	s.version, s.incarnation = accept.Version, accept.Incarnation
	p := patience{c: c, ctx: ctx}
	posted, err := s.hello(&p, hello, info.PrivateData)
	if err != nil {
		return nil, err
	}
	// The server may now READ what large puts stage for it.
	if err := s.qp.SetAccess(rdma.AccessRemoteRead); err != nil {
		return nil, err
	}
	v, reclaim, err := s.fetchView(&p)
	if err != nil {
		return nil, err
	}
	s.view.Store(v)
	s.dir = layout.NewDir(&v.View)
	s.cache = newLocCache(c.cfg.CacheEntries)
	s.lease.start(s.welcome.Lease, posted, reclaim)
	return s, nil
}

// hello proves the secret and takes the server's terms. It returns when the
// request was posted, on the lease clock: the first lease counts from there.
func (s *session) hello(p *patience, connect, accept []byte) (posted int64, err error) {
	sl, err := s.open(p)
	if err != nil {
		return 0, err
	}
	msg := wire.AppendHello(sl.buf[:0], sl.id(), wire.Hello{
		ClientID: s.c.id, ReplySize: messageSize, Name: s.c.name,
	})
	wire.SignHello(msg, s.c.cfg.Secret, connect, accept)
	s.rq.regrant.Store(unaskedReceives)
	posted = s.c.now()
	r, err := sl.call(p, msg)
	if err != nil {
		return 0, err
	}
	w, err := wire.ParseWelcome(r.body)
	if err != nil {
		return 0, r.malformed(err)
	}
	switch {
	case w.Incarnation != s.incarnation:
		return 0, r.malformed(errors.New("another incarnation than the one that accepted"))
	case w.Lease < 10*time.Millisecond || w.Beat <= 0 || w.Beat > w.Lease/2:
		return 0, r.malformed(fmt.Errorf("lease of %v with a beat every %v", w.Lease, w.Beat))
	case w.MaxKey == 0 || w.MaxKey > layout.MaxKeyLen || w.MaxValue > layout.MaxValueLen:
		return 0, r.malformed(fmt.Errorf("keys up to %d bytes, values up to %d", w.MaxKey, w.MaxValue))
	case w.RequestSize < 1024 || w.ReplySize > messageSize:
		return 0, r.malformed(fmt.Errorf("requests of %d bytes, replies of %d", w.RequestSize, w.ReplySize))
	}
	s.server = string(w.ServerID)
	w.ServerID = nil // it was a view of the message
	s.welcome = w
	r.done()
	return posted, nil
}

// requestSize is the largest message that may be sent, in bytes.
func (s *session) requestSize() int { return min(int(s.welcome.RequestSize), messageSize) }

// build makes queue pair, message buffers and slots, and posts the receives.
func (s *session) build() error {
	c := s.c
	slots := c.cfg.MaxInflight + 1 // and one for Ping
	recvs := slots + spareReceives
	var err error
	// Everything that can be outstanding at once has room in the CQ.
	if s.cq, err = c.dev.CreateCQ(c.cfg.MaxReads + slots + recvs); err != nil {
		return err
	}
	s.qp, err = c.pd.CreateQP(rdma.QPConfig{
		SendCQ: s.cq, RecvCQ: s.cq,
		Cap: rdma.QPCap{MaxSendWR: c.cfg.MaxReads + slots, MaxRecvWR: recvs, MaxSGE: 1},
	})
	if err != nil {
		return err
	}
	s.d = rdma.NewDispatcher(s.cq, rdma.DispatcherOptions{Spin: c.cfg.Spin})
	s.d.OnRecv(s.onRecv)
	size := (slots + recvs) * messageSize
	if s.mm, err = memory.Alloc(size, memory.Options{Kind: c.memKind, Tag: "client messages"}); err != nil {
		return err
	}
	mem := s.mm.Bytes()[:size]
	mr, err := c.pd.RegMR(mem, rdma.AccessLocalWrite)
	if err != nil {
		return err
	}
	s.mr = append(s.mr, mr)

	rq := &s.rq
	rq.turns = newTurnstile(c.cfg.MaxInflight, c.cfg.MaxWaiting)
	rq.credits = newTurnstile(1, c.cfg.MaxWaiting) // for Hello
	rq.drained = make(chan struct{})
	rq.recvs, rq.recvMR = mem[:recvs*messageSize], mr
	for i := range recvs {
		rq.recvSGE = append(rq.recvSGE, rdma.SGE{MR: mr, Off: uint64(i * messageSize), Len: messageSize})
	}
	for i := range slots {
		at := (recvs + i) * messageSize
		sl := &slot{s: s, index: i, buf: mem[at : at+messageSize : at+messageSize]}
		sl.sgl[0] = rdma.SGE{MR: mr, Off: uint64(at)}
		sl.wr[0] = rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: sl.sgl[:]}
		sl.onSent, sl.onLate = sl.sent, sl.lateReply
		rq.slots = append(rq.slots, sl)
		if i < slots-1 {
			rq.free = append(rq.free, sl)
		}
	}
	s.d.Start()
	for i := range recvs {
		s.repost(i)
	}
	return nil
}

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

// drainPatience bounds the wait for a fabric that does not flush its receives
// although Close has returned: a broken fabric must not hang Close.
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
	select {
	case <-s.rq.drained:
	case <-timer.C:
		s.c.log.Error("fabric did not flush all receives", "server", s.addr)
	}
	for _, sl := range s.rq.slots {
		if id := sl.inflight.Load(); id != 0 {
			s.d.Complete(id, rdma.WC{Status: rdma.StatusWRFlushErr})
			if late := sl.late.Swap(0); late != 0 {
				sl.part() // its waiter left long ago
			}
		}
	}
	s.d.Close() // flushes what is left: SENDs, READs given up on
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
	}
	for _, mr := range s.mr {
		errs = append(errs, mr.Close())
	}
	if s.cq != nil {
		errs = append(errs, s.cq.Close())
	}
	if s.mm != nil {
		errs = append(errs, s.mm.Free())
	}
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
