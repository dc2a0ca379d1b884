package server

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store"
)

// A request is one message that is being handled. It lives inside the receive
// buffer in which it arrived, so that taking a request costs no allocation,
// and ends with exactly one call of reply, fail or drop.
type request struct {
	s      *session
	buf    *buf // its receive; key and value are views of it
	hdr    wire.Header
	body   []byte
	begun  int64 // Server.now
	write  store.Write
	stage  *stage // of a large put or batch
	flight int64  // bytes for which it counts among those in flight (limits.go)
	asks   bool   // the write waits for the disk, on the pool
	poll   poll   // of a watch
	grant  int    // credits that the reply gives
}

// receive takes one message in. It runs on the lane and does not wait.
func (l *lane) receive(s *session, b *buf) {
	now := l.srv.now()
	s.heard.Store(now)
	s.enter()
	l.touch(s)
	r := &b.req
	r.s, r.buf, r.begun, r.grant = s, b, now, 1
	l.srv.met.bytesIn.Add(int64(b.n))
	if sessionState(s.state.Load()) == stateEnd {
		r.drop()
		return
	}
	if err := s.sealIn.Open(b.mem[:b.n]); err != nil && !teeth.Off(teeth.D7SealChecked) {
		r.unsealed(err)
		return
	}
	h, err := wire.ParseHeader(b.mem[:b.n])
	r.hdr = h
	switch {
	case err != nil:
		r.violation(causeHeader, err)
		return
	case !h.Type.IsRequest():
		r.violation(causeHeader, fmt.Errorf("%v is not a request", h.Type))
		return
	}
	r.body = wire.Body(b.mem[:b.n])
	if err := s.spend(h); err != nil {
		r.violation(causeCredits, err)
		return
	}
	if h.Credits > 0 {
		s.mu.Lock()
		s.serverCredit = min(s.serverCredit+int(h.Credits), maxCredits)
		s.mu.Unlock()
	}
	if (sessionState(s.state.Load()) == stateNew) != (h.Type == wire.TypeHello) {
		r.violation(causeOrder, fmt.Errorf("%v in state %v", h.Type, sessionState(s.state.Load())))
		return
	}
	// The keepalive is the poller's own: no store, no gate.
	if h.Type == wire.TypePing {
		r.grant = 0
		r.ping()
		return
	}
	s.asked = now
	if h.Type != wire.TypeHello && (!r.take(b.n) || !r.permit()) {
		return
	}
	if l.srv.gate.park(r) {
		return
	}
	r.dispatch()
}

// spend takes the credit for a message, or says that there is none.
func (s *session) spend(h wire.Header) error {
	if h.Type == wire.TypePing {
		if s.pinging.Swap(true) {
			return errors.New("a second Ping before the reply to the first")
		}
		return nil
	}
	if s.allowed.Add(-1) < 0 && !teeth.Off(teeth.D7CreditsCounted) {
		return fmt.Errorf("%v without a credit", h.Type)
	}
	return nil
}

// dispatch handles a request whose credit is spent. It does not wait: what
// may wait goes to the pool.
func (r *request) dispatch() {
	srv := r.s.srv
	if r.hdr.Type != wire.TypeHello && srv.draining.Load() {
		r.fail(wire.StatusClosing, "")
		return
	}
	switch r.hdr.Type {
	case wire.TypeHello:
		if !r.s.tooEarly(r) {
			r.hello()
		}
	case wire.TypeView:
		r.view()
	case wire.TypePut:
		r.put()
	case wire.TypePutLarge:
		r.putLarge()
	case wire.TypeUpdate:
		r.update()
	case wire.TypeBatch:
		r.batch()
	case wire.TypeBatchLarge:
		r.batchLarge()
	case wire.TypeReport:
		r.report()
	case wire.TypeRelease:
		r.release()
	case wire.TypeDelete:
		r.delete()
	case wire.TypeGet, wire.TypeExists, wire.TypeFetch:
		srv.pool.submit(r)
	case wire.TypeScan, wire.TypeStats, wire.TypeWatch:
		srv.scans.submit(r)
	case wire.TypeCluster:
		srv.root.clusters.submit(r)
	case wire.TypeAdmin, wire.TypeMapChange:
		srv.root.admins.submit(r)
	default:
		r.violation(causeHeader, fmt.Errorf("%v is not served here", r.hdr.Type))
	}
}

