package session

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A Request is one message that is being handled. It lives inside the receive
// buffer in which it arrived, so that taking a request costs no allocation,
// and ends with exactly one call of Reply, Fail or Drop.
type Request struct {
	Session *Session
	buf     *Buffer // its receive; the body is a view of it
	Header  wire.Header
	Body    []byte
	Begun   int64   // Clock.Now of its group
	flight  int64   // bytes for which it counts among those in flight (take)
	grant   int     // credits that the reply gives
	pooled  bool    // of a pack, and not its first: it is in no buffer
	Scratch Scratch // of the handler; nil until it has made one
}

// receive takes one message in. It runs on the lane and does not wait.
func (l *Lane) receive(s *Session, b *Buffer) {
	now := l.group.Clock.Now()
	s.heard.Store(now)
	s.enter()
	l.touch(s)
	r := &b.req
	r.Session, r.buf, r.Begun, r.grant = s, b, now, 1
	b.open.Store(1)
	l.group.Counters.BytesIn.Add(int64(b.N))
	// The state is read once: a session that ends meanwhile, before Hello, has no handler,
	// and what is no Hello must not come through for it.
	state := sessionState(s.state.Load())
	if state == stateEnd {
		r.Drop()
		return
	}
	if err := s.sealIn.Open(b.Mem[:b.N]); err != nil {
		r.unsealed(err)
		return
	}
	h, err := wire.ParseHeaderIn(b.Mem[:b.N], s.version)
	r.Header = h
	switch {
	case err != nil:
		r.Violation(base.CauseHeader, err)
		return
	case h.Type == wire.TypePack:
		l.receivePack(r, h, wire.Body(b.Mem[:b.N]))
		return
	case !h.Type.IsRequest():
		r.Violation(base.CauseHeader, fmt.Errorf("%v is not a request", h.Type))
		return
	}
	r.Body = wire.Body(b.Mem[:b.N])
	if err := s.spend(h); err != nil {
		r.Violation(base.CauseCredits, err)
		return
	}
	r.readied()
	if (state == stateNew) != (h.Type == wire.TypeHello) {
		r.Violation(base.CauseOrder, fmt.Errorf("%v in state %v", h.Type, state))
		return
	}
	// The keepalive passes what may hold others up.
	if h.Type == wire.TypePing {
		r.grant = 0
		s.conn.Handle(r)
		return
	}
	s.asked = now
	if h.Type != wire.TypeHello && !r.take(b.N) {
		return
	}
	if l.group.Gate.park(r) {
		return
	}
	r.dispatch()
}

// dispatch has a request handled whose credit is spent. It does not wait.
func (r *Request) dispatch() {
	switch {
	case r.Header.Type == wire.TypeHello:
		if !r.Session.tooEarly(r) {
			r.hello()
		}
	case r.Session.group.Draining.Load():
		r.Fail(wire.StatusClosing, "")
	default:
		r.Session.conn.Handle(r)
	}
}

// spend takes the credit for a message, or says that there is none.
func (c *credits) spend(h wire.Header) error {
	if h.Type == wire.TypePing {
		if c.pinging.Swap(true) {
			return errors.New("a second Ping before the reply to the first")
		}
		return nil
	}
	if c.allowed.Add(-1) < 0 {
		return fmt.Errorf("%v without a credit", h.Type)
	}
	return nil
}

// Reply queues b as the answer and gives the receive back. It does not flush:
// the lane does so after its batch, the store's callback after its group, and
// send does it at once. r must not be used afterwards.
func (r *Request) Reply(b *Buffer, st wire.Status) {
	s := r.Session
	b.grant = r.grant
	b.isPing = r.Header.Type == wire.TypePing
	b.wantMore = r.Header.Flags&wire.FlagWantCredits != 0
	s.group.Counters.Observe(r.Header.Type, st, s.group.Clock.Now()-r.Begun)
	s.enqueue(b, r.leaves())
	s.exit()
}

