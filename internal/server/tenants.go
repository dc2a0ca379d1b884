package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/handle"
	"github.com/rdmakv/rdmakv/internal/server/memory"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// A Tenant is somebody with a secret of its own. Beside the tenants there is the
// main login, whose secret is Config.Secret.
type Tenant = auth.Tenant

// RevokeAnswer is what revoking or allowing a tenant came to.
type RevokeAnswer = auth.RevokeAnswer

// Taking away what was given. A QP that may READ goes on READing whatever the
// server thinks of its peer, so a right ends with the QP: first the flag (the
// NIC refuses READs from then on), then a Goodbye that says why, then the QP
// itself. When endLogins returns, no READ that the peer posts completes.

// revokeLimit bounds the wait for QPs to be gone.
const revokeLimit = 5 * time.Second

// endLogins ends all sessions of logins, which are gone, and returns how many when
// none of their QPs is left; or an error, with those that are.
func (srv *Server) endLogins(gone []*auth.Login) (int, error) {
	var ends []*session.Session
	for _, sp := range srv.spaces.every() {
		for _, s := range sp.Sessions.List() {
			if slices.Contains(gone, s.Login) {
				ends = append(ends, s)
			}
		}
	}
	var wg sync.WaitGroup
	for _, s := range ends {
		wg.Go(s.Revoke)
	}
	wg.Wait()
	limit := time.NewTimer(revokeLimit)
	defer limit.Stop()
	for i, s := range ends {
		select {
		case <-s.Closed():
		case <-limit.C:
			return i, fmt.Errorf("server: %d of %d sessions are still closing", len(ends)-i, len(ends))
		}
	}
	return len(ends), nil
}

// Revoke refuses a tenant from now on: its sessions on this node end before
// Revoke returns, and none begins until Allow. The list of the revoked is on
// disk before the first session ends.
func (srv *Server) Revoke(name string) (RevokeAnswer, error) {
	begun := time.Now()
	answer, err := srv.logins.Revoke(name, srv.endLogins)
	if answer.Tenant != "" {
		srv.log.Warn(base.LogAlways, "tenant revoked", "tenant", name, "sessions_ended", answer.Sessions, "took", time.Since(begun), "err", err)
	}
	return answer, refusalOf(err)
}

// Allow lets a revoked tenant in again.
func (srv *Server) Allow(name string) (RevokeAnswer, error) {
	answer, err := srv.logins.Allow(name)
	if err == nil {
		srv.log.Warn(base.LogAlways, "tenant allowed again", "tenant", name)
	}
	return answer, refusalOf(err)
}

// refusalOf is an error of logins as an operator is told it.
func refusalOf(err error) error {
	switch {
	case errors.Is(err, auth.ErrMainLogin):
		return base.Refuse(wire.StatusBadRequest, "%v", err)
	case errors.Is(err, auth.ErrNoTenant):
		return base.Refuse(wire.StatusNotFound, "%v", err)
	}
	return err
}

// loadRevoked reads the list when the node starts, after the store has made its
// directory.
func (srv *Server) loadRevoked() error {
	names, err := srv.logins.Load()
	if len(names) > 0 {
		srv.log.Warn(base.LogAlways, "some tenants are revoked", "tenants", names)
	}
	return err
}

