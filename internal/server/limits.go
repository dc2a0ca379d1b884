package server

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// What one peer may take, before it has authenticated and after. Each bound has
// a name, which is that of its counter in metrics.
//
//	before: set-ups (all, and of one host), time to Hello; one queue pair and
//	        one receive each, nothing sized by what the peer says
//	after:  sessions (all, of one host, of one tenant), requests and their
//	        bytes in flight (of one session by credits, of one tenant), those that
//	        wait for workers (of one tenant, pool.go), and what sessions hold:
//	        replies, places, watches, staging
type limitKind uint8

const (
	limitSetups        limitKind = iota // Config.MaxUnauthenticated
	limitHostSetups                     // Config.MaxSetupsPerHost
	limitSessions                       // Config.MaxSessions
	limitHostSessions                   // Config.MaxSessionsPerHost
	limitLoginSessions                  // Tenant.MaxSessions
	limitLoginRequests                  // Tenant.MaxRequests
	limitLoginBytes                     // Tenant.MaxInflightBytes
	limitLoginQueue                     // login.maxQueued
	limitLoginStaging                   // a tenant's share of staging memory (stageline.go): his put waits
	limitStaging                        // staging memory that others wait for, and that a client does not let be filled
	limitLoginHolds                     // a tenant's share of held places (hold.go)
	limitHolds                          // the store's bound on all of them
	limitLoginReceives                  // a tenant's share of receives (receives.go): his sessions do not grow
	limitReceives                       // a session that keeps credits it does not use while others find too few
	limitKinds
)

var limitNames = [limitKinds]string{"setups", "host_setups", "sessions", "host_sessions", "tenant_sessions", "tenant_requests", "tenant_bytes",
	"tenant_queue", "tenant_staging", "staging_stalled", "tenant_holds", "hold_bytes",
	"tenant_receives", "credits_kept"}

func (k limitKind) String() string { return limitNames[k] }

// errLimit says which bound was reached.
type errLimit limitKind

func (e errLimit) Error() string { return fmt.Sprintf("server: limit %q is reached", limitKind(e)) }

// limitHit counts that a bound was met.
func (srv *Server) limitHit(k limitKind) error {
	srv.root.met.limits[k].Add(1)
	return errLimit(k)
}

// hit counts it for the login, too.
func (srv *Server) loginHit(l *login, k limitKind) error {
	l.hits[k].Add(1)
	return srv.limitHit(k)
}

// admitSession counts a session that has authenticated among its login's and its
// host's, or says which bound is in the way. root.sessMu is held.
func (srv *Server) admitSessionLocked(s *session) error {
	root, l := srv.root, s.login
	switch {
	case int(l.sessions.Load()) >= l.MaxSessions:
		return srv.loginHit(l, limitLoginSessions)
	case root.opensOf[s.setup.host] >= root.cfg.MaxSessionsPerHost:
		return srv.limitHit(limitHostSessions)
	case !root.setups.give(s.setup): // to a newcomer, while Hello was on its way
		return errLimit(limitSetups) // counted when it was taken
	}
	l.sessions.Add(1)
	root.opensOf[s.setup.host]++
	return nil
}

// unadmitSessionLocked undoes it. root.sessMu is held.
func (srv *Server) unadmitSessionLocked(s *session) {
	root := srv.root
	s.login.sessions.Add(-1)
	if root.opensOf[s.setup.host]--; root.opensOf[s.setup.host] <= 0 {
		delete(root.opensOf, s.setup.host)
	}
}

// take counts a request with n bytes as in flight. false: it was refused.
func (r *request) take(n int) bool {
	l := r.s.login
	r.flight = int64(n)
	reqs, bytes := l.requests.Add(1), l.bytes.Add(r.flight)
	switch {
	case int(reqs) > l.MaxRequests:
		r.refuseSlowly(limitLoginRequests, fmt.Sprintf("tenant %s has %d requests in flight", l.label(), l.MaxRequests))
		return false
	case bytes > l.MaxInflightBytes:
		r.refuseSlowly(limitLoginBytes, fmt.Sprintf("tenant %s has %d bytes in flight", l.label(), l.MaxInflightBytes))
		return false
	}
	if t := r.hdr.Type; t != wire.TypePutLarge && t != wire.TypeBatchLarge { // takeMore is to come
		r.s.backoff.admitted()
	}
	return true
}

// takeMore counts n bytes more, which the server is to READ. false: it was
// refused.
func (r *request) takeMore(n uint64) bool {
	l := r.s.login
	r.flight += int64(n) // bounded by the caller to the largest value
	if l.bytes.Add(int64(n)) > l.MaxInflightBytes {
		r.refuseSlowly(limitLoginBytes, fmt.Sprintf("tenant %s has %d bytes in flight", l.label(), l.MaxInflightBytes))
		return false
	}
	r.s.backoff.admitted()
	return true
}

func (r *request) overloaded(k limitKind, detail string) bool {
	r.s.srv.loginHit(r.s.login, k)
	r.fail(wire.StatusOverloaded, detail)
	return false
}

// untake ends the count of a request; once.
func (r *request) untake() {
	if r.flight > 0 {
		r.s.login.requests.Add(-1)
		r.s.login.bytes.Add(-r.flight)
		r.flight = 0
	}
}