// work handles a request on a pool, where it may wait for the disk.
func (r *request) work() {
	if r.asks {
		r.ask()
		return
	}
	switch r.hdr.Type {
	case wire.TypeGet:
		r.get()
	case wire.TypeExists:
		r.exists()
	case wire.TypeFetch:
		r.fetchHeld()
	case wire.TypeScan:
		r.scan()
	case wire.TypeStats:
		r.statistics()
	case wire.TypeWatch:
		r.watch()
	case wire.TypeCluster:
		r.clusterPart()
	case wire.TypeMapChange:
		r.mapChange()
	case wire.TypeAdmin:
		r.adminOp()
	}
}

// reply queues b as the answer and gives the receive back. It does not flush:
// the lane does so after its batch, the store's callback after its group, and
// send does it at once. r must not be used afterwards.
func (r *request) reply(b *buf, st wire.Status) {
	s := r.s
	b.grant = r.grant
	b.isPing = r.hdr.Type == wire.TypePing
	b.wantMore = r.hdr.Flags&wire.FlagWantCredits != 0
	s.srv.met.observe(r.hdr.Type, st, s.srv.now()-r.begun)
	receive := r.buf
	r.clear()
	s.enqueue(b, receive)
	s.exit()
}

// clear drops what the request refers to, so that an idle buffer keeps
// nothing alive.
func (r *request) clear() {
	r.untake()
	r.body, r.stage, r.asks = nil, nil, false
	r.write = store.Write{}
	r.poll = poll{}
}

// drop ends a request without an answer: its session is dead.
func (r *request) drop() {
	s, receive := r.s, r.buf
	r.clear()
	s.enqueue(nil, receive)
	s.exit()
}

// fail answers with a refusal.
func (r *request) fail(st wire.Status, detail string) {
	n := wire.HeaderSize + min(len(detail), wire.MaxDetail)
	b, err := r.s.lane.newReply(r.s, min(n, smallReply))
	if err != nil {
		r.s.end(causeResources, err)
		r.drop()
		return
	}
	if n > len(b.mem) {
		detail = detail[:len(b.mem)-wire.HeaderSize]
	}
	b.n = len(wire.AppendError(b.mem[:0], r.hdr.Type, r.hdr.ID, st, detail))
	r.reply(b, st)
}

// refuse answers with what an error of the store means to a client.
func (r *request) refuse(err error) {
	st, detail := statusOf(err)
	if st == wire.StatusInternal || st == wire.StatusCorrupt {
		r.s.srv.log.Error(limitInternal, "request failed", "type", r.hdr.Type.String(), "peer", r.s.peer, "err", err)
	}
	r.fail(st, detail)
}

// answer queues a reply that encode writes into a buffer of at most n bytes.
func (r *request) answer(n int, encode func(dst []byte) []byte) {
	b, err := r.s.lane.newReply(r.s, n)
	if err != nil {
		r.refuse(err)
		return
	}
	r.encode(b, encode)
}

// confirm is answer for a write that has been done. Where there is no buffer
// to say so the session ends, which leaves the client with an unknown outcome:
// a refusal would tell it that nothing was changed.
func (r *request) confirm(encode func(dst []byte) []byte) {
	b, err := r.s.lane.newReply(r.s, smallReply)
	if err != nil {
		r.s.end(causeResources, err)
		r.drop()
		return
	}
	r.encode(b, encode)
}

func (r *request) encode(b *buf, encode func(dst []byte) []byte) {
	if b.n = len(encode(b.mem[:0])); b.n > len(b.mem) {
		panic(fmt.Sprintf("server: reply to %v has %d bytes, its buffer %d", r.hdr.Type, b.n, len(b.mem)))
	}
	r.reply(b, wire.StatusOK)
}

// violation ends the session: its client does not keep to the protocol.
func (r *request) violation(c cause, err error) {
	r.s.leave(c, wire.StatusProtocol, err.Error())
	r.drop()
}

// unsealed ends the session over a message whose seal is wrong. Before Hello
// that is somebody who has seen a handshake and does not know the secret.
func (r *request) unsealed(err error) {
	switch {
	case !errors.Is(err, wire.ErrTampered):
		r.violation(causeHeader, err)
	case sessionState(r.s.state.Load()) == stateNew:
		r.s.leave(causeAuth, wire.StatusAuth, "")
		r.drop()
	default:
		r.violation(causeTampered, err)
	}
}

