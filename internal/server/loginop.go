package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// What an operator asks about tenants and limits. Whether he may was decided
// before (rights.go). No answer has a secret in it.

// loginOp returns the operation of that number; nil if it is none of these. A
// function, because the operations lead back to the table of all.
func loginOp(op wire.AdminOp) func(srv *Server, name string) (any, error) {
	switch op {
	case wire.AdminRevoke:
		return func(srv *Server, name string) (any, error) { return srv.Revoke(name) }
	case wire.AdminAllow:
		return func(srv *Server, name string) (any, error) { return srv.Allow(name) }
	case wire.AdminLimits:
		return func(srv *Server, _ string) (any, error) { return srv.Limits(), nil }
	case wire.AdminTenants:
		return func(srv *Server, _ string) (any, error) { return srv.Tenants(), nil }
	}
	return clusterOp(op)
}

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

// Tenants lists the logins of the node by name, the main one first.
func (srv *Server) Tenants() []TenantStat {
	var list []TenantStat
	for _, l := range srv.root.logins.list() {
		st := TenantStat{
			Name: l.label(), Space: l.Space, Prefix: l.Prefix, Revoked: l.gone.Load(), Rights: []string{"read"},
			Sessions: int(l.sessions.Load()), MaxSessions: l.MaxSessions,
			Requests: int(l.requests.Load()), MaxRequests: l.MaxRequests,
			Queued: srv.queued(l), MaxQueued: l.maxQueued,
			Bytes: l.bytes.Load(), MaxBytes: l.MaxInflightBytes,
		}
		for _, right := range []struct {
			has  bool
			name string
		}{{l.write, "write"}, {l.oneSided, "one-sided"}, {l.admin, "admin"}} {
			if right.has {
				st.Rights = append(st.Rights, right.name)
			}
		}
		for k := range l.hits {
			if n := l.hits[k].Load(); n > 0 {
				if st.Refused == nil {
					st.Refused = make(map[string]uint64)
				}
				st.Refused[limitKind(k).String()] = n
			}
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b TenantStat) int {
		if (a.Name == mainSpace) != (b.Name == mainSpace) {
			if a.Name == mainSpace {
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

// Limits lists the bounds on peers. Those of single tenants are in Tenants.
func (srv *Server) Limits() []LimitStat {
	root := srv.root
	root.sessMu.Lock()
	most := func(m map[string]int) (n int) {
		for _, v := range m {
			n = max(n, v)
		}
		return n
	}
	setups, opens, hostSetups, hostOpens := len(root.setups.places), root.opens, most(root.setups.hosts), most(root.opensOf)
	root.sessMu.Unlock()
	c := &root.cfg
	hit := func(k limitKind) uint64 { return root.met.limits[k].Load() }
	staging, _ := root.staging.inUse()
	queued := 0 // by the tenant that has most
	held, holdLimit := root.store.HoldUse()
	results, maxResults, evicted := root.store.ResultUse()
	mostHeld, mostReceives := int64(0), int64(0)
	for _, l := range root.logins.list() {
		if l.Name != "" {
			queued = max(queued, root.queued(l))
		}
		mostHeld, mostReceives = max(mostHeld, l.held.Load()), max(mostReceives, l.receives.Load())
	}
	return []LimitStat{
		{limitSetups.String(), int64(c.MaxUnauthenticated), int64(setups), hit(limitSetups)},
		{limitHostSetups.String(), int64(c.MaxSetupsPerHost), int64(hostSetups), hit(limitHostSetups)},
		{limitSetupTime, int64(c.SetupTimeout / time.Millisecond), 0, root.met.ends[causeSetup].Load()},
		{limitSessions.String(), int64(min(c.MaxSessions, c.MaxConnections)), int64(setups + opens), hit(limitSessions)},
		{limitHostSessions.String(), int64(c.MaxSessionsPerHost), int64(hostOpens), hit(limitHostSessions)},
		{limitLoginSessions.String(), 0, 0, hit(limitLoginSessions)},
		{limitLoginRequests.String(), 0, 0, hit(limitLoginRequests)},
		{limitLoginBytes.String(), 0, 0, hit(limitLoginBytes)},
		{limitLoginQueue.String(), defTenantQueued, int64(queued), hit(limitLoginQueue)},
		{"session_credits", int64(c.Credits), 0, 0},
		{"session_reads", int64(maxReadDepth), 0, 0},
		{"receive_bytes", c.ReceiveBytes, 0, 0},
		{"reply_bytes", c.ReplyBytes, 0, 0},
		{"staging_bytes", c.StagingBytes, int64(staging), 0},
		{limitLoginStaging.String(), root.stagingShare(), root.staging.line.most(), hit(limitLoginStaging)},
		{limitStaging.String(), 0, 0, hit(limitStaging)},
		{limitLoginReceives.String(), min(root.receiveShare(), c.ReceiveBytes/int64(c.RequestSize)), mostReceives, hit(limitLoginReceives)},
		{limitReceives.String(), 0, 0, hit(limitReceives)},
		{"results", int64(maxResults), int64(results), evicted},
		{limitHolds.String(), holdLimit, held, hit(limitHolds)},
		{limitLoginHolds.String(), min(root.holdShare(), holdLimit), mostHeld, hit(limitLoginHolds)},
	}
}
