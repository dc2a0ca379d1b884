package telemetry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/base"
)

// What metrics tell about tenants and about the bounds on peers. Names of tenants
// are labels; nothing else of them is.
var (
	descTenantSessions = newDesc("tenant_sessions", "Open sessions, by tenant.", "tenant")
	descTenantRequests = newDesc("tenant_requests_in_flight", "Requests in flight, by tenant.", "tenant")
	descTenantQueued   = newDesc("tenant_requests_queued", "Requests that wait for workers, by tenant.", "tenant")
	descTenantBytes    = newDesc("tenant_in_flight_bytes", "Bytes of requests in flight, by tenant.", "tenant")
	descTenantRefused  = newDesc("tenant_refused_total", "Sessions and requests refused for a limit, by tenant and limit.", "tenant", "limit")
	descTenantRevoked  = newDesc("tenant_revoked", "1 for tenants that are revoked.", "tenant")
	descLimit          = newDesc("limit", "Bounds on the number of something that peers have, by name.", "limit")
	descLimitUsed      = newDesc("limit_used", "How much of such a bound is in use; of those per host or tenant, by the one that uses most.", "limit")
	descLimitBytes     = newDesc("limit_bytes", "Bounds on memory that peers take, by name.", "limit")
	descLimitBytesUsed = newDesc("limit_used_bytes", "How much of such a bound is in use; of those per tenant, by the one that uses most.", "limit")
	descSetupTime      = newDesc("limit_setup_seconds", "How long a connection may take until it has proved its secret.")
	descLimitHits      = newDesc("limit_hits_total", "How often a peer was refused for a bound.", "limit")
	descDenied         = newDesc("requests_denied_total", "Requests refused because the tenant has not the right.")
)

// collectTenants shows tenants and limits; of the node alone.
func collectTenants(out sink, src Sources) {
	for _, st := range Tenants(src) {
		out.gauge(descTenantSessions, float64(st.Sessions), st.Name)
		out.gauge(descTenantRequests, float64(st.Requests), st.Name)
		out.gauge(descTenantQueued, float64(st.Queued), st.Name)
		out.gauge(descTenantBytes, float64(st.Bytes), st.Name)
		out.gauge(descTenantRevoked, boolNumber(st.Revoked), st.Name)
		for limit, n := range st.Refused {
			out.counter(descTenantRefused, float64(n), st.Name, limit)
		}
	}
	for _, l := range src.Limits() {
		switch {
		case l.Max <= 0:
		case l.Name == LimitSetupTime:
			out.gauge(descSetupTime, float64(l.Max)/1000)
		case limitsBytes(l.Name):
			out.gauge(descLimitBytes, float64(l.Max), l.Name)
			out.gauge(descLimitBytesUsed, float64(l.Used), l.Name)
		default:
			out.gauge(descLimit, float64(l.Max), l.Name)
			out.gauge(descLimitUsed, float64(l.Used), l.Name)
		}
		out.counter(descLimitHits, float64(l.Hits), l.Name)
	}
	out.counter(descDenied, float64(src.Node().Bounds.Denied.Load()))
}

// LimitSetupTime is the one limit that is a time, in milliseconds.
const LimitSetupTime = "setup_milliseconds"

// limitsBytes says whether a limit of that name bounds memory. The others bound a number.
func limitsBytes(name string) bool {
	return strings.HasSuffix(name, "_bytes") || name == base.BoundLoginStaging.String() || name == base.BoundLoginHolds.String()
}

// What an operator asks about tenants and limits. No answer has a secret in it.

// A TenantStat is one tenant: what he may, and what he uses of it.
type TenantStat struct {
	Name        string            `json:"name"` // "main" for the main login
	Space       string            `json:"space"`
	Rights      []string          `json:"rights"` // of read, write, one-sided, admin
	Prefix      string            `json:"prefix,omitempty"`
	Revoked     bool              `json:"revoked"`
	Sessions    int               `json:"sessions"`
	MaxSessions int               `json:"max_sessions"`
	Requests    int               `json:"requests_in_flight"`
	MaxRequests int               `json:"max_requests"`
	Queued      int               `json:"requests_queued"` // of those in flight, that wait for workers
	MaxQueued   int               `json:"max_queued"`      // of scans and the like, and of each other kind
	Bytes       int64             `json:"bytes_in_flight"`
	MaxBytes    int64             `json:"max_inflight_bytes"`
	Refused     map[string]uint64 `json:"refused,omitempty"` // by limit
}

// Tenants lists the logins of a node by name, the main one first.
func Tenants(src Sources) []TenantStat {
	var list []TenantStat
	for _, l := range src.Node().Logins {
		st := TenantStat{
			Name: l.Label, Space: l.Space, Prefix: l.Prefix, Revoked: l.Gone(), Rights: []string{"read"},
			Sessions: int(l.Sessions.Load()), MaxSessions: l.MaxSessions,
			Requests: int(l.Requests.Load()), MaxRequests: l.MaxRequests,
			Queued: src.Queued(l), MaxQueued: l.MaxQueued,
			Bytes: l.Bytes.Load(), MaxBytes: l.MaxInflightBytes,
		}
		for _, right := range []struct {
			has  bool
			name string
		}{{l.MayWrite, "write"}, {l.OneSided, "one-sided"}, {l.Admin, "admin"}} {
			if right.has {
				st.Rights = append(st.Rights, right.name)
			}
		}
		for k := range l.Hits {
			if n := l.Hits[k].Load(); n > 0 {
				if st.Refused == nil {
					st.Refused = make(map[string]uint64)
				}
				st.Refused[base.Bound(k).String()] = n
			}
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b TenantStat) int {
		if (a.Name == auth.MainSpace) != (b.Name == auth.MainSpace) {
			if a.Name == auth.MainSpace {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return list
}

// A LimitStat is one bound of the node.
type LimitStat struct {
	Name string `json:"name"`
	Max  int64  `json:"max"`
	Used int64  `json:"used"`
	Hits uint64 `json:"hits"` // how often somebody was refused for it, or had to wait
}
