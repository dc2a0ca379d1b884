package session

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A request for a connection whose MAC has been found right.
type Knock struct {
	rdma.ConnRequest
	Connect     []byte // its private data
	Version     uint8  // of the protocol, as chosen
	Login       *auth.Login
	Place       *Place // is the session's when begin has succeeded
	Incarnation uint64 // of the space
}

// A handshake is what two ends say to each other before the session is open, and the seals
// that come of it. What both said in private data is forgotten once the MAC of Hello, which
// covers it, has been checked.
type handshake struct {
	connect, accept []byte
	version         uint8      // of the protocol, which every message has
	connected       bool       // Accept has returned: the QP is in RTS; guarded by session.mu, as early is
	early           *Request   // Hello that came before that
	sealIn          *wire.Seal // of requests; guarded by lane.pollMu
	sealOut         *wire.Seal // of what is sent; guarded by session.mu, under which it is posted
}

// Begin makes a session of the group on a lane, where a place has been reserved for it.
// Its queue pair has no rights and one receive. After an error the places are still the
// caller's; else the caller calls serve.
func (g *Group) Begin(l *Lane, k Knock) (*Session, error) {
	s, err := g.newSession(l, k.RemoteAddr().String(), k.Connect)
	if err != nil {
		return nil, err
	}
	var nonce wire.Nonce
	rand.Read(nonce[:]) // never fails
	s.accept = wire.AppendAccept(nil, k.Login.Secret.Reveal(), k.Connect, wire.Accept{
		Version: k.Version, Features: wire.FeaturePack, Nonce: nonce, Incarnation: k.Incarnation,
	})
	s.sealIn, s.sealOut = wire.NewSeals(k.Login.Secret.Reveal(), k.Connect, s.accept)
	s.setup, s.Login, s.version = k.Place, k.Login, k.Version
	s.line.Init(&k.Login.Turns, (*pooling)(s))
	// The session is known before the client can send: its Hello may arrive
	// before Accept returns.
	g.remember(s)
	return s, nil
}

// Serve accepts the connection and lives as long as the session does.
func (s *Session) Serve(ctx context.Context, req rdma.ConnRequest) {
	actx, cancel := context.WithTimeout(ctx, s.group.cfg.SetupTimeout)
	keep := context.AfterFunc(s.setup.lost, cancel)
	if _, err := req.Accept(actx, s.qp, rdma.ConnParams{PrivateData: s.accept, ORD: s.lane.rail.readDepth}); err != nil {
		c := causeOfAccept(err)
		if s.setup.lost.Err() != nil {
			c = base.CauseCrowded
		}
		s.End(c, err)
	}
	keep()
	cancel()
	s.nowConnected()
	s.watch(ctx)
}

// newSession makes a session with a QP that has no rights and one receive.
func (g *Group) newSession(l *Lane, peer string, connect []byte) (*Session, error) {
	d := l.rail
	cfg := rdma.QPConfig{
		SendCQ: l.cq, RecvCQ: l.cq, SRQ: l.srq,
		Cap: rdma.QPCap{MaxSendWR: d.sendDepth + d.readDepth, MaxSGE: 1},
	}
	if l.srq == nil {
		cfg.Cap.MaxRecvWR = g.cfg.Credits + 1
	}
	qp, err := d.PD.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	s := &Session{
		group: g, lane: l, qp: qp, Peer: peer, handshake: handshake{connect: connect},
		life:     life{quiet: make(chan struct{}), closed: make(chan struct{}), drained: make(chan struct{})},
		fetchSem: make(chan struct{}, min(maxFetches, d.readDepth)),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.inflight.Store(1)
	s.allowed.Store(1) // for Hello
	s.heard.Store(g.Clock.Now())
	s.ReplySize = MinReplySize
	m, _ := wire.ParseConnect(connect) // it has been checked
	s.Aside, s.Packs = m.Features&wire.FeatureAside != 0, m.Features&wire.FeaturePack != 0
	s.Parts, s.knows, s.anew = m.Features&wire.FeatureParts != 0, m.Features&wire.FeatureWords != 0, m.Features&wire.FeatureAnew != 0
	s.mu.Lock()
	got := s.growLocked(1)
	s.mu.Unlock()
	if got == 0 {
		s.stop()
		qp.Close()
		l.drain()
		return nil, ErrNoBuffer
	}
	return s, nil
}

// causeOfAccept classes a connection that broke while it was accepted.
func causeOfAccept(err error) base.Cause {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rdma.ErrDeadline) {
		return base.CauseSetup
	}
	return base.CauseOf(err)
}

// remember enters a session that is being set up into the table.
func (g *Group) remember(s *Session) {
	g.Registry.add(g, s)
	if s.lane.srq != nil {
		// A QP that was closed a moment ago may have had the same number. What
		// it received is not for this session.
		s.lane.drain()
		s.lane.sharedMu.Lock()
		s.lane.byQPN[s.qp.QPN()] = s
		s.lane.sharedMu.Unlock()
	}
}

// open counts a session over from those being set up to those that are open,
// or says which bound is in the way.
func (g *Group) open(s *Session) error {
	if err := g.Registry.opened(g, s); err != nil {
		return err
	}
	d, path := s.lane.rail, s.qp.Info().Path
	d.opens.Add(1)
	d.lastPath.Store(&path)
	g.Log.Debug("session open", "session", s.ID, "peer", s.Peer, "tenant", s.Login.Label, "name", s.Name, "device", d.Name(), "peer_gid", path.PeerGID, "mtu", path.MTU)
	return nil
}

// forget takes a finished session out and says why it ended.
func (g *Group) forget(s *Session) {
	if s.lane.srq != nil {
		s.lane.sharedMu.Lock()
		if qpn := s.qp.QPN(); s.lane.byQPN[qpn] == s { // not a later one's
			delete(s.lane.byQPN, qpn)
		}
		s.lane.sharedMu.Unlock()
	}
	if g.Registry.forget(g, s) {
		s.lane.rail.opens.Add(-1)
	}
	s.lane.sessions.Add(-1)
	g.Counters.Ended(s.why)
	if s.why.Blame() {
		g.Log.Warn(base.LogEnded, "session ended", "session", s.ID, "peer", s.Peer, "tenant", s.Login.Label, "name", s.Name, "cause", s.why, "err", s.whyErr)
		return
	}
	g.Log.Debug("session ended", "session", s.ID, "peer", s.Peer, "name", s.Name, "cause", s.why, "err", s.whyErr)
}
