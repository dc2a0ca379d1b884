package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

// descriptor makes the description of a metric with the label node before others.
type descriptor func(name, help string, labels ...string) *prometheus.Desc

// counts are the counters. Gets are told by how they were answered: that the way
// is mostly one_read is what this store is for.
func counts(desc descriptor) []count {
	type C = client.Counters
	gets := desc("gets_total", "Gets by how they were answered.", "path", "result")
	fallbacks := desc("get_fallbacks_total", "Gets that went by SEND, by cause.", "cause")
	retries := desc("retries_total", "What was READ or sent again, by cause.", "cause")
	writes := desc("writes_total", "Writes by kind; a batch is one.", "kind")
	cache := desc("location_cache_total", "Gets by what the location cache knew.", "result")
	waits := desc("waits_total", "How waits for completions went; one that spun in vain slept after.", "how")
	of := func(d *prometheus.Desc, f func(*C) uint64, labels ...string) count { return count{d, labels, f, 1} }
	plain := func(name, help string, f func(*C) uint64) count { return count{desc(name, help), nil, f, 1} }
	return []count{
		of(gets, func(c *C) uint64 { return c.OneReadHits }, "one_read", "hit"),
		of(gets, func(c *C) uint64 { return c.OneSidedHits - min(c.OneReadHits, c.OneSidedHits) }, "more_reads", "hit"),
		of(gets, func(c *C) uint64 { return c.OneSidedMisses }, "more_reads", "miss"),
		of(gets, func(c *C) uint64 { return c.SendGets }, "send", "any"),

		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Slotless }, "slotless"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Pebble }, "pebble"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Rounds }, "rounds"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.NoLease }, "no_lease"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.NoRegion }, "no_region"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.NoRoom }, "no_room"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Expiry }, "expiry"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Words }, "words"),
		of(fallbacks, func(c *C) uint64 { return c.Fallbacks.Other }, "other"),

		of(retries, func(c *C) uint64 { return c.Retries.Torn }, "torn"),
		of(retries, func(c *C) uint64 { return c.Retries.Pending }, "pending"),
		of(retries, func(c *C) uint64 { return c.Retries.Dead }, "dead"),
		of(retries, func(c *C) uint64 { return c.Retries.Misfit }, "misfit"),
		of(retries, func(c *C) uint64 { return c.Retries.Marked }, "marked"),
		of(retries, func(c *C) uint64 { return c.Retries.Mismatch }, "mismatch"),
		of(retries, func(c *C) uint64 { return c.Retries.Chunk }, "chunk"),
		of(retries, func(c *C) uint64 { return c.Retries.Lease }, "lease"),
		of(retries, func(c *C) uint64 { return c.Retries.Session }, "session"),
		of(retries, func(c *C) uint64 { return c.Retries.Refused }, "refused"),
		of(retries, func(c *C) uint64 { return c.Retries.Write }, "write"),

		of(writes, func(c *C) uint64 { return c.Puts }, "put"),
		of(writes, func(c *C) uint64 { return c.Deletes }, "delete"),
		of(writes, func(c *C) uint64 { return c.Updates }, "update"),
		of(writes, func(c *C) uint64 { return c.Batches }, "batch"),

		of(cache, func(c *C) uint64 { return c.CacheHits }, "hit"),
		of(cache, func(c *C) uint64 { return c.CacheMisses }, "miss"),
		of(cache, func(c *C) uint64 { return c.CacheStale }, "stale"),

		plain("reads_total", "RDMA READs posted.", func(c *C) uint64 { return c.Reads }),
		plain("read_bytes_total", "Bytes of them.", func(c *C) uint64 { return c.ReadBytes }),
		plain("read_batches_total", "Doorbells for them.", func(c *C) uint64 { return c.ReadBatches }),
		of(waits, func(c *C) uint64 { return c.Waits.SpinsGot }, "spun"),
		of(waits, func(c *C) uint64 { return c.Waits.SpinsVain }, "spun_in_vain"),
		of(waits, func(c *C) uint64 { return c.Waits.Parks }, "slept"),
		{desc("spin_seconds_total", "Time that waits spent polling."), nil, func(c *C) uint64 { return c.Waits.SpinNanos }, 1e-9},

		plain("scan_pages_total", "Pages of scans.", func(c *C) uint64 { return c.ScanPages }),
		plain("lease_renewals_total", "Leases renewed by a READ of the beat.", func(c *C) uint64 { return c.LeaseRenewals }),
		plain("lease_expired_total", "Results thrown away because the lease had run out.", func(c *C) uint64 { return c.LeaseExpired }),
		plain("view_refreshes_total", "Region tables fetched.", func(c *C) uint64 { return c.ViewRefreshes }),
		plain("connects_total", "Sessions made, the first included.", func(c *C) uint64 { return c.Connects }),
		plain("connects_failed_total", "Attempts to connect that failed.", func(c *C) uint64 { return c.ConnectsFailed }),
		plain("sessions_lost_total", "Sessions that ended.", func(c *C) uint64 { return c.SessionsLost }),
		plain("timeouts_total", "Calls that ended at their deadline.", func(c *C) uint64 { return c.Timeouts }),
		plain("outcome_unknown_total", "Writes that ended without an answer.", func(c *C) uint64 { return c.OutcomeUnknown }),
		plain("damaged_total", "Damaged items that the server was told of.", func(c *C) uint64 { return c.Damaged }),
	}
}

func gauges(desc descriptor) []gauge {
	type (
		C = client.Counters
		S = admin.NodeState
	)
	of := func(name, help string, f func(S, *C) float64) gauge { return gauge{desc(name, help), f} }
	return []gauge{
		of("connected", "1 if there is a session.", func(s S, _ *C) float64 { return one(s.Connected) }),
		of("leased", "1 if what is READ is believed.", func(s S, _ *C) float64 { return one(s.Leased) }),
		of("lease_left_seconds", "For how long yet, if nothing renews it.", func(s S, _ *C) float64 { return seconds(s.LeaseLeft) }),
		of("credits", "Requests that the server would take at once.", func(s S, _ *C) float64 { return float64(s.Credits) }),
		of("inflight", "Requests under way.", func(s S, _ *C) float64 { return float64(s.Inflight) }),
		of("waiting", "Calls that wait for their turn.", func(s S, _ *C) float64 { return float64(s.Waiting) }),
		of("cached_places", "Remembered places of items.", func(s S, _ *C) float64 { return float64(s.CachedPlaces) }),
		of("cached_places_bytes", "Memory that they take.", func(s S, _ *C) float64 { return float64(s.CacheBytes) }),
		of("view_version", "Version of the region table in use.", func(s S, _ *C) float64 { return float64(s.ViewVersion) }),
		of("regions", "Regions that can be READ.", func(s S, _ *C) float64 { return float64(s.Regions) }),
		of("buffer_bytes", "Registered memory for gets.", func(_ S, c *C) float64 { return float64(c.BufferBytes) }),
		of("staging_bytes", "Registered memory for large puts.", func(_ S, c *C) float64 { return float64(c.StagingBytes) }),
		of("quarantined_bytes", "Registered memory that waits for completions nobody wants.", func(_ S, c *C) float64 { return float64(c.QuarantinedBytes) }),
	}
}
