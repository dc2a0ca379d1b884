package auth

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Tenant is a group of clients with a secret of their own. Beside the tenants there is the
// main login, whose secret is Config.Secret: it has all rights over the node's
// own space.
type Tenant struct {
	// Name is 1 to 63 of [a-z0-9-.]. Readers of the log see it.
	Name string
	// Secret has at least MinTenantSecret bytes, and no other tenant has it.
	Secret secret.Text
	// Space is where its keys are: "own" for one of its name, "main" for the
	// node's, or a name that several tenants share. A tenant with one-sided
	// access to a space can read all of it. Default: "main" with a Prefix, else "own".
	Space string
	// MemoryLimit bounds the regions of its space, bytes; of the tenants that share
	// it the largest counts. Default: the space's.
	MemoryLimit uint64
	// ReadOnly: no writes. The tenant may still READ one-sidedly.
	ReadOnly bool
	// Prefix limits the tenant to keys that begin with it. A NIC knows no keys, so it
	// gets no rkeys and no right to READ: everything goes by SEND.
	Prefix string
	// SendOnly denies one-sided access for any other reason.
	SendOnly bool
	// Admin may ask what the operator of a node asks (wire.AdminRotate and so on).
	Admin bool
	// MaxSessions bounds its sessions on this node. Default 256.
	MaxSessions int
	// MaxRequests bounds its requests in flight on this node, over all sessions.
	// Default 4096.
	MaxRequests int
	// MaxInflightBytes bounds their bytes: messages, and values that the server
	// READs for them. Default 256 MiB.
	MaxInflightBytes int64
}

// Bounds of tenants, and names that mean something.
const (
	// MinTenantSecret is how many bytes a tenant's secret has at least, MaxTenants how
	// many tenants a node has at most.
	MinTenantSecret = 16
	MaxTenants      = 1024
	// MainSpace is the space of the node itself; MaxName bounds the names of tenants and
	// spaces, bytes.
	MainSpace = "main"
	MaxName   = 63

	ownSpace          = "own" // stands for the tenant's own name
	defTenantSessions = 256
	defTenantFlights  = 4096
	defTenantBytes    = 256 << 20

	// TenantQueued is how many requests of a tenant wait for the workers of one
	// kind: scans, say. It is about two seconds' work.
	TenantQueued = 1024
)

// WithDefaults is the tenant with what it does not say, on a node of that many sessions.
func (t Tenant) WithDefaults(maxSessions int) Tenant {
	if t.Space == "" {
		t.Space = ownSpace
		if t.Prefix != "" {
			t.Space = MainSpace
		}
	}
	if t.Space == ownSpace {
		t.Space = t.Name
	}
	t.MaxSessions = cmp.Or(t.MaxSessions, min(defTenantSessions, maxSessions))
	t.MaxRequests = cmp.Or(t.MaxRequests, defTenantFlights)
	t.MaxInflightBytes = cmp.Or(t.MaxInflightBytes, defTenantBytes)
	return t
}

// Check returns every fault of a list of tenants, which have their
// defaults, on a node with that main secret and of that many sessions. No fault shows a
// secret.
func Check(list []Tenant, main []byte, maxSessions int) error {
	var errs []error
	fault := func(t *Tenant, format string, args ...any) {
		errs = append(errs, fmt.Errorf("server: tenant %q: %s", t.Name, fmt.Sprintf(format, args...)))
	}
	if len(list) > MaxTenants {
		errs = append(errs, fmt.Errorf("server: %d tenants: at most %d", len(list), MaxTenants))
	}
	ids := map[wire.Tenant]string{{}: ""}
	for i := range list {
		t := &list[i]
		if !ValidName(t.Name) || t.Name == ownSpace {
			fault(t, "the name must be 1 to %d of [a-z0-9-.], begin with a letter or a digit, and be neither %q nor %q", MaxName, MainSpace, ownSpace)
		} else if other, taken := ids[wire.TenantOf(t.Name)]; taken {
			if other == t.Name {
				fault(t, "is named twice")
			} else {
				fault(t, "has the same id as tenant %q: call one of them otherwise", other)
			}
		}
		ids[wire.TenantOf(t.Name)] = t.Name
		if n := len(t.Secret.Reveal()); n < MinTenantSecret {
			fault(t, "a secret of %d bytes: at least %d", n, MinTenantSecret)
		}
		if !t.Secret.Empty() && t.Secret.Equal(secret.New(main)) {
			fault(t, "has the node's main secret: who knows it would be the operator")
		}
		for _, o := range list[:i] {
			if !t.Secret.Empty() && t.Secret.Equal(o.Secret) {
				fault(t, "has the secret of tenant %q", o.Name)
			}
		}
		if t.Space != MainSpace && !ValidName(t.Space) {
			fault(t, "space %q: want %q, %q or a name", t.Space, ownSpace, MainSpace)
		}
		if t.Space == MainSpace && t.MemoryLimit != 0 {
			fault(t, "a memory limit, and no space of its own")
		}
		if len(t.Prefix) > layout.MaxKeyLen {
			fault(t, "a prefix of %d bytes: keys have at most %d", len(t.Prefix), layout.MaxKeyLen)
		}
		if t.ReadOnly && t.Admin {
			fault(t, "is read-only and an administrator: choose one")
		}
		if t.Prefix != "" && t.Admin {
			fault(t, "has a prefix and is an administrator: choose one")
		}
		if t.MaxSessions < 1 || t.MaxSessions > maxSessions {
			fault(t, "max sessions = %d: must be 1 to %d", t.MaxSessions, maxSessions)
		}
		if t.MaxRequests < 1 {
			fault(t, "max requests = %d: must be positive", t.MaxRequests)
		}
		if t.MaxInflightBytes < layout.MaxValueLen {
			fault(t, "max in-flight bytes = %d: must hold one value of %d", t.MaxInflightBytes, layout.MaxValueLen)
		}
	}
	return errors.Join(errs...)
}

// ValidName says whether a name may be a tenant's or a space's, hence a directory's.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxName || name == MainSpace || name[0] == '.' || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.') {
			return false
		}
	}
	return true
}