// AddGrant has the reply give n credits more.
func (r *Request) AddGrant(n int) { r.grant += n }

// Withhold has the reply give no credit.
func (r *Request) Withhold() { r.grant = 0 }

// Grants returns how many credits the reply will give.
func (r *Request) Grants() int { return r.grant }

// clear drops what the request refers to, so that an idle buffer keeps
// nothing alive.
func (r *Request) clear() {
	r.untake()
	r.Body = nil
	if r.Scratch != nil {
		r.Scratch.Reset()
	}
}

// Drop ends a request without an answer: its session is dead.
func (r *Request) Drop() {
	s := r.Session
	s.enqueue(nil, r.leaves())
	s.exit()
}

// Fail answers with a refusal.
func (r *Request) Fail(st wire.Status, detail string) {
	n := wire.HeaderSize + min(len(detail), wire.MaxDetail)
	b, err := r.Session.NewBuffer(min(n, SmallReply))
	if err != nil {
		r.Session.End(base.CauseResources, err)
		r.Drop()
		return
	}
	if n > len(b.Mem) {
		detail = detail[:len(b.Mem)-wire.HeaderSize]
	}
	b.N = len(wire.AppendError(b.Mem[:0], r.Header.Type, r.Header.ID, st, detail))
	r.Reply(b, st)
}

// Failed answers with a refusal, and says why in the log where the client cannot know.
func (r *Request) Failed(st wire.Status, detail string, err error) {
	if st == wire.StatusInternal || st == wire.StatusCorrupt {
		r.Session.group.Log.Error(base.LogInternal, "request failed", "type", r.Header.Type.String(), "peer", r.Session.Peer, "err", err)
	}
	r.Fail(st, detail)
}

// noBuffer answers that there is no buffer for the answer.
func (r *Request) noBuffer(err error) {
	st := wire.StatusInternal
	if errors.Is(err, ErrNoBuffer) {
		st = wire.StatusOverloaded
	}
	r.Failed(st, "", err)
}

// Answer queues a reply that encode writes into a buffer of at most n bytes.
func (r *Request) Answer(n int, encode func(dst []byte) []byte) {
	b, err := r.Session.NewBuffer(n)
	if err != nil {
		r.noBuffer(err)
		return
	}
	r.encode(b, encode)
}

// Confirm is answer for a write that has been done. Where there is no buffer
// to say so the session ends, which leaves the client with an unknown outcome:
// a refusal would tell it that nothing was changed.
func (r *Request) Confirm(encode func(dst []byte) []byte) {
	b, err := r.Session.NewBuffer(SmallReply)
	if err != nil {
		r.Session.End(base.CauseResources, err)
		r.Drop()
		return
	}
	r.encode(b, encode)
}

func (r *Request) encode(b *Buffer, encode func(dst []byte) []byte) {
	if b.N = len(encode(b.Mem[:0])); b.N > len(b.Mem) {
		panic(fmt.Sprintf("server: reply to %v has %d bytes, its buffer %d", r.Header.Type, b.N, len(b.Mem)))
	}
	r.Reply(b, wire.StatusOK)
}

// Violation ends the session: its client does not keep to the protocol.
func (r *Request) Violation(c base.Cause, err error) {
	r.Session.leave(c, wire.StatusProtocol, err.Error())
	r.Drop()
}

// unsealed ends the session over a message whose seal is wrong. Before Hello
// that is a peer which has seen a handshake and does not know the secret.
func (r *Request) unsealed(err error) {
	switch {
	case !errors.Is(err, wire.ErrTampered):
		r.Violation(base.CauseHeader, err)
	case sessionState(r.Session.state.Load()) == stateNew:
		r.Session.leave(base.CauseAuth, wire.StatusAuth, "")
		r.Drop()
	default:
		r.Violation(base.CauseTampered, err)
	}
}

// tooOld is what a client is told that does not name wire.FeatureAnew, where it has to.
const tooOld = "upgrade this client: the groups of this cluster began with keys that were there before (kvclient cluster init --adopt, cluster upgrade), and a client of its version does not read such a shard map"

