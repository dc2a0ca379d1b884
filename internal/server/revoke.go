package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// Taking away what was given. A QP that may READ goes on READing whatever the
// server thinks of its peer, so a right ends with the QP: first the flag (the
// NIC refuses READs from then on), then a Goodbye that says why, then the QP
// itself. When endLogins returns, no READ that the peer posts completes.

const (
	// revokeGrace is how long a client may take its Goodbye.
	revokeGrace = 200 * time.Millisecond
	// revokeLimit bounds the wait for QPs to be gone.
	revokeLimit = 5 * time.Second
)

// endLogins ends all sessions of logins that are gone, and returns how many when
// none of their QPs is left; or an error, with those that are.
func (srv *Server) endLogins(gone ...*login) (int, error) {
	for _, l := range gone {
		l.gone.Store(true) // before the sessions are listed: see hello
	}
	var ends []*session
	for _, sp := range srv.everySpace() {
		for _, s := range sp.sessionList() {
			if slices.Contains(gone, s.login) {
				ends = append(ends, s)
			}
		}
	}
	var wg sync.WaitGroup
	for _, s := range ends {
		wg.Go(s.revoke)
	}
	wg.Wait()
	limit := time.NewTimer(revokeLimit)
	defer limit.Stop()
	for i, s := range ends {
		select {
		case <-s.closed:
		case <-limit.C:
			return i, fmt.Errorf("server: %d of %d sessions are still closing", len(ends)-i, len(ends))
		}
	}
	return len(ends), nil
}

// revoke takes the session's right away, tells the client and ends it.
func (s *session) revoke() {
	// An error means that the QP is not in a state to have rights.
	_ = s.qp.SetAccess(0)
	s.leave(causeRevoked, wire.StatusAuth, "access was revoked")
	// What he has asked for is not done any more, what is being done ends.
	s.stop()
	s.dropQueued()
	grace := time.NewTimer(revokeGrace)
	defer grace.Stop()
	select {
	case <-s.qp.Done():
	case <-s.closed:
	case <-grace.C:
	}
	s.end(causeRevoked, nil)
}

// RevokeAnswer is what revoking or allowing a tenant came to.
type RevokeAnswer struct {
	Tenant   string   `json:"tenant"`
	Sessions int      `json:"sessions_ended"`
	Micros   int64    `json:"took_micros"`
	Durable  bool     `json:"durable"` // it outlives a restart of the node
	Revoked  []string `json:"revoked"` // everybody who is
}

// Revoke refuses a tenant from now on: its sessions on this node end before
// Revoke returns, and none begins until Allow. The list of the revoked is on
// disk before the first session ends.
func (srv *Server) Revoke(name string) (RevokeAnswer, error) {
	ls, begun := &srv.root.logins, time.Now()
	ls.change.Lock()
	defer ls.change.Unlock()
	l, err := ls.named(name)
	if err != nil {
		return RevokeAnswer{}, err
	}
	durable, err := srv.root.saveRevoked(ls.with(name))
	if err != nil {
		return RevokeAnswer{}, err
	}
	ls.mu.Lock()
	ls.revoked[name] = true
	ls.mu.Unlock()
	n, err := srv.root.endLogins(l)
	srv.root.log.Warn(limitNone, "tenant revoked", "tenant", name, "sessions_ended", n, "took", time.Since(begun), "err", err)
	return RevokeAnswer{name, n, time.Since(begun).Microseconds(), durable, ls.revokedNames()}, err
}

// Allow lets a revoked tenant in again.
func (srv *Server) Allow(name string) (RevokeAnswer, error) {
	ls, begun := &srv.root.logins, time.Now()
	ls.change.Lock()
	defer ls.change.Unlock()
	l, err := ls.named(name)
	if err != nil && !ls.isRevoked(name) { // one that is in the file no more can be forgotten
		return RevokeAnswer{}, err
	}
	durable, err := srv.root.saveRevoked(ls.without(name))
	if err != nil {
		return RevokeAnswer{}, err
	}
	ls.mu.Lock()
	delete(ls.revoked, name)
	if l != nil {
		ls.byID[l.id] = newLogin(l.Tenant) // the old one stays gone for its sessions
	}
	ls.mu.Unlock()
	srv.root.log.Warn(limitNone, "tenant allowed again", "tenant", name)
	return RevokeAnswer{name, 0, time.Since(begun).Microseconds(), durable, ls.revokedNames()}, nil
}

