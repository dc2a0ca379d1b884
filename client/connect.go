package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

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
