package auth

import (
	"errors"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// Which tenants are refused. A list is durable before the first session ends, and a login is gone
// before its sessions are listed. A session on its way in looks at its login after its MAC
// was checked: it is found in the list, or finds that its login is gone.

// Errors of Revoke and Allow.
var (
	ErrMainLogin = errors.New("the main secret cannot be revoked while the node runs: change secret_file and restart it")
	ErrNoTenant  = errors.New("this node has no tenant of that name")
)

// An EndFunc ends all sessions of logins, which are gone, and returns how many there were
// when none of them can READ any more.
type EndFunc func(gone []*Login) (int, error)

// RevokeAnswer is what revoking or allowing a tenant came to.
type RevokeAnswer struct {
	Tenant   string   `json:"tenant"`
	Sessions int      `json:"sessions_ended"`
	Micros   int64    `json:"took_micros"`
	Durable  bool     `json:"durable"` // it outlives a restart of the node
	Revoked  []string `json:"revoked"` // all that are revoked now
}

// end ends the sessions of logins, which are gone from now on.
func end(gone []*Login, sessions EndFunc) (int, error) {
	for _, l := range gone {
		l.gone.Store(true) // before the sessions are listed
	}
	return sessions(gone)
}

// Load reads the list of the revoked when a node starts, and returns it. Before that
// no client may come in.
func (ls *Logins) Load() ([]string, error) {
	names, err := ls.list.load()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, n := range names {
		ls.revoked[n] = true
		if l := ls.byID[wire.TenantOf(n)]; l != nil {
			l.gone.Store(true)
		}
	}
	return names, err
}

// Revoke refuses a tenant from now on: its sessions have ended when it returns, and none
// begins until Allow. The list of the revoked is on disk before the first session ends.
// Errors: ErrMainLogin, ErrNoTenant, and those of the disk, which change nothing and leave
// the answer empty; those of sessions.
func (ls *Logins) Revoke(name string, sessions EndFunc) (RevokeAnswer, error) {
	begun := time.Now()
	ls.change.Lock()
	defer ls.change.Unlock()
	l, err := ls.named(name)
	if err != nil {
		return RevokeAnswer{}, err
	}
	durable, err := ls.list.save(ls.with(name))
	if err != nil {
		return RevokeAnswer{}, err
	}
	ls.mu.Lock()
	ls.revoked[name] = true
	ls.mu.Unlock()
	n, err := end([]*Login{l}, sessions)
	return RevokeAnswer{name, n, time.Since(begun).Microseconds(), durable, ls.revokedNames()}, err
}

// Allow lets a revoked tenant in again. Errors as of Revoke.
func (ls *Logins) Allow(name string) (RevokeAnswer, error) {
	begun := time.Now()
	ls.change.Lock()
	defer ls.change.Unlock()
	l, err := ls.named(name)
	if err != nil && !ls.isRevoked(name) { // one that is in the file no more can be forgotten
		return RevokeAnswer{}, err
	}
	durable, err := ls.list.save(ls.without(name))
	if err != nil {
		return RevokeAnswer{}, err
	}
	ls.mu.Lock()
	delete(ls.revoked, name)
	if l != nil {
		ls.byID[l.ID] = newLogin(l.Tenant) // the old one stays gone for its sessions
	}
	ls.mu.Unlock()
	return RevokeAnswer{name, 0, time.Since(begun).Microseconds(), durable, ls.revokedNames()}, nil
}

// Replace makes the tenants those of a list, which was checked and has its defaults. The
// sessions of those that are changed or not in it any more have ended when it returns: so
// many tenants and sessions. mainSecret: the main login stays whatever the list has.
func (ls *Logins) Replace(list []Tenant, mainSecret bool, sessions EndFunc) (gone, ended int, err error) {
	ls.change.Lock()
	defer ls.change.Unlock()
	next, out := ls.plan(list, mainSecret)
	ended, err = end(out, sessions)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byID = next
	for _, l := range next {
		l.gone.Store(ls.revoked[l.Name])
	}
	return len(out), ended, err
}

// plan returns the logins of a list, those that are unchanged as they are, and
// those that are to go.
func (ls *Logins) plan(list []Tenant, mainSecret bool) (next map[wire.Tenant]*Login, gone []*Login) {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	next = make(map[wire.Tenant]*Login)
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
func (l *Login) sameAs(t Tenant) bool {
	a, b := l.Tenant, t
	same := a.Secret.Equal(b.Secret)
	a.Secret, b.Secret = t.Secret, t.Secret
	return same && a == b
}

// named returns the login of a tenant, revoked or not.
func (ls *Logins) named(name string) (*Login, error) {
	if name == "" {
		return nil, ErrMainLogin
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	if l := ls.byID[wire.TenantOf(name)]; l != nil && l.Name == name {
		return l, nil
	}
	return nil, ErrNoTenant
}

func (ls *Logins) isRevoked(name string) bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return ls.revoked[name]
}

// revokedNames returns the tenants that are revoked, in order.
func (ls *Logins) revokedNames() []string { return ls.with("") }

// with and without return the names of the revoked with one more, or one less.
func (ls *Logins) with(name string) []string {
	names := ls.without(name)
	if name != "" {
		names = append(names, name)
		slices.Sort(names)
	}
	return names
}

func (ls *Logins) without(name string) []string {
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
