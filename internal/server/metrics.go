package server

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// metrics counts what the node does. Everything is a plain atomic counter, so
// that a request pays a few additions; collect.go turns them into Prometheus's
// form and stats.go into JSON when somebody asks.
type metrics struct {
	srv *Server

	ops      [wire.MaxRequest + 1][statusSlots]atomic.Uint64
	latency  [wire.MaxRequest + 1]histogram
	ends     [causeCount]atomic.Uint64
	bytesIn  atomic.Int64
	bytesOut atomic.Int64

	limits [limitKinds]atomic.Uint64 // bounds that peers have met; the node's alone
	denied atomic.Uint64             // requests without the right; likewise

	rendezvousBytes atomic.Int64
	beats           atomic.Uint64
	lateBeats       atomic.Uint64
	asked           atomic.Uint64 // writes that had to ask the disk
	touches         atomic.Uint64 // keys that clients reported as read
	damageReports   atomic.Uint64 // places that clients reported as damaged

	fill       atomic.Pointer[store.Progress]
	fillLogged atomic.Int64 // when progress was last logged
}

// statusSlots holds every status of the protocol, and one for others.
const statusSlots = 32

func newMetrics(srv *Server) *metrics { return &metrics{srv: srv} }

// observe counts a finished request. took is in nanoseconds.
func (m *metrics) observe(t wire.Type, st wire.Status, took int64) {
	if t > wire.MaxRequest {
		return
	}
	m.ops[t][min(int(st), statusSlots-1)].Add(1)
	m.latency[t].observe(took)
}

// ended counts a session that ended, or was refused.
func (m *metrics) ended(c cause) { m.ends[c].Add(1) }

// fillProgress notes how far the fill has come; the store calls it.
func (m *metrics) fillProgress(p store.Progress) {
	m.fill.Store(&p)
	if tell := m.srv.cfg.OnFill; tell != nil {
		tell(p)
	}
	if p.Done {
		what := []any{"keys", p.Keys, "bytes", p.Bytes, "took", p.Elapsed.Round(time.Millisecond)}
		if p.Err != nil {
			m.srv.log.Warn(limitNone, "memory is not filled", append(what, "err", p.Err)...)
		} else {
			m.srv.log.Info("memory filled", what...)
		}
		return
	}
	// A line every few seconds is enough; the numbers are in /metrics.
	if now := m.srv.now(); m.srv.cfg.OnFill == nil && now-m.fillLogged.Load() > int64(2*time.Second) {
		m.fillLogged.Store(now)
		m.srv.log.Info("filling memory", "keys", p.Keys, "expected", p.Expected, "shards_filled", p.ShardsFilled, "shards", p.Shards,
			"keys_per_second", int64(float64(p.Keys)/max(p.Elapsed.Seconds(), 1e-3)))
	}
}

// A histogram counts durations in buckets of powers of two from 1 µs: coarse,
// and two additions per request.
type histogram struct {
	buckets [histBuckets]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

// histBuckets: bucket i holds durations below 1 µs << i; the last holds the
// rest (more than 8 s).
const histBuckets = 25

func (h *histogram) observe(ns int64) {
	us := uint64(max(ns, 0)) / 1000
	h.buckets[min(bits.Len64(us), histBuckets-1)].Add(1)
	h.sum.Add(ns)
}

// bound is the upper end of bucket i in nanoseconds.
func histBound(i int) int64 { return 1000 << i }

// quantile returns an upper bound of the q-quantile, 0 ≤ q ≤ 1, in nanoseconds.
func (h *histogram) quantile(q float64) int64 {
	var counts [histBuckets]uint64
	var total uint64
	for i := range counts {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return 0
	}
	rank := uint64(q * float64(total-1))
	var seen uint64
	for i, c := range counts {
		if seen += c; seen > rank {
			return histBound(i)
		}
	}
	return histBound(histBuckets - 1)
}
