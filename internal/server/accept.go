package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// errReplayed: whoever replays a request that he has seen takes one place with
// it, not all.
var errReplayed = errors.New("a connection request with the same nonce is being set up: it is a copy")

// acceptPause is how long the accept loop rests after a failure.
const acceptPause = 10 * time.Millisecond

// acceptLoop takes connection requests until the listener is closed. What a
// request costs before its client has authenticated is bounded: one of
// Config.MaxUnauthenticated places, one goroutine, one QP, one receive, and
// Config.SetupTimeout.
func (srv *Server) acceptLoop(ctx context.Context, p *port) {
	defer srv.wg.Done()
	for {
		req, err := p.ln.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, rdma.ErrClosed):
			if !p.closing.Load() {
				p.dev.lose(fmt.Errorf("its listener at %s has ended: %w", p.ln.Addr(), err))
			}
			return
		case err != nil:
			// The fabric has dropped that request and goes on. A fault that
			// stays (no descriptors left, say) must not spin.
			srv.log.Warn(limitAccept, "accepting a connection failed", "listener", p.name(), "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if srv.selfDial.ours(req.PrivateData()) {
			_ = req.Reject(nil)
			continue
		}
		place, err := srv.admit(sourceOf(req.RemoteAddr().String()))
		if place == nil {
			srv.refuse(req, causeBusy, wire.StatusBusy, err)
			continue
		}
		srv.wg.Add(1)
		go func() {
			defer srv.wg.Done()
			srv.setUp(p.dev, req, place)
		}()
	}
}

// admit takes one of the places for connections that are being set up. nil: the
// newcomer must be refused, and the error has the bound that is in the way, if it
// is one.
func (srv *Server) admit(src source) (*setup, error) {
	if srv.draining.Load() {
		return nil, nil
	}
	srv.sessMu.Lock()
	defer srv.sessMu.Unlock()
	room := min(srv.cfg.MaxSessions, srv.cfg.MaxConnections) - srv.opens
	if room > 0 && srv.opensOf[src.host] >= srv.cfg.MaxSessionsPerHost {
		return nil, srv.limitHit(limitHostSessions)
	}
	place, met := srv.setups.take(src, room)
	var err error
	for _, k := range met {
		err = srv.limitHit(k)
	}
	return place, err
}

// unadmit gives it back.
func (srv *Server) unadmit(p *setup) {
	srv.sessMu.Lock()
	srv.setups.cleared(p)
	srv.sessMu.Unlock()
}

func (srv *Server) makeRoom(p *setup) {
	srv.sessMu.Lock()
	srv.setups.makeRoom(p)
	srv.sessMu.Unlock()
}

// refuse rejects a request and counts why.
func (srv *Server) refuse(req rdma.ConnRequest, c cause, st wire.Status, err error) {
	srv.met.ended(c)
	srv.log.Warn(limitRefused, "connection refused", "peer", req.RemoteAddr(), "cause", c, "err", err)
	req.Reject(wire.AppendReject(nil, wire.Reject{Min: wire.VersionMin, Max: wire.VersionMax, Status: st}))
}

