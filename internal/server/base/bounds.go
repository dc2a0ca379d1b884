package base

import (
	"fmt"
	"sync/atomic"
)

// A Bound is one limit on what a peer may take, before it has authenticated and after.
// Its name is the label of its counter in metrics.
//
//	before: set-ups (all, and of one host), time to Hello; one queue pair and
//	        one receive each, nothing sized by what the peer says
//	after:  sessions (all, of one host, of one tenant), requests and their
//	        bytes in flight (of one session by credits, of one tenant), those that
//	        wait for workers (of one tenant), and what sessions hold:
//	        replies, places, watches, staging
type Bound uint8

// ShareParts is into how many parts a bound is divided where tenants share it: one of them
// may have one part.
const ShareParts = 4

const (
	BoundSetups        Bound = iota // Config.MaxUnauthenticated
	BoundHostSetups                 // Config.MaxSetupsPerHost
	BoundSessions                   // Config.MaxSessions
	BoundHostSessions               // Config.MaxSessionsPerHost
	BoundLoginSessions              // Tenant.MaxSessions
	BoundLoginRequests              // Tenant.MaxRequests
	BoundLoginBytes                 // Tenant.MaxInflightBytes
	BoundLoginQueue                 // requests of a tenant that wait for workers of one kind
	BoundLoginStaging               // a tenant's share of staging memory; its put waits
	BoundStaging                    // staging memory that others wait for, and that a client does not let be filled
	BoundLoginHolds                 // a tenant's share of held places
	BoundHolds                      // the store's bound on all held places
	BoundLoginReceives              // a tenant's share of receives; its sessions do not grow
	BoundReceives                   // a session that keeps credits it does not use while others find too few
	BoundKinds
)

var boundNames = [BoundKinds]string{"setups", "host_setups", "sessions", "host_sessions", "tenant_sessions", "tenant_requests", "tenant_bytes",
	"tenant_queue", "tenant_staging", "staging_stalled", "tenant_holds", "hold_bytes",
	"tenant_receives", "credits_kept"}

func (k Bound) String() string { return boundNames[k] }

// ErrBound says which bound was reached.
type ErrBound Bound

func (e ErrBound) Error() string { return fmt.Sprintf("server: limit %q is reached", Bound(e)) }

// Bounds count how often peers of a node have met a bound, or lacked a right.
type Bounds struct {
	Hits   [BoundKinds]atomic.Uint64
	Denied atomic.Uint64 // requests without the right
}

// Hit counts that a bound was met, and returns an error that says so.
func (b *Bounds) Hit(k Bound) error {
	b.Hits[k].Add(1)
	return ErrBound(k)
}

// An Account counts what one login uses of a node at the moment, over all its sessions.
// Shares and bounds of a tenant are measured by it. It must not be copied after its first
// use; a pointer to it names the login where shares are counted.
type Account struct {
	Label string // of the tenant, in metrics and in the log; not changed

	Sessions atomic.Int32              // open ones
	Requests atomic.Int32              // in flight
	Bytes    atomic.Int64              // of them
	Held     atomic.Int64              // bytes of held places
	Receives atomic.Int64              // that its sessions have grown to
	Hits     [BoundKinds]atomic.Uint64 // how often it has met each bound
}

// Hit counts that the account met a bound, also among those of the node, and returns
// an error that says so.
func (a *Account) Hit(all *Bounds, k Bound) error {
	a.Hits[k].Add(1)
	return all.Hit(k)
}

// Hold counts size bytes as held, if they are within the share. One answer alone may
// exceed it. What is refused is never counted: another answer at the same moment
// would be refused because of it.
func (a *Account) Hold(size, share int64) bool {
	for {
		had := a.Held.Load()
		if had > 0 && (size > share || had > share-size) {
			return false
		}
		if a.Held.CompareAndSwap(had, had+size) {
			return true
		}
	}
}
