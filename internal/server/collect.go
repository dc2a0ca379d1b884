package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/internal/memory"
	"github.com/rdmakv/rdmakv/internal/version"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// collector shows the node's counters to Prometheus. It is one collector over
// everything: each scrape reads the atomics once. What is counted in a space of
// the node stands under names of its own, rdmakv_space_..., with the label
// space: the sums of the others stay what they are.
type collector struct{ srv *Server }

// A desc is a metric of the node, and the same of its spaces.
type desc struct{ node, space *prometheus.Desc }

func newDesc(name, help string, labels ...string) desc {
	return desc{
		node:  prometheus.NewDesc("rdmakv_"+name, help, labels, nil),
		space: prometheus.NewDesc("rdmakv_space_"+name, "By space: "+help, append([]string{"space"}, labels...), nil),
	}
}

var (
	descOps       = newDesc("requests_total", "Requests answered, by type and status.", "type", "status")
	descLatency   = newDesc("request_seconds", "Time from the arrival of a request to its answer being queued.", "type")
	descSessions  = newDesc("sessions", "Sessions, by state.", "state")
	descEnded     = newDesc("sessions_ended_total", "Sessions ended and connections refused, by cause.", "cause")
	descBytes     = newDesc("message_bytes_total", "Bytes of messages, by direction.", "direction")
	descLarge     = newDesc("rendezvous_bytes_total", "Bytes READ from clients for large puts.")
	descStaging   = newDesc("staging_bytes", "Staging memory in use for large puts.")
	descStagingQ  = newDesc("staging_waiting", "Large puts that wait for staging memory.")
	descGrowing   = newDesc("growing_waiting", "Puts that wait until memory for them is registered.")
	descPool      = newDesc("pool_requests", "Requests on a worker pool, by pool and state.", "pool", "state")
	descCredits   = newDesc("credits", "Request credits that clients hold.")
	descBuffers   = newDesc("buffers", "Message buffers, by kind and state.", "kind", "state")
	descSpins     = newDesc("spins_total", "Waits that polled before they slept, by whose they were (lane: for requests; responder: a fabric's own, for READs) and what came of it.", "by", "result")
	descSpinTime  = newDesc("spin_seconds_total", "Time that they spent polling.", "by")
	descHolds     = newDesc("holds", "Places held for clients.")
	descBeats     = newDesc("beats_total", "Beats written.")
	descNoLease   = newDesc("lease_off", "1 while clients are told to believe memory without a lease.")
	descLate      = newDesc("late_beats_total", "Beats that came more than half a lease late.")
	descBlocked   = newDesc("handlers_blocked", "1 while the debug hook stops the handlers.")
	descReady     = newDesc("ready", "1 while the node serves.")
	descFilled    = newDesc("filled", "1 once all keys are in memory after a start.")
	descFillKeys  = newDesc("fill_keys", "Keys read from the store by the fill after a start.")
	descFillWant  = newDesc("fill_keys_expected", "Keys counted at the last clean stop; 0 if unknown.")
	descFillShard = newDesc("fill_shards", "Shards that are filled.")
	descMemory    = newDesc("memory_bytes", "Memory outside the Go heap, by purpose.", "purpose")
	descRegions   = newDesc("registered_bytes", "Memory registered for clients to READ.")
	descHuge      = newDesc("registered_huge_bytes", "The part of it that is in huge pages.")
	descView      = newDesc("view_version", "Version of the region table.")
	descAhead     = newDesc("clock_ahead_seconds", "How far the time by which keys expire is ahead of the wall clock: up to 6 s after crashes, more where the wall clock was set back or an older version has left a lead, which goes by 0.5 %; negative if it is behind.")
	descReclaim   = newDesc("reclaim_version", "Version of the list of retired pages.")
	descFabric    = newDesc("fabric_info", "The devices in use.", "fabric", "device", "shared_receives")
	descOpen      = newDesc("device_sessions", "Open sessions, by device.", "fabric", "device")
	descUp        = newDesc("device_up", "1 while the device serves, 0 while it is away and is opened again and again.", "fabric", "device")
	descCM        = newDesc("fabric_cm_ok", "1 if the node's last connection to its own listener by this device was answered, 0 if not; absent where that is not tried.", "fabric", "device")
	descAsked     = newDesc("writes_asked_disk_total", "Writes for which the disk had to be asked whether they may take effect.")
	descTouches   = newDesc("touches_reported_total", "Keys that clients reported as read one-sidedly.")
	descDamages   = newDesc("damage_reported_total", "Places that clients reported as damaged.")
	descPolls     = newDesc("watches_waiting", "Watches that wait for events.")
	descGoroutine = newDesc("goroutines", "Goroutines.")
	descBuild     = newDesc("build_info", "1, with the release of this program as labels.", "program", "version", "revision", "go")
	descSpaces    = newDesc("spaces", "Spaces of tenants, by state.", "state")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	out := sink{ch: ch}
	build := version.Of("kvserver")
	out.gauge(descBuild, 1, build.Program, build.Version, build.Revision, build.Go)
	out.gauge(descGoroutine, float64(runtime.NumGoroutine()))
	for _, u := range memory.Process().Usage() {
		out.gauge(descMemory, float64(u.Bytes), u.Tag)
	}
	c.server(out)
	if !c.srv.serving.Load() {
		return
	}
	c.logins(out)
	c.cluster(out)
	for _, sp := range c.srv.everySpace()[1:] {
		collector{sp}.server(sink{ch, sp.space})
	}
	states := make(map[string]int)
	for _, st := range c.srv.Spaces() {
		states[st.State]++
	}
	for state, n := range states {
		out.gauge(descSpaces, float64(n), state)
	}
}

