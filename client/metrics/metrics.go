// Package metrics shows Prometheus what a client does.
//
//	c, err := client.Dial(ctx, cfg)
//	…
//	prometheus.MustRegister(metrics.New(c, metrics.Options{}))
//
// It is a package of its own so that programs which want no Prometheus link none.
// Nothing is sent to a server for it: a scrape reads counters that the client
// keeps anyway. Every series carries the label node, the id of the node in its
// cluster; it is "" where one server is all there is.
package metrics

import (
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
)

// Options change how the metrics are called. The zero value is good.
type Options struct {
	// Namespace is the first part of every name. Default "rdmakv_client".
	Namespace string
	// Labels stand on every series: for programs with more than one client, say.
	Labels prometheus.Labels
}

// A Collector shows one client. It is a prometheus.Collector, safe for concurrent
// use, and may be asked after the client was closed: what was counted stays.
type Collector struct {
	a       *admin.Admin
	counts  []count
	gauges  []gauge
	latency *prometheus.Desc
	build   prometheus.Metric
}

// A count is one series of a counter.
type count struct {
	desc   *prometheus.Desc
	labels []string // values behind node
	of     func(*client.Counters) uint64
	unit   float64 // of the metric, in one of the counter: 1e-9 makes seconds of nanoseconds
}

type gauge struct {
	desc *prometheus.Desc
	of   func(admin.NodeState, *client.Counters) float64
}

// New makes the collector of a client.
func New(c *client.Client, opt Options) *Collector {
	ns := opt.Namespace
	if ns == "" {
		ns = "rdmakv_client"
	}
	m := &Collector{a: admin.Of(c)}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(ns, "", name), help, append([]string{"node"}, labels...), opt.Labels)
	}
	m.counts = counts(desc)
	m.gauges = gauges(desc)
	m.latency = desc("call_seconds", "Time of calls that succeeded; of gets every eighth is measured.", "call")
	version, goVersion := build()
	m.build = prometheus.MustNewConstMetric(prometheus.NewDesc(prometheus.BuildFQName(ns, "", "build_info"),
		"1, with the release of the client library as labels.", []string{"version", "go"}, opt.Labels), prometheus.GaugeValue, 1, version, goVersion)
	return m
}

// build is the version of this library in the running program, as the Go linker
// has noted it, and that of Go.
func build() (version, goVersion string) {
	const module = "github.com/rdmakv/rdmakv"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", runtime.Version()
	}
	version = "unknown"
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Version != "" {
			version = m.Version
		}
	}
	return version, runtime.Version()
}

// Describe is part of prometheus.Collector.
func (m *Collector) Describe(out chan<- *prometheus.Desc) {
	seen := map[*prometheus.Desc]bool{}
	for _, k := range m.counts {
		if !seen[k.desc] {
			seen[k.desc] = true
			out <- k.desc
		}
	}
	for _, g := range m.gauges {
		out <- g.desc
	}
	out <- m.latency
	out <- m.build.Desc()
}

// Collect is part of prometheus.Collector.
func (m *Collector) Collect(out chan<- prometheus.Metric) {
	out <- m.build
	for _, n := range m.a.Known() {
		id, counters, state := n.ID(), n.Counters(), n.State()
		for _, k := range m.counts {
			out <- prometheus.MustNewConstMetric(k.desc, prometheus.CounterValue, float64(k.of(&counters))*k.unit, append([]string{id}, k.labels...)...)
		}
		for _, g := range m.gauges {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(state, &counters), id)
		}
		times := n.Latencies()
		out <- histogram(m.latency, &times.Gets, id, "get")
		out <- histogram(m.latency, &times.Writes, id, "write")
	}
}

// histogram is h as Prometheus wants it: each bucket with all below it.
func histogram(desc *prometheus.Desc, h *admin.LatencyHistogram, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Buckets))
	var sum uint64
	for i, n := range h.Buckets {
		sum += n
		buckets[h.UpperBound(i).Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(desc, max(h.Count, sum), h.Sum.Seconds(), buckets, labels...)
}

func seconds(d time.Duration) float64 { return d.Seconds() }

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
