package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/version"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store"
)

// A collector shows the node's counters to Prometheus. It is one collector over
// everything: each scrape reads the atomics once. What is counted in a space of
// the node stands under names of its own, rdmakv_space_..., with the label
// space: the sums of the others stay what they are.
type collector struct{ src Sources }

// NewCollector makes the collector of a node. It may collect before the node serves.
func NewCollector(src Sources) prometheus.Collector { return collector{src} }

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
	descSlowing   = newDesc("slowed_waiting", "Puts that wait because the log is nearly full.")
	descSlowed    = newDesc("slowed_puts_total", "Puts that waited because the log was nearly full.")
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
	descKeeper    = newDesc("memory_keeper", "1 while a process keeps the memory of this node for its next start (memory_keep); 0: the next start begins empty.")
	descKeptBytes = newDesc("memory_kept_bytes", "Regions that the node has taken over from its process before.")
	descKeptItems = newDesc("memory_kept_items_total", "Items in them, by what became of them: believed, or dropped because they were dead or did not verify.", "result")
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
	for _, u := range mem.Process().Usage() {
		out.gauge(descMemory, float64(u.Bytes), u.Tag)
	}
	main := c.src.Main()
	main.collect(out)
	if !main.Serving {
		return
	}
	collectTenants(out, c.src)
	node := c.src.Node()
	node.collectCluster(out)
	groups := store.GroupStatsOf(main.Store)
	node.collectGroups(out, &groups)
	for _, sp := range c.src.Spaces() {
		sp.collect(sink{ch, sp.Name})
	}
	states := make(map[string]int)
	for _, st := range Spaces(c.src) {
		states[st.State]++
	}
	for state, n := range states {
		out.gauge(descSpaces, float64(n), state)
	}
}

// collect shows what is counted for the node itself and for each space.
func (sp *Space) collect(out sink) {
	sp.collectRequests(out)
	sp.collectSessions(out)
	out.counter(descBytes, float64(sp.Counters.BytesIn.Load()), "in")
	out.counter(descBytes, float64(sp.Counters.BytesOut.Load()), "out")
	out.counter(descLarge, float64(sp.Counters.RendezvousBytes.Load()))
	out.counter(descBeats, float64(sp.Counters.Beats.Load()))
	out.counter(descLate, float64(sp.Counters.LateBeats.Load()))
	out.counter(descSlowed, float64(sp.Counters.Slowed.Load()))
	out.counter(descAsked, float64(sp.Counters.Asked.Load()))
	out.counter(descTouches, float64(sp.Counters.Touches.Load()))
	out.counter(descDamages, float64(sp.Counters.DamageReports.Load()))
	out.gauge(descPolls, float64(sp.Watches))
	out.gauge(descNoLease, boolNumber(sp.LeaseOff))
	out.gauge(descBlocked, boolNumber(sp.Blocked))
	out.gauge(descReady, boolNumber(sp.Ready))
	if !sp.Serving {
		return
	}
	out.gauge(descFilled, boolNumber(sp.Filled))
	if p := sp.Fill; p != nil {
		out.gauge(descFillKeys, float64(p.Keys))
		out.gauge(descFillWant, float64(p.Expected))
		out.gauge(descFillShard, float64(p.ShardsFilled))
	}
	if k := sp.Kept; k != nil {
		out.gauge(descKeeper, boolNumber(k.Keeper))
		out.gauge(descKeptBytes, float64(k.Bytes))
		out.counter(descKeptItems, float64(k.Believed), "believed")
		out.counter(descKeptItems, float64(k.Dropped), "dropped")
	}
	all, huge := sp.Regions.Bytes()
	out.gauge(descRegions, float64(all))
	out.gauge(descHuge, float64(huge))
	out.gauge(descView, float64(sp.Store.ViewVersion()))
	out.gauge(descAhead, sp.Store.ClockAhead().Seconds())
	out.gauge(descReclaim, float64(sp.Store.ReclaimVersion()))
	sp.collectTurnover(out)
	used, waiting := sp.Staging.InUse()
	if sp.Name == "" { // of all spaces together
		used, waiting = sp.Staging.Line().InUse()
	}
	out.gauge(descStaging, float64(used))
	out.gauge(descStagingQ, float64(waiting))
	out.gauge(descGrowing, float64(sp.Growing))
	out.gauge(descSlowing, float64(sp.Slowed))
	for _, p := range sp.Pools {
		out.gauge(descPool, float64(p.Queued), p.Name, "waiting")
		out.gauge(descPool, float64(p.Running), p.Name, "running")
	}
	for i := range sp.Devices {
		d := &sp.Devices[i]
		out.gauge(descFabric, 1, d.Attr.Fabric, d.Dev.Name(), boolText(d.Shared))
		out.gauge(descOpen, float64(d.Sessions), d.Attr.Fabric, d.Dev.Name())
		here := d.Away() == nil
		out.gauge(descUp, boolNumber(here), d.Attr.Fabric, d.Dev.Name())
		if d.Tried {
			out.gauge(descCM, boolNumber(here && d.Answered), d.Attr.Fabric, d.Dev.Name())
		}
	}
	watches, stats := sp.Store.WatchStats(), sp.Store.Stats()
	numbers(out, watchNumbers, &watches)
	numbers(out, storeNumbers, &stats)
	numbers(out, logNumbers, &stats)
}