// server shows what is counted for the node itself and for each space.
func (c collector) server(out sink) {
	srv := c.srv
	c.requests(out)
	c.sessions(out)
	out.counter(descBytes, float64(srv.met.bytesIn.Load()), "in")
	out.counter(descBytes, float64(srv.met.bytesOut.Load()), "out")
	out.counter(descLarge, float64(srv.met.rendezvousBytes.Load()))
	out.counter(descBeats, float64(srv.met.beats.Load()))
	out.counter(descLate, float64(srv.met.lateBeats.Load()))
	out.counter(descAsked, float64(srv.met.asked.Load()))
	out.counter(descTouches, float64(srv.met.touches.Load()))
	out.counter(descDamages, float64(srv.met.damageReports.Load()))
	out.gauge(descPolls, float64(srv.watches.waiting()))
	out.gauge(descNoLease, boolNumber(srv.cfg.LeaseOff))
	blocked, _ := srv.gate.waiting()
	out.gauge(descBlocked, boolNumber(blocked))
	out.gauge(descReady, boolNumber(srv.Ready()))
	if !srv.serving.Load() {
		return
	}
	out.gauge(descFilled, boolNumber(srv.Filled()))
	if p := srv.met.fill.Load(); p != nil {
		out.gauge(descFillKeys, float64(p.Keys))
		out.gauge(descFillWant, float64(p.Expected))
		out.gauge(descFillShard, float64(p.ShardsFilled))
	}
	all, huge := srv.regions.bytes()
	out.gauge(descRegions, float64(all))
	out.gauge(descHuge, float64(huge))
	out.gauge(descView, float64(srv.store.ViewVersion()))
	out.gauge(descAhead, srv.store.ClockAhead().Seconds())
	out.gauge(descReclaim, float64(srv.store.ReclaimVersion()))
	c.turnover(out)
	used, waiting := srv.staging.inUse()
	out.gauge(descStaging, float64(used))
	out.gauge(descStagingQ, float64(waiting))
	out.gauge(descGrowing, float64(srv.grow.waiting()))
	for _, p := range [...]*pool{srv.pool, srv.scans, srv.clusters, srv.admins} {
		if p == nil {
			continue // of the node, and this is a space
		}
		queued, running := p.load()
		name := poolNames[p.kind]
		out.gauge(descPool, float64(queued), name, "waiting")
		out.gauge(descPool, float64(running), name, "running")
	}
	for _, d := range srv.deviceList() {
		out.gauge(descFabric, 1, d.attr.Fabric, d.dev.Name(), boolText(d.shared))
		out.gauge(descOpen, float64(d.opens.Load()), d.attr.Fabric, d.dev.Name())
		here := d.away.Load() == nil
		out.gauge(descUp, boolNumber(here), d.attr.Fabric, d.dev.Name())
		if cm := d.cm.Load(); cm != nil {
			out.gauge(descCM, boolNumber(here && cm.err == nil), d.attr.Fabric, d.dev.Name())
		}
	}
	watches, stats := srv.store.WatchStats(), srv.store.Stats()
	numbers(out, watchNumbers, &watches)
	numbers(out, storeNumbers, &stats)
}