// SetTenants makes the tenants of the node those of list: new ones may come in,
// the sessions of those that are changed or not in it any more end before it
// returns. A fault of the list changes nothing. ctx bounds the opening of spaces.
func (srv *Server) SetTenants(ctx context.Context, list []Tenant) error {
	full := slices.Clone(list)
	for i := range full {
		full[i] = full[i].WithDefaults(srv.cfg.MaxSessions)
	}
	spaces := spacesOf(full, srv.cfg.MaxSessions)
	var errs []error
	errs = append(errs, auth.Check(full, srv.cfg.Secret, srv.cfg.MaxSessions))
	for i := range spaces {
		spaces[i] = spaces[i].withDefaults(&srv.cfg)
	}
	errs = append(errs, srv.cfg.checkSpaces(spaces)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	srv.spaces.reload.Lock()
	defer srv.spaces.reload.Unlock()
	gone, ended, err := srv.logins.Replace(full, len(srv.cfg.Secret) > 0, srv.endLogins)
	// Opening a space may take long, and somebody else is to be revoked meanwhile.
	// The tenants of one that is not open yet are refused; the others come in.
	if err2 := srv.spaces.set(ctx, spaces); err == nil {
		err = err2
	}
	warnOfSecrets(srv.log, srv.logins)
	srv.log.Warn(base.LogAlways, "tenants reloaded", "tenants", len(full), "changed_or_removed", gone, "sessions_ended", ended, "err", err)
	return err
}

// spacesOf are the spaces that tenants need, which have their defaults.
func spacesOf(tenants []Tenant, maxSessions int) (list []SpaceConfig) {
	for _, t := range tenants {
		if t.Space == auth.MainSpace {
			continue
		}
		i := slices.IndexFunc(list, func(c SpaceConfig) bool { return c.Name == t.Space })
		if i < 0 {
			i = len(list)
			list = append(list, SpaceConfig{Name: t.Space})
		}
		list[i].MemoryLimit = max(list[i].MemoryLimit, t.MemoryLimit)
		list[i].MaxSessions = min(list[i].MaxSessions+t.MaxSessions, maxSessions)
	}
	return list
}

// withSpaces is the configuration with the spaces of its tenants.
func (c Config) withSpaces() Config {
	c.Tenants = slices.Clone(c.Tenants)
	for i := range c.Tenants {
		c.Tenants[i] = c.Tenants[i].WithDefaults(c.MaxSessions)
	}
	for _, sp := range spacesOf(c.Tenants, c.MaxSessions) {
		if !slices.ContainsFunc(c.Spaces, func(o SpaceConfig) bool { return o.Name == sp.Name }) {
			c.Spaces = append(slices.Clip(c.Spaces), sp)
		}
	}
	return c
}

// logins are those of the configuration.
func (c *Config) logins() auth.LoginsConfig {
	lc := auth.LoginsConfig{
		Secret: c.Secret, MaxSessions: c.MaxSessions, MaxRequests: c.MaxSessions * (c.Credits + 1),
		Tenants: c.Tenants, Private: c.Private, FS: c.FS, Dir: c.DataDir,
	}
	if c.Mode == store.Cache { // it keeps nothing
		lc.Dir = ""
	}
	return lc
}

// stagingShare is how much staging memory one tenant may have in use: all where
// nobody else can come, else a part that holds the largest value.
func (srv *Server) stagingShare() int64 {
	all := srv.cfg.StagingBytes
	if srv.logins.Alone() {
		return all
	}
	return max(all/base.ShareParts, memory.MaxStage)
}

// adminRotate begins a rotation in every space of the node, or tells how far
// they are.
func (srv *Server) adminRotate(by handle.Asker, name string) (any, error) {
	switch name {
	case "status":
	case "", "start":
		// All or none: what runs already is not begun again.
		for _, sp := range srv.spaces.every() {
			if sp.RotationStat().Running {
				return nil, base.Refuse(wire.StatusOverloaded, "%v: ask for its status, and again when it is over", memory.ErrRotating)
			}
		}
		srv.log.Info("rotation of rkeys asked for", "peer", by.Peer)
		if err := srv.main.StartRotation(); err != nil {
			return nil, base.Refuse(wire.StatusOverloaded, "%v", err)
		}
		for _, sp := range srv.spaces.tenants() {
			_ = sp.StartRotation() // of one that does not serve there is none
		}
	default:
		return nil, base.Refuse(wire.StatusBadRequest, "%q: start or status", name)
	}
	var answer struct {
		Running bool           `json:"running"`
		Spaces  []RotationStat `json:"spaces"`
	}
	for _, sp := range srv.spaces.every() {
		if !sp.Serving.Load() {
			continue
		}
		st := sp.RotationStat()
		answer.Running = answer.Running || st.Running
		answer.Spaces = append(answer.Spaces, st)
	}
	return answer, nil
}