// setUp answers one connection request. The client's MAC is checked before
// anything is made for it.
func (srv *Server) setUp(d *device, req rdma.ConnRequest, place *setup) {
	version, connect, who, c, st, err := srv.checkConnect(req.PrivateData(), place)
	if c != causeNone {
		srv.refuse(req, c, st, err)
		srv.unadmit(place)
		return
	}
	if d.attr.Caps.Has(rdma.CapMapped) && !srv.cfg.MapTenants && who.Name != "" && who.oneSided {
		// What is mapped cannot be taken back when the tenant is revoked. Whoever
		// knows the secret may hear so; it is not our protocol's refusal, so that a
		// client goes on to the next fabric.
		srv.log.Info("a tenant is not let map memory: it is asked to come by another fabric (shm: trusted lets it)", "tenant", who.label(), "peer", req.RemoteAddr())
		_ = req.Reject([]byte("tenants are served by other fabrics here, unless shm is trusted"))
		srv.unadmit(place)
		return
	}
	// From here on everything is the space's, queue pair and PD included.
	sp := srv.spaceOf(who.Space)
	if sp == nil || !sp.enter() {
		srv.refuse(req, causeBusy, wire.StatusBusy, nil)
		srv.unadmit(place)
		return
	}
	defer sp.wg.Done()
	srv.sessMu.Lock()
	place.space = sp
	srv.sessMu.Unlock()
	ctx := sp.run
	lane := sp.laneFor(d)
	if lane == nil {
		srv.makeRoom(place)
		srv.refuse(req, causeBusy, wire.StatusBusy, nil)
		srv.unadmit(place)
		return
	}
	s, err := sp.newSession(lane, req.RemoteAddr().String(), connect)
	if err != nil {
		srv.makeRoom(place)
		srv.refuse(req, causeResources, wire.StatusBusy, err)
		lane.sessions.Add(-1)
		srv.unadmit(place)
		return
	}
	var nonce wire.Nonce
	rand.Read(nonce[:]) // never fails
	accept := wire.AppendAccept(nil, who.Secret.Reveal(), connect, wire.Accept{
		Version: version, Nonce: nonce, Incarnation: sp.incarnation,
	})
	s.accept = accept
	s.sealIn, s.sealOut = wire.NewSeals(who.Secret.Reveal(), connect, accept)
	s.setup, s.login = place, who
	// The session is known before the client can send: its Hello may arrive
	// before Accept returns.
	sp.remember(s)
	actx, cancel := context.WithTimeout(ctx, srv.cfg.SetupTimeout)
	keep := context.AfterFunc(place.lost, cancel)
	if _, err := req.Accept(actx, s.qp, rdma.ConnParams{PrivateData: accept, ORD: d.readDepth}); err != nil {
		c := causeOfAccept(err)
		if place.lost.Err() != nil {
			c = causeCrowded
		}
		s.end(c, err)
	}
	keep()
	cancel()
	s.nowConnected()
	s.watch(ctx)
}

// checkConnect checks a request's private data. A tenant that does not exist, is
// revoked, or has another secret: all the same to the peer, and as much work.
func (srv *Server) checkConnect(private []byte, place *setup) (version uint8, connect []byte, who *login, c cause, st wire.Status, err error) {
	private = wire.Unpad(private, wire.ConnectSize)
	m, err := wire.ParseConnect(private)
	if err != nil && !errors.Is(err, wire.ErrVersion) {
		return 0, nil, nil, causeMagic, wire.StatusProtocol, err
	}
	version, st = m.Choose()
	if st != wire.StatusOK { // also of a client that speaks older versions alone
		return 0, nil, nil, causeVersion, st, fmt.Errorf("client speaks versions %d to %d, features %#x; this server %d to %d", m.Min, m.Max, m.Features, wire.VersionMin, wire.VersionMax)
	}
	who = srv.logins.find(m.Tenant)
	if !wire.VerifyConnect(who.Secret.Reveal(), private) {
		return 0, nil, nil, causeAuth, wire.StatusAuth, nil
	}
	srv.sessMu.Lock()
	first := srv.setups.claim(place, m.Nonce)
	srv.sessMu.Unlock()
	if !first {
		return 0, nil, nil, causeReplay, wire.StatusBusy, errReplayed
	}
	return version, append([]byte(nil), private...), who, causeNone, wire.StatusOK, nil
}

