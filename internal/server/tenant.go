package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Tenant is somebody with a secret of his own. Beside the tenants there is the
// main login, whose secret is Config.Secret: it has all rights over the node's
// own space.
type Tenant struct {
	// Name is 1 to 63 of [a-z0-9-.]. Whoever may see the log sees it.
	Name string
	// Secret has at least MinTenantSecret bytes, and no other tenant has it.
	Secret secret.Text
	// Space is where his keys are: "own" for one of his name, "main" for the
	// node's, or a name that several tenants share. Whoever has one-sided access
	// to a space reads all of it. Default: "main" with a Prefix, else "own".
	Space string
	// MemoryLimit bounds the regions of his space, bytes; of those who share it
	// the largest counts. Default: the space's.
	MemoryLimit uint64
	// ReadOnly: no writes. He may still READ one-sidedly.
	ReadOnly bool
	// Prefix limits him to keys that begin with it. A NIC knows no keys, so he
	// gets no rkeys and no right to READ: everything goes by SEND.
	Prefix string
	// SendOnly denies one-sided access for any other reason.
	SendOnly bool
	// Admin may ask what the operator of a node asks (wire.TypeAdmin).
	Admin bool
	// MaxSessions bounds his sessions on this node. Default 256.
	MaxSessions int
	// MaxRequests bounds his requests in flight on this node, over all sessions.
	// Default 4096.
	MaxRequests int
	// MaxInflightBytes bounds their bytes: messages, and values that the server
	// READs for them. Default 256 MiB.
	MaxInflightBytes int64
}

// Bounds of tenants.
const (
	MinTenantSecret = 16
	MaxTenants      = 1024

	ownSpace         = "own"
	defTenantFlights = 4096
	defTenantBytes   = 256 << 20
	// defTenantQueued is how many requests of a tenant wait for the workers of one
	// kind: scans, say. It is about two seconds' work.
	defTenantQueued = 1024
)

func (t Tenant) withDefaults(node *Config) Tenant {
	if t.Space == "" {
		t.Space = ownSpace
		if t.Prefix != "" {
			t.Space = mainSpace
		}
	}
	if t.Space == ownSpace {
		t.Space = t.Name
	}
	def(&t.MaxSessions, min(defSpaceSessions, node.MaxSessions))
	def(&t.MaxRequests, defTenantFlights)
	def(&t.MaxInflightBytes, defTenantBytes)
	return t
}

// spacesOf are the spaces that tenants need, which have their defaults.
func spacesOf(tenants []Tenant, maxSessions int) (list []SpaceConfig) {
	for _, t := range tenants {
		if t.Space == mainSpace {
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
		c.Tenants[i] = c.Tenants[i].withDefaults(&c)
	}
	for _, sp := range spacesOf(c.Tenants, c.MaxSessions) {
		if !slices.ContainsFunc(c.Spaces, func(o SpaceConfig) bool { return o.Name == sp.Name }) {
			c.Spaces = append(slices.Clip(c.Spaces), sp)
		}
	}
	return c
}

// checkTenants returns every fault of a list of tenants, which have their
// defaults. No fault shows a secret.
func (c *Config) checkTenants(list []Tenant) error {
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
		if !validSpaceName(t.Name) || t.Name == ownSpace {
			fault(t, "the name must be 1 to %d of [a-z0-9-.], begin with a letter or a digit, and be neither %q nor %q", maxSpaceName, mainSpace, ownSpace)
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
		if !t.Secret.Empty() && t.Secret.Equal(secret.New(c.Secret)) {
			fault(t, "has the node's main secret: who knows it would be the operator")
		}
		for _, o := range list[:i] {
			if !t.Secret.Empty() && t.Secret.Equal(o.Secret) {
				fault(t, "has the secret of tenant %q", o.Name)
			}
		}
		if t.Space != mainSpace && !validSpaceName(t.Space) {
			fault(t, "space %q: want %q, %q or a name", t.Space, ownSpace, mainSpace)
		}
		if t.Space == mainSpace && t.MemoryLimit != 0 {
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
		if t.MaxSessions < 1 || t.MaxSessions > c.MaxSessions {
			fault(t, "max sessions = %d: must be 1 to %d", t.MaxSessions, c.MaxSessions)
		}
		if t.MaxRequests < 1 {
			fault(t, "max requests = %d: must be positive", t.MaxRequests)
		}
		if t.MaxInflightBytes < maxValue {
			fault(t, "max in-flight bytes = %d: must hold one value of %d", t.MaxInflightBytes, maxValue)
		}
	}
	return errors.Join(errs...)
}