// ping answers the keepalive and takes back the credits it returns.
func (r *request) ping() {
	s := r.s
	m, err := wire.ParsePing(r.body)
	if err != nil {
		r.violation(causeBody, err)
		return
	}
	if n := int32(m.Return); n > 0 {
		if s.allowed.Add(-n) < 0 {
			r.violation(causeCredits, fmt.Errorf("%d credits returned, which it does not have", n))
			return
		}
		s.mu.Lock()
		s.shrinkLocked(int(n))
		s.mu.Unlock()
	}
	if m.View > s.srv.store.ViewVersion() {
		r.violation(causeBody, fmt.Errorf("a view of version %d, which it cannot have", m.View))
		return
	}
	if s.keeps(r.begun) {
		r.drop()
		return
	}
	s.usesTable(m.View)
	s.touched(m.Touches)
	r.answer(smallReply, func(dst []byte) []byte {
		return wire.AppendPingReply(dst, r.hdr.ID, wire.PingReply{
			Echo: m.Echo, TimeMicros: uint64(s.srv.store.Now().UnixMicro()), ViewVersion: s.srv.store.ViewVersion(), Touches: s.srv.store.WantsTouches(),
		})
	})
}

// hello verifies the client, lets its READs through and welcomes it.
func (r *request) hello() {
	s, cfg := r.s, &r.s.srv.cfg
	m, err := wire.ParseHello(r.body)
	if err != nil || m.ReplySize < minReplySize {
		if err == nil {
			err = fmt.Errorf("reply size %d: at least %d", m.ReplySize, minReplySize)
		}
		r.violation(causeBody, err)
		return
	}
	if !wire.VerifyHello(r.body, s.login.Secret.Reveal(), s.connect, s.accept) || s.login.gone.Load() {
		// No detail to the peer: StatusAuth is all it learns. A login that is
		// revoked from now on finds this session in the list and ends it.
		s.leave(causeAuth, wire.StatusAuth, "")
		r.drop()
		return
	}
	if err := s.srv.Err(); err != nil {
		s.end(causeShutdown, err) // a fenced node gives no lease
		r.drop()
		return
	}
	// Access before the reply: the client READs as soon as it has it.
	if s.login.oneSided {
		if err := s.qp.SetAccess(rdma.AccessRemoteRead); err != nil {
			s.end(causeFabric, err)
			r.drop()
			return
		}
	}
	want := cfg.InitialCredits
	if s.lane.scarce() || s.login.receives.Load()+int64(want) > s.srv.creditShare.Load() {
		want = 1
	}
	s.mu.Lock()
	s.name, s.clientID = string(m.Name), s.login.client(m.ClientID)
	s.replySize = min(cfg.ReplySize, int(m.ReplySize))
	s.connect, s.accept = nil, nil
	// One receive is the one Hello came in; one more is for Ping.
	extra := s.growLocked(want)
	s.mu.Unlock()
	if extra == 0 {
		r.fail(wire.StatusBusy, "no receive buffers left")
		s.leave(causeBusy, wire.StatusBusy, "no receive buffers left")
		return
	}
	b, err := s.lane.newReply(s, smallReply)
	if err != nil {
		s.end(causeResources, err)
		r.drop()
		return
	}
	if !s.state.CompareAndSwap(uint32(stateNew), uint32(stateOpen)) {
		s.lane.putReply(b)
		r.drop()
		return
	}
	if err := s.srv.opened(s); err != nil {
		_ = s.qp.SetAccess(0) // a slow peer would READ until it has taken the refusal
		s.lane.putReply(b)
		r.fail(wire.StatusBusy, err.Error())
		s.leave(causeBusy, wire.StatusBusy, err.Error())
		return
	}
	// The reclaim version first: places learnt from now on are younger.
	reclaim := s.srv.store.ReclaimVersion()
	view := s.srv.store.View()
	var flags wire.WelcomeFlags
	if cfg.LeaseOff {
		flags |= wire.WelcomeLeaseOff
	}
	if !s.login.oneSided {
		flags |= wire.WelcomeSendOnly
		view.Regions = nil
	}
	if s.srv.root.cluster != nil {
		flags |= wire.WelcomeClustered
	}
	if s.srv.store.WantsTouches() {
		flags |= wire.WelcomeTouches
	}
	b.n = len(wire.AppendWelcome(b.mem[:0], r.hdr.ID, wire.Welcome{
		Flags:   flags,
		Session: s.id, Incarnation: s.srv.incarnation,
		Lease: cfg.Lease, Beat: cfg.Beat, Keepalive: cfg.Keepalive, Idle: cfg.Idle,
		ViewVersion: view.Version, ReclaimVersion: reclaim,
		MaxValue: maxValue, MaxKey: maxKey,
		RequestSize: uint32(cfg.RequestSize), ReplySize: uint32(s.replySize),
		Shards: view.Shards, Regions: uint32(len(view.Regions)), ServerID: []byte(cfg.Name),
	}))
	// Of 1 + extra receives one stays for Ping, the rest are credits.
	r.grant = extra
	r.reply(b, wire.StatusOK)
}