// SetTenants makes the tenants of the node those of list: new ones may come in,
// the sessions of those that are changed or not in it any more end before it
// returns. A fault of the list changes nothing. ctx bounds the opening of spaces.
func (srv *Server) SetTenants(ctx context.Context, list []Tenant) error {
	root := srv.root
	full := slices.Clone(list)
	for i := range full {
		full[i] = full[i].withDefaults(&root.cfg)
	}
	spaces := spacesOf(full, root.cfg.MaxSessions)
	var errs []error
	errs = append(errs, root.cfg.checkTenants(full))
	for i := range spaces {
		spaces[i] = spaces[i].withDefaults(&root.cfg)
	}
	errs = append(errs, root.cfg.checkSpaces(spaces)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ls := &root.logins
	ls.reload.Lock()
	defer ls.reload.Unlock()
	ls.change.Lock()
	next, gone := ls.plan(full, len(root.cfg.Secret) > 0)
	ended, err := root.endLogins(gone...)
	ls.mu.Lock()
	ls.byID = next
	for _, l := range next {
		l.gone.Store(ls.revoked[l.Name])
	}
	ls.mu.Unlock()
	// Opening a space may take long, and somebody else is to be revoked meanwhile.
	// The tenants of one that is not open yet are refused; the others come in.
	ls.change.Unlock()
	if err2 := root.setSpaces(ctx, spaces); err == nil {
		err = err2
	}
	root.warnOfSecrets()
	root.log.Warn(limitNone, "tenants reloaded", "tenants", len(full), "changed_or_removed", len(gone), "sessions_ended", ended, "err", err)
	return err
}

// plan returns the logins of a list, those that are unchanged as they are, and
// those that are to go.
func (ls *logins) plan(list []Tenant, mainSecret bool) (next map[wire.Tenant]*login, gone []*login) {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	next = make(map[wire.Tenant]*login)
	for _, t := range list {
		id := wire.TenantOf(t.Name)
		old := ls.byID[id]
		if old != nil && old.sameAs(t) {
			next[id] = old
			continue
		}
		next[id] = newLogin(t)
	}
	if l := ls.byID[wire.Tenant{}]; l != nil && (mainSecret || len(list) == 0) {
		next[wire.Tenant{}] = l
	}
	for id, l := range ls.byID {
		if next[id] != l {
			gone = append(gone, l)
		}
	}
	return next, gone
}

// sameAs compares a login with what a tenant is to be.
func (l *login) sameAs(t Tenant) bool {
	a, b := l.Tenant, t
	same := a.Secret.Equal(b.Secret)
	a.Secret, b.Secret = t.Secret, t.Secret
	return same && a == b
}

// named returns the login of a tenant, revoked or not.
func (ls *logins) named(name string) (*login, error) {
	if name == "" {
		return nil, refuseAdmin(wire.StatusBadRequest, "the main secret cannot be revoked while the node runs: change secret_file and restart it")
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	if l := ls.byID[wire.TenantOf(name)]; l != nil && l.Name == name {
		return l, nil
	}
	return nil, refuseAdmin(wire.StatusNotFound, "this node has no tenant of that name")
}

func (ls *logins) isRevoked(name string) bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return ls.revoked[name]
}

// revokedNames returns those who are revoked, in order.
func (ls *logins) revokedNames() []string { return ls.with("") }

// with and without return the names of the revoked with one more, or one less.
func (ls *logins) with(name string) []string {
	names := ls.without(name)
	if name != "" {
		names = append(names, name)
		slices.Sort(names)
	}
	return names
}

func (ls *logins) without(name string) []string {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	names := make([]string, 0, len(ls.revoked)+1)
	for n := range ls.revoked {
		if n != name {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}
