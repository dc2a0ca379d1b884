package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A Login is what a session belongs to: the secret that opened it, what it may do,
// and what it uses. It is made from a Tenant and never changed; another one
// takes its place when the tenant does.
type Login struct {
	Tenant // with defaults; Name is "" for the main login
	base.Account
	work.Turns

	ID        wire.Tenant
	MayWrite  bool
	OneSided  bool   // READs are let through, rkeys are told
	KeyPrefix []byte // of every key that it may name

	// gone: it is revoked, changed or removed. Set before its sessions are ended
	// and looked at by each that is on its way in, so that none slips through.
	gone atomic.Bool
}

// Gone says whether the login is revoked, changed or removed: its sessions end, and none
// begins.
func (l *Login) Gone() bool { return l.gone.Load() }

// MayName says whether a key, or a prefix of keys, is within the login's own prefix.
func (l *Login) MayName(key []byte) bool { return bytes.HasPrefix(key, l.KeyPrefix) }

// Client is the name under which writes of a client program are remembered; zero
// for one without an id. The id travels in the clear: a tenant that has seen
// another's must not answer for the other's writes, so each has names of its own.
func (l *Login) Client(id [16]byte) (name [16]byte) {
	if id == name || l.ID == (wire.Tenant{}) {
		return id
	}
	sum := sha256.Sum256(append(append([]byte("rkv client"), l.ID[:]...), id[:]...))
	copy(name[:], sum[:])
	return name
}

// Owner is the number by which the store tells results of tenants apart, so that the
// requests of one do not take the results of another; 0 is the main login.
func (l *Login) Owner() uint32 { return binary.BigEndian.Uint32(l.ID[:]) }

// newLogin makes a login of a tenant, which has its defaults.
func newLogin(t Tenant) *Login {
	l := &Login{
		Tenant: t, Account: base.Account{Label: t.Name}, ID: wire.TenantOf(t.Name),
		MayWrite: !t.ReadOnly, OneSided: t.Prefix == "" && !t.SendOnly, KeyPrefix: []byte(t.Prefix),
		Turns: work.Turns{MaxQueued: min(t.MaxRequests, TenantQueued), Main: t.Name == ""},
	}
	if l.Label == "" {
		l.Label = MainSpace
	}
	return l
}

// LoginsConfig says which clients may come in, and where the revoked ones are noted.
type LoginsConfig struct {
	// Secret is that of the main login, which has all rights over the node's own space;
	// empty: there is none, or every client is the main login.
	Secret []byte
	// MaxSessions and MaxRequests are the bounds of the main login: the node's own.
	MaxSessions, MaxRequests int
	Tenants                  []Tenant // checked, with defaults
	// Private: no client comes in without a secret, also while there is none.
	Private bool
	// FS and Dir are where the list of revoked tenants is; Dir "" keeps none.
	FS  vfs.FS // nil: the machine's
	Dir string
}

// Logins are those of a node. All methods are safe for concurrent use.
type Logins struct {
	// stranger has a secret that no client knows: a name that does not exist costs
	// as much to refuse as a wrong secret, and is answered the same.
	stranger *Login
	list     revokedList

	mu      sync.RWMutex
	byID    map[wire.Tenant]*Login
	revoked map[string]bool

	change sync.Mutex // held by the call that changes them, until the sessions have ended
}

// NewLogins makes the logins of a configuration that has been checked.
func NewLogins(cfg LoginsConfig) *Logins {
	unknown := make([]byte, 32)
	rand.Read(unknown) // never fails
	ls := &Logins{
		stranger: newLogin(Tenant{Name: "-", Secret: secret.New(unknown)}),
		list:     revokedList{cfg.FS, cfg.Dir},
		byID:     make(map[wire.Tenant]*Login), revoked: make(map[string]bool),
	}
	// With tenants and without a main secret no client comes in nameless.
	if len(cfg.Secret) > 0 || len(cfg.Tenants) == 0 && !cfg.Private {
		main := newLogin(Tenant{
			Secret: secret.New(cfg.Secret), Space: MainSpace, Admin: true,
			MaxSessions: cfg.MaxSessions, MaxRequests: cfg.MaxRequests, MaxInflightBytes: 1 << 62,
		})
		main.MaxQueued = main.MaxRequests
		ls.byID[wire.Tenant{}] = main
	}
	for _, t := range cfg.Tenants {
		l := newLogin(t)
		ls.byID[l.ID] = l
	}
	return ls
}

// Find returns the login that a request names; the stranger if there is none, or
// it is revoked. The id is no secret, so looking it up may take what it takes;
// secrets are compared by their MACs alone, in constant time.
func (ls *Logins) Find(id wire.Tenant) *Login {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	if l := ls.byID[id]; l != nil && !l.gone.Load() {
		return l
	}
	return ls.stranger
}

// Alone says whether there is one login only, so that its use can harm no other.
func (ls *Logins) Alone() bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return len(ls.byID) <= 1
}

// Shared says whether a space has more than one login; "main" is the node's own.
func (ls *Logins) Shared(space string) bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	n := 0
	for _, l := range ls.byID {
		if l.Space == space {
			n++
		}
		if n > 1 {
			return true
		}
	}
	return false
}

// All returns all logins, in no order.
func (ls *Logins) All() []*Login {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	all := make([]*Login, 0, len(ls.byID))
	for _, l := range ls.byID {
		all = append(all, l)
	}
	return all
}
