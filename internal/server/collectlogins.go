package server

import "strings"

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

// logins shows tenants and limits; of the node alone.
func (c collector) logins(out sink) {
	for _, st := range c.srv.Tenants() {
		out.gauge(descTenantSessions, float64(st.Sessions), st.Name)
		out.gauge(descTenantRequests, float64(st.Requests), st.Name)
		out.gauge(descTenantQueued, float64(st.Queued), st.Name)
		out.gauge(descTenantBytes, float64(st.Bytes), st.Name)
		out.gauge(descTenantRevoked, boolNumber(st.Revoked), st.Name)
		for limit, n := range st.Refused {
			out.counter(descTenantRefused, float64(n), st.Name, limit)
		}
	}
	for _, l := range c.srv.Limits() {
		switch {
		case l.Max <= 0:
		case l.Name == limitSetupTime:
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
	out.counter(descDenied, float64(c.srv.met.denied.Load()))
}

// limitSetupTime is the one limit that is a time, in milliseconds.
const limitSetupTime = "setup_milliseconds"

// limitsBytes says whether a limit of that name bounds memory. The others bound a number.
func limitsBytes(name string) bool {
	return strings.HasSuffix(name, "_bytes") || name == limitLoginStaging.String() || name == limitLoginHolds.String()
}