// newSession makes a session with a QP that has no rights and one receive.
func (srv *Server) newSession(l *lane, peer string, connect []byte) (*session, error) {
	d := l.dev
	cfg := rdma.QPConfig{
		SendCQ: l.cq, RecvCQ: l.cq, SRQ: l.srq,
		Cap: rdma.QPCap{MaxSendWR: d.sendDepth + d.readDepth, MaxSGE: 1},
	}
	if l.srq == nil {
		cfg.Cap.MaxRecvWR = srv.cfg.Credits + 1
	}
	if teeth.Off(teeth.D7RightsAfterHello) {
		cfg.Access = rdma.AccessRemoteRead
	}
	qp, err := d.pd.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	s := &session{
		srv: srv, lane: l, qp: qp, peer: peer, connect: connect,
		quiet: make(chan struct{}), closed: make(chan struct{}), drained: make(chan struct{}), began: srv.now(),
		fetchSem: make(chan struct{}, min(maxFetches, d.readDepth)),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.inflight.Store(1)
	s.allowed.Store(1) // for Hello
	s.heard.Store(srv.now())
	s.replySize = minReplySize
	m, _ := wire.ParseConnect(connect) // it has been checked
	s.aside = m.Features&wire.FeatureAside != 0
	s.mu.Lock()
	got := s.growLocked(1)
	s.mu.Unlock()
	if got == 0 {
		s.stop()
		qp.Close()
		l.drain()
		return nil, errPoolFull
	}
	return s, nil
}

// causeOfAccept classes a connection that broke while it was accepted.
func causeOfAccept(err error) cause {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rdma.ErrDeadline) {
		return causeSetup
	}
	return causeOf(err)
}

// remember enters a session that is being set up into the table.
func (srv *Server) remember(s *session) {
	s.id = srv.root.lastID.Add(1)
	srv.sessMu.Lock()
	srv.sessions[s.id] = s
	srv.sessMu.Unlock()
	if s.lane.srq != nil {
		// A QP that was closed a moment ago may have had the same number. What
		// it received is not for this session.
		s.lane.drain()
		s.lane.sharedMu.Lock()
		s.lane.byQPN[s.qp.QPN()] = s
		s.lane.sharedMu.Unlock()
	}
}

// opened counts a session over from those being set up to those that are open,
// or says which bound is in the way.
func (srv *Server) opened(s *session) error {
	root := srv.root
	root.sessMu.Lock()
	if err := srv.admitSessionLocked(s); err != nil {
		root.sessMu.Unlock()
		return err
	}
	root.opens++
	s.counted = true
	if srv != root {
		srv.sessMu.Lock()
		srv.opens++
		srv.sessMu.Unlock()
	}
	root.sessMu.Unlock()
	d, path := s.lane.dev, s.qp.Info().Path
	d.opens.Add(1)
	d.lastPath.Store(&path)
	srv.log.Debug("session open", "session", s.id, "peer", s.peer, "tenant", s.login.label(), "name", s.name, "device", d.name(), "peer_gid", path.PeerGID, "mtu", path.MTU)
	return nil
}

// forget takes a finished session out and says why it ended.
func (srv *Server) forget(s *session) {
	if s.lane.srq != nil {
		s.lane.sharedMu.Lock()
		if qpn := s.qp.QPN(); s.lane.byQPN[qpn] == s { // not a later one's
			delete(s.lane.byQPN, qpn)
		}
		s.lane.sharedMu.Unlock()
	}
	root := srv.root
	root.sessMu.Lock()
	if s.counted {
		srv.unadmitSessionLocked(s)
		root.opens--
		s.lane.dev.opens.Add(-1)
	} else {
		root.setups.cleared(s.setup)
	}
	if srv != root {
		srv.sessMu.Lock()
		if s.counted {
			srv.opens--
		}
	}
	delete(srv.sessions, s.id)
	if srv != root {
		srv.sessMu.Unlock()
	}
	root.sessMu.Unlock()
	s.lane.sessions.Add(-1)
	srv.met.ended(s.why)
	if s.why.blame() {
		srv.log.Warn(limitEnded, "session ended", "session", s.id, "peer", s.peer, "tenant", s.login.label(), "name", s.name, "cause", s.why, "err", s.whyErr)
		return
	}
	srv.log.Debug("session ended", "session", s.id, "peer", s.peer, "name", s.name, "cause", s.why, "err", s.whyErr)
}