// hello verifies the client, lets its READs through and welcomes it.
func (r *Request) hello() {
	s, cfg := r.Session, &r.Session.group.cfg
	m, err := wire.ParseHello(r.Body)
	if err != nil || m.ReplySize < MinReplySize {
		if err == nil {
			err = fmt.Errorf("reply size %d: at least %d", m.ReplySize, MinReplySize)
		}
		r.Violation(base.CauseBody, err)
		return
	}
	if !wire.VerifyHello(r.Body, s.Login.Secret.Reveal(), s.connect, s.accept) || s.Login.Gone() {
		// No detail to the peer: StatusAuth is all it learns. A login that is
		// revoked from now on finds this session in the list and ends it.
		s.leave(base.CauseAuth, wire.StatusAuth, "")
		r.Drop()
		return
	}
	if !s.anew && s.group.Anew != nil && s.group.Anew() {
		r.Fail(wire.StatusUnsupported, tooOld)
		s.leave(base.CauseVersion, wire.StatusUnsupported, tooOld)
		return
	}
	s.greeted.Store(true) // before it is looked whether the keys are replicated: who looks for readers when they are finds this one, or this one finds that they are
	replicated := s.group.replicated()
	s.words.Store(replicated && s.group.Cells && s.knows && s.Login.OneSided)
	s.OneSided = s.Login.OneSided && (!replicated || s.Words())
	conn, welcome, err := s.group.Handler.Open(s)
	if err != nil {
		s.End(base.CauseShutdown, err) // a fenced node gives no lease
		r.Drop()
		return
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	// Access before the reply: the client READs as soon as it has it.
	if s.OneSided {
		if err := s.qp.SetAccess(rdma.AccessRemoteRead); err != nil {
			s.End(base.CauseFabric, err)
			r.Drop()
			return
		}
		if s.group.replicated() != replicated { // the map came a moment ago, and the client was told of none: it connects again
			s.End(base.CauseTable, nil)
			r.Drop()
			return
		}
	}
	want := cfg.InitialCredits
	if s.lane.scarce() || s.Login.Receives.Load()+int64(want) > s.group.share.Load() {
		want = 1
	}
	s.mu.Lock()
	s.Name, s.ClientID = string(m.Name), s.Login.Client(m.ClientID)
	s.ReplySize = min(cfg.ReplySize, int(m.ReplySize))
	s.connect, s.accept = nil, nil
	// One receive is the one Hello came in; one more is for Ping.
	extra := s.growLocked(want)
	s.mu.Unlock()
	if extra == 0 {
		r.Fail(wire.StatusBusy, "no receive buffers left")
		s.leave(base.CauseBusy, wire.StatusBusy, "no receive buffers left")
		return
	}
	b, err := s.NewBuffer(SmallReply)
	if err != nil {
		s.End(base.CauseResources, err)
		r.Drop()
		return
	}
	if !s.state.CompareAndSwap(uint32(stateNew), uint32(stateOpen)) {
		b.Free()
		r.Drop()
		return
	}
	if err := s.group.open(s); err != nil {
		_ = s.qp.SetAccess(0) // a slow peer would READ until it has taken the refusal
		b.Free()
		r.Fail(wire.StatusBusy, err.Error())
		s.leave(base.CauseBusy, wire.StatusBusy, err.Error())
		return
	}
	welcome.Session, welcome.ServerID = s.ID, []byte(cfg.Name)
	welcome.Lease, welcome.Beat, welcome.Keepalive, welcome.Idle = cfg.Lease, cfg.Beat, cfg.Keepalive, cfg.Idle
	welcome.RequestSize, welcome.ReplySize = uint32(cfg.RequestSize), uint32(s.ReplySize)
	b.N = len(wire.AppendWelcome(b.Mem[:0], r.Header.ID, welcome))
	// Of 1 + extra receives one stays for Ping, the rest are credits.
	r.grant = extra
	r.Reply(b, wire.StatusOK)
}
