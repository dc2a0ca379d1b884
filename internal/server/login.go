package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A login is who a session belongs to: whose secret opened it, what it may do,
// and what it uses. It is made from a Tenant and never changed; another one
// takes its place when the tenant does.
type login struct {
	Tenant // with defaults; Name is "" for the main login

	id       wire.Tenant
	admin    bool
	write    bool
	oneSided bool   // READs are let through, rkeys are told
	prefix   []byte // of every key that it may name

	// gone: it is revoked, changed or removed. Set before its sessions are ended
	// and looked at by each that is on its way in, so that none slips through.
	gone atomic.Bool

	sessions atomic.Int32 // open ones
	requests atomic.Int32 // in flight
	bytes    atomic.Int64 // of them
	held     atomic.Int64 // bytes of held places (hold.go)
	receives atomic.Int64 // that its sessions have grown to (receives.go)
	hits     [limitKinds]atomic.Uint64
	polls    int // watches that wait; guarded by watches.mu of the one space it uses

	maxQueued int             // requests that wait in each pool but that of gets
	turns     [poolKinds]turn // each guarded by its pool's mu
}

// label is the name in metrics and in the log.
func (l *login) label() string {
	if l.Name == "" {
		return mainSpace
	}
	return l.Name
}

// client is the name under which writes of a client program are remembered; zero
// for one without an id. The id travels in the clear: a tenant who has seen
// another's must not answer for his writes, so each has names of his own.
func (l *login) client(id [16]byte) (name [16]byte) {
	if id == name || l.id == (wire.Tenant{}) {
		return id
	}
	sum := sha256.Sum256(append(append([]byte("rkv client"), l.id[:]...), id[:]...))
	copy(name[:], sum[:])
	return name
}

// owner is the number by which the store tells results of tenants apart, so that the
// requests of one do not take the results of another; 0 is the main login.
func (l *login) owner() uint32 { return binary.BigEndian.Uint32(l.id[:]) }

func newLogin(t Tenant) *login {
	return &login{
		Tenant: t, id: wire.TenantOf(t.Name),
		admin: t.Admin, write: !t.ReadOnly, oneSided: t.Prefix == "" && !t.SendOnly, prefix: []byte(t.Prefix),
		maxQueued: min(t.MaxRequests, defTenantQueued),
	}
}

// mainLogin is the node's own, with all rights and the node's own limits.
func mainLogin(cfg *Config) *login {
	l := newLogin(Tenant{
		Secret: secret.New(cfg.Secret), Space: mainSpace, Admin: true,
		MaxSessions: cfg.MaxSessions, MaxRequests: cfg.MaxSessions * (cfg.Credits + 1), MaxInflightBytes: 1 << 62,
	})
	l.maxQueued = l.MaxRequests
	return l
}

// logins are those of a node.
type logins struct {
	// stranger has a secret that nobody knows: a name that does not exist costs
	// as much to refuse as a wrong secret, and is answered the same.
	stranger *login

	mu      sync.RWMutex
	byID    map[wire.Tenant]*login
	revoked map[string]bool

	reload sync.Mutex // held by SetTenants, for as long as opening spaces takes; before change
	change sync.Mutex // held by whoever changes them, until the sessions have ended
}

// start makes the logins of a configuration that has been checked.
func (ls *logins) start(cfg *Config) {
	nobody := make([]byte, 32)
	rand.Read(nobody) // never fails
	ls.stranger = newLogin(Tenant{Name: "-", Secret: secret.New(nobody)})
	ls.byID, ls.revoked = make(map[wire.Tenant]*login), make(map[string]bool)
	// With tenants and without a main secret nobody comes in nameless.
	if len(cfg.Secret) > 0 || len(cfg.Tenants) == 0 && !cfg.Private {
		ls.byID[wire.Tenant{}] = mainLogin(cfg)
	}
	for _, t := range cfg.Tenants {
		l := newLogin(t)
		ls.byID[l.id] = l
	}
}

// find returns the login that a request names; the stranger if there is none, or
// it is revoked. The id is no secret, so looking it up may take what it takes;
// secrets are compared by their MACs alone, in constant time.
func (ls *logins) find(id wire.Tenant) *login {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	if l := ls.byID[id]; l != nil && !l.gone.Load() {
		return l
	}
	return ls.stranger
}

// alone says whether there is one login and nobody whom its use could harm.
func (ls *logins) alone() bool {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	return len(ls.byID) <= 1
}

// shared says whether the space of the server has more than one login.
func (srv *Server) shared() bool {
	name, ls := mainSpace, &srv.root.logins
	if srv.root != srv {
		name = srv.space
	}
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	n := 0
	for _, l := range ls.byID {
		if l.Space == name {
			n++
		}
		if n > 1 {
			return true
		}
	}
	return false
}

// list returns all logins, in no order.
func (ls *logins) list() []*login {
	ls.mu.RLock()
	defer ls.mu.RUnlock()
	all := make([]*login, 0, len(ls.byID))
	for _, l := range ls.byID {
		all = append(all, l)
	}
	return all
}