// collectRequests shows counters and latencies per request type; types never seen
// are left out.
func (sp *Space) collectRequests(out sink) {
	m := sp.Counters
	for t := wire.TypeHello; t <= wire.MaxRequest; t++ {
		for st := range m.Ops[t] {
			if n := m.Ops[t][st].Load(); n > 0 {
				out.counter(descOps, float64(n), t.String(), wire.Status(st).String())
			}
		}
		h := &m.Latency[t]
		cumulative := make(map[float64]uint64, base.HistBuckets)
		var total uint64
		for i := range base.HistBuckets {
			total += h.Buckets[i].Load()
			if i < base.HistBuckets-1 { // the last is +Inf, which is implied
				cumulative[float64(base.HistBound(i))/1e9] = total
			}
		}
		if total > 0 {
			out.histogram(descLatency, total, float64(h.Sum.Load())/1e9, cumulative, t.String())
		}
	}
}

// collectSessions shows what sessions hold, summed.
func (sp *Space) collectSessions(out sink) {
	out.gauge(descSessions, float64(sp.Setups), "new")
	out.gauge(descSessions, float64(sp.Opens), "open")
	for i := range sp.Counters.Ends {
		if n := sp.Counters.Ends[i].Load(); n > 0 {
			out.counter(descEnded, float64(n), base.Cause(i).String())
		}
	}
	if !sp.Serving {
		return // Start is still making devices and lanes
	}
	out.gauge(descCredits, float64(sp.Credits))
	out.gauge(descHolds, float64(sp.Held))
	var buffers [4]Buffers
	var spins, fabrics wait.SpinStats
	for i := range sp.Devices {
		d := &sp.Devices[i]
		spins.Add(d.Spins)
		fabrics.Add(d.Responder)
		for i, b := range d.Buffers {
			buffers[i].Total += b.Total
			buffers[i].Used += b.Used
		}
	}
	for by, s := range map[string]wait.SpinStats{"lane": spins, "responder": fabrics} {
		out.counter(descSpins, float64(s.Got), by, "got")
		out.counter(descSpins, float64(s.Vain), by, "vain")
		out.counter(descSpinTime, s.Time.Seconds(), by)
	}
	for i, name := range [...]string{"receive", "small-reply", "middle-reply", "large-reply"} {
		out.gauge(descBuffers, float64(buffers[i].Used), name, "used")
		out.gauge(descBuffers, float64(buffers[i].Total-buffers[i].Used), name, "free")
	}
}

var (
	descRenewed = newDesc("rkeys_renewed_total", "Regions that got a new rkey.")
	descOldKeys = newDesc("rkeys_old", "Old registrations that wait until nobody can use them.")
	descBehind  = newDesc("rkeys_sessions_waited_for", "Sessions that may still use them.")
	descGone    = newDesc("regions_given_back_total", "Regions without items that were given back.")
)

// collectTurnover shows how rkeys and regions change.
func (sp *Space) collectTurnover(out sink) {
	out.counter(descRenewed, float64(sp.Turnover.Renewed.Load()))
	out.counter(descGone, float64(sp.Turnover.Gone.Load()))
	st := sp.Rotation
	out.gauge(descOldKeys, float64(st.Old))
	out.gauge(descBehind, float64(st.Waiting))
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
