package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// errReplayed: whoever replays a request that he has seen takes one place with
// it, not all.
var errReplayed = errors.New("a connection request with the same nonce is being set up: it is a copy")

// acceptPause is how long the accept loop rests after a failure.
const acceptPause = 10 * time.Millisecond

// An acceptor lets clients in: into the space of their login, once they have proved their
// secret.
type acceptor struct {
	logins     *auth.Logins
	registry   *session.Registry
	spaces     *spaces
	own        *selfDial      // whose requests are the node's own
	groups     *groups.Groups // to which those of other nodes go
	counters   *base.Counters
	log        *base.Log
	draining   *atomic.Bool
	mapTenants bool            // tenants that may READ may map memory too
	under      *sync.WaitGroup // of the node: set-ups and the sessions that come of them
}

// newAcceptor makes the acceptor of a node.
func newAcceptor(srv *Server) *acceptor {
	return &acceptor{
		logins: srv.logins, registry: srv.registry, spaces: srv.spaces, own: srv.selfDial, groups: srv.groups,
		counters: srv.main.Counters, log: srv.log, draining: &srv.main.Draining, mapTenants: srv.cfg.MapTenants, under: &srv.wg,
	}
}

// run takes connection requests until the listener is closed. What a request costs before
// its client has authenticated is bounded: one of Config.MaxUnauthenticated places, one
// goroutine, one QP, one receive, and Config.SetupTimeout.
func (a *acceptor) run(ctx context.Context, p *port) {
	for {
		req, err := p.ln.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, rdma.ErrClosed):
			if !p.closing.Load() {
				p.dev.Lose(fmt.Errorf("its listener at %s has ended: %w", p.ln.Addr(), err))
			}
			return
		case err != nil:
			// The fabric has dropped that request and goes on. A fault that
			// stays (no descriptors left, say) must not spin.
			a.log.Warn(base.LogAccept, "accepting a connection failed", "listener", p.name(), "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if a.own.ours(req.PrivateData()) {
			_ = req.Reject(nil)
			continue
		}
		if wire.IsNode(req.PrivateData()) {
			a.groups.Accept(p.dev.Dev, req)
			continue
		}
		var place *session.Place
		if !a.draining.Load() {
			place, err = a.registry.Admit(session.SourceOf(req.RemoteAddr().String()))
		}
		if place == nil {
			a.refuse(req, base.CauseBusy, wire.StatusBusy, err)
			continue
		}
		a.under.Go(func() { a.setUp(p.dev, req, place) })
	}
}

// refuse rejects a request and counts why.
func (a *acceptor) refuse(req rdma.ConnRequest, c base.Cause, st wire.Status, err error) {
	a.counters.Ended(c)
	a.log.Warn(base.LogRefused, "connection refused", "peer", req.RemoteAddr(), "cause", c, "err", err)
	req.Reject(wire.AppendReject(nil, wire.Reject{Min: wire.VersionMin, Max: wire.VersionMax, Status: st}))
}

// setUp answers one connection request. The client's MAC is checked before
// anything is made for it.
func (a *acceptor) setUp(d *device, req rdma.ConnRequest, place *session.Place) {
	version, connect, who, c, st, err := a.checkConnect(req.PrivateData(), place)
	if c != base.CauseNone {
		a.refuse(req, c, st, err)
		a.registry.Clear(place)
		return
	}
	if d.Attr.Caps.Has(rdma.CapMapped) && !a.mapTenants && who.Name != "" && who.OneSided {
		// What is mapped cannot be taken back when the tenant is revoked. Whoever
		// knows the secret may hear so; it is not our protocol's refusal, so that a
		// client goes on to the next fabric.
		a.log.Info("a tenant is not let map memory: it is asked to come by another fabric (shm: trusted lets it)", "tenant", who.Label, "peer", req.RemoteAddr())
		_ = req.Reject([]byte("tenants are served by other fabrics here, unless shm is trusted"))
		a.registry.Clear(place)
		return
	}
	// From here on everything is the space's, queue pair and PD included.
	sp := a.spaces.of(who.Space)
	if sp == nil {
		a.refuse(req, base.CauseBusy, wire.StatusBusy, nil)
		a.registry.Clear(place)
		return
	}
	run, gone, ok := sp.Enter()
	if !ok {
		a.refuse(req, base.CauseBusy, wire.StatusBusy, nil)
		a.registry.Clear(place)
		return
	}
	defer gone()
	a.registry.Route(place, sp.Sessions)
	lane := sp.Rails.LaneFor(d.Device)
	if lane == nil {
		a.registry.MakeRoom(place)
		a.refuse(req, base.CauseBusy, wire.StatusBusy, nil)
		a.registry.Clear(place)
		return
	}
	k := session.Knock{ConnRequest: req, Connect: connect, Version: version, Login: who, Place: place, Incarnation: sp.Incarnation}
	s, err := sp.Sessions.Begin(lane, k)
	if err != nil {
		a.registry.MakeRoom(place)
		a.refuse(req, base.CauseResources, wire.StatusBusy, err)
		lane.GiveUp()
		a.registry.Clear(place)
		return
	}
	s.Serve(run, req)
}

// checkConnect checks a request's private data. A tenant that does not exist, is
// revoked, or has another secret: all the same to the peer, and as much work.
func (a *acceptor) checkConnect(private []byte, place *session.Place) (version uint8, connect []byte, who *auth.Login, c base.Cause, st wire.Status, err error) {
	private = wire.Unpad(private, wire.ConnectSize)
	m, err := wire.ParseConnect(private)
	if err != nil && !errors.Is(err, wire.ErrVersion) {
		return 0, nil, nil, base.CauseMagic, wire.StatusProtocol, err
	}
	version, st = m.Choose()
	if st != wire.StatusOK { // also of a client that speaks older versions alone
		return 0, nil, nil, base.CauseVersion, st, fmt.Errorf("client speaks versions %d to %d, features %#x; this server %d to %d", m.Min, m.Max, m.Features, wire.VersionMin, wire.VersionMax)
	}
	who = a.logins.Find(m.Tenant)
	if !wire.VerifyConnect(who.Secret.Reveal(), private) {
		return 0, nil, nil, base.CauseAuth, wire.StatusAuth, nil
	}
	if !a.registry.Claim(place, m.Nonce) {
		return 0, nil, nil, base.CauseReplay, wire.StatusBusy, errReplayed
	}
	return version, append([]byte(nil), private...), who, base.CauseNone, wire.StatusOK, nil
}

// BlockHandlers stops every session handler: requests are received and wait.
// Fabric, beat, keepalive and writes already submitted go on. For tests and
// the debug endpoint.
func (srv *Server) BlockHandlers() {
	for _, sp := range srv.spaces.every() {
		sp.Sessions.Gate.Block()
	}
	srv.log.Warn(base.LogAlways, "debug: handlers blocked")
}

// UnblockHandlers undoes BlockHandlers.
func (srv *Server) UnblockHandlers() {
	for _, sp := range srv.spaces.every() {
		sp.Sessions.Gate.Unblock()
	}
	srv.log.Warn(base.LogAlways, "debug: handlers unblocked")
}