// requests shows counters and latencies per request type; types never seen
// are left out.
func (c collector) requests(out sink) {
	m := c.srv.met
	for t := wire.TypeHello; t <= wire.MaxRequest; t++ {
		for st := range m.ops[t] {
			if n := m.ops[t][st].Load(); n > 0 {
				out.counter(descOps, float64(n), t.String(), wire.Status(st).String())
			}
		}
		h := &m.latency[t]
		cumulative := make(map[float64]uint64, histBuckets)
		var total uint64
		for i := range histBuckets {
			total += h.buckets[i].Load()
			if i < histBuckets-1 { // the last is +Inf, which is implied
				cumulative[float64(histBound(i))/1e9] = total
			}
		}
		if total > 0 {
			out.histogram(descLatency, total, float64(h.sum.Load())/1e9, cumulative, t.String())
		}
	}
}

// sessions shows what sessions hold, summed.
func (c collector) sessions(out sink) {
	srv := c.srv
	srv.sessMu.Lock()
	setups, opens := len(srv.setups.places), srv.opens
	srv.sessMu.Unlock()
	out.gauge(descSessions, float64(setups), "new")
	out.gauge(descSessions, float64(opens), "open")
	for i := range srv.met.ends {
		if n := srv.met.ends[i].Load(); n > 0 {
			out.counter(descEnded, float64(n), cause(i).String())
		}
	}
	if !srv.serving.Load() {
		return // Start is still making devices and lanes
	}
	credits, holds := 0, 0
	for _, s := range srv.sessionList() {
		credits += int(s.allowed.Load())
		s.mu.Lock()
		holds += len(s.holds)
		s.mu.Unlock()
	}
	out.gauge(descCredits, float64(credits))
	out.gauge(descHolds, float64(holds))
	var total, used [4]int
	var spins, fabrics rdma.SpinStats
	for _, d := range srv.deviceList() {
		lanes, responder := d.spins()
		spins.Add(lanes)
		fabrics.Add(responder)
		for _, l := range d.lanes {
			for i, p := range [...]*bufPool{l.recvs, l.replies[0], l.replies[1], l.replies[2]} {
				t, u := p.count()
				total[i] += t
				used[i] += u
			}
		}
	}
	for by, s := range map[string]rdma.SpinStats{"lane": spins, "responder": fabrics} {
		out.counter(descSpins, float64(s.Got), by, "got")
		out.counter(descSpins, float64(s.Vain), by, "vain")
		out.counter(descSpinTime, s.Time.Seconds(), by)
	}
	for i, name := range [...]string{"receive", "small-reply", "middle-reply", "large-reply"} {
		out.gauge(descBuffers, float64(used[i]), name, "used")
		out.gauge(descBuffers, float64(total[i]-used[i]), name, "free")
	}
}

// sink is a channel of metrics with the forms that are used here, for the node
// or for one of its spaces.
type sink struct {
	ch    chan<- prometheus.Metric
	space string
}

func (s sink) of(d desc, labels []string) (*prometheus.Desc, []string) {
	if s.space == "" {
		return d.node, labels
	}
	return d.space, append([]string{s.space}, labels...)
}

func (s sink) counter(d desc, v float64, labels ...string) {
	p, labels := s.of(d, labels)
	s.ch <- prometheus.MustNewConstMetric(p, prometheus.CounterValue, v, labels...)
}

func (s sink) gauge(d desc, v float64, labels ...string) {
	p, labels := s.of(d, labels)
	s.ch <- prometheus.MustNewConstMetric(p, prometheus.GaugeValue, v, labels...)
}

func (s sink) histogram(d desc, count uint64, sum float64, buckets map[float64]uint64, labels ...string) {
	p, labels := s.of(d, labels)
	s.ch <- prometheus.MustNewConstHistogram(p, count, sum, buckets, labels...)
}

func boolNumber(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func boolText(v bool) string {
	if v {
		return "on"
	}
	return "off"
}
