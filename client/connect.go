package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// connect makes a session with the server at addr, which is reached by w:
// connection, proof of the secret in both directions, Hello and Welcome, region
// table, first lease. reach, a child of ctx, bounds the part in which it may
// turn out that nobody is to be reached this way. answered says that a server
// was: then an error is its refusal or its silence, and another way would only
// lead to the same one.
func (c *peer) connect(ctx, reach context.Context, addr string, w way, t *transport) (_ *session, answered bool, err error) {
	s := &session{
		c: c, t: t, addr: addr, way: w, born: time.Now(), now: c.now,
		reads:    newTurnstile(t.maxReads, c.cfg.MaxWaiting),
		pingTurn: newTurnstile(1, c.cfg.MaxWaiting),
		idle:     make(chan struct{}, 1),
		down:     make(chan struct{}),
		gone:     make(chan struct{}),
	}
	s.version = wire.VersionMax
	if err := s.build(); err != nil {
		c.transports.retire(t) // what refuses queues today may be gone tomorrow: look anew
		s.destroy()
		return nil, false, err
	}
	defer func() {
		if err != nil {
			s.fail(err)
			<-s.gone
		}
	}()
	go s.watchQP()

	secret := c.cfg.Secret
	request := wire.Connect{Min: wire.VersionMin, Max: wire.VersionMax, Features: wire.FeatureAside, Tenant: wire.TenantOf(c.cfg.Tenant)}
	rand.Read(request.Nonce[:])
	hello := wire.AppendConnect(nil, secret, request)
	info, err := s.qp.Connect(reach, w.addr, rdma.ConnParams{PrivateData: hello})
	if err != nil {
		answered, err = connectError(err, info.PrivateData)
		return nil, answered, err
	}
	answer := wire.Unpad(info.PrivateData, wire.AcceptSize)
	accept, err := wire.ParseAccept(answer)
	if err != nil {
		return nil, true, fmt.Errorf("%w: whoever answers at %s does not speak this protocol: %v", ErrProtocol, addr, err)
	}
	if !wire.VerifyAccept(secret, hello, answer) {
		return nil, true, fmt.Errorf("%w: the server does not know the secret", ErrAuth)
	}
	s.version, s.incarnation = accept.Version, accept.Incarnation
	out, in := wire.NewSeals(secret, hello, answer)
	s.outbox.seal = out
	s.sealIn.Store(in)
	p := patience{c: c, ctx: ctx}
	posted, err := s.hello(&p, hello, answer)
	if err != nil {
		return nil, true, err
	}
	// The server may now READ what large puts stage for it.
	if err := s.qp.SetAccess(rdma.AccessRemoteRead); err != nil {
		return nil, true, err
	}
	v, reclaim, err := s.fetchView(&p)
	if err != nil {
		return nil, true, err
	}
	s.view.Store(v)
	s.toldView.Store(v.Version) // it has told us
	s.looked.Store(c.coarse.Load())
	s.dir = layout.NewDir(&v.View)
	s.cache = newLocCache(c.cfg.CacheEntries, reclaim)
	s.touches.start()
	s.suspects.start()
	s.lease.start(s.welcome.Lease, posted, reclaim)
	if err := s.join(&p); err != nil {
		return nil, true, err
	}
	return s, true, nil
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
	posted = s.now()
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
	s.lease.off = w.Flags&wire.WelcomeLeaseOff != 0
	s.sendOnly = w.Flags&wire.WelcomeSendOnly != 0
	s.touches.wanted.Store(w.Flags&wire.WelcomeTouches != 0)
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
	if s.cq, err = s.t.dev.CreateCQ(s.t.maxReads + slots + recvs); err != nil {
		return err
	}
	s.qp, err = s.t.pd.CreateQP(rdma.QPConfig{
		SendCQ: s.cq, RecvCQ: s.cq,
		Cap: rdma.QPCap{MaxSendWR: s.t.maxReads + slots, MaxRecvWR: recvs, MaxSGE: 1},
	})
	if err != nil {
		return err
	}
	if d, ok := s.qp.(rdma.DirectReader); ok {
		s.direct = d
		if c.cfg.clock == nil {
			s.now = monoNanos
		}
	}
	s.d = rdma.NewDispatcher(s.cq, rdma.DispatcherOptions{Wait: c.cfg.Wait, Spin: rdma.SpinTime(s.cq, c.cfg.Wait, c.cfg.Spin)})
	c.waits.begin(s.d)
	s.d.OnRecv(s.onRecv)
	size := (slots + recvs) * messageSize
	if s.mm, err = c.transports.takeMessages(s.t, size); err != nil {
		return err
	}
	mem, mr := s.mm.mem.Bytes()[:size], s.mm.mr

	rq := &s.rq
	rq.turns = newTurnstile(c.cfg.MaxInflight, c.cfg.MaxWaiting)
	rq.credits = newTurnstile(1, c.cfg.MaxWaiting) // for Hello
	rq.drained = make(chan struct{})
	rq.recvs, rq.recvMR = mem[:recvs*messageSize], mr
	for i := range recvs {
		rq.recvSGE = append(rq.recvSGE, rdma.SGE{MR: mr, Off: uint64(i * messageSize), Len: messageSize})
	}
	for i := range recvs {
		rq.recvWR = append(rq.recvWR, rdma.RecvWR{ID: rdma.RecvID(uint64(i)), SGL: rq.recvSGE[i : i+1 : i+1]})
	}
	for i := range slots {
		at := (recvs + i) * messageSize
		sl := &slot{s: s, index: i, buf: mem[at : at+messageSize : at+messageSize]}
		sl.sgl[0] = rdma.SGE{MR: mr, Off: uint64(at)}
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
