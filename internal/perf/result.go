package perf

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Result is the outcome of one test. Times are in microseconds.
type Result struct {
	Test        string  `json:"test"` // "read_lat"
	Fabric      string  `json:"fabric"`
	Device      string  `json:"device"`
	Path        Path    `json:"path"`
	Mode        string  `json:"mode"`    // "poll" or "events"
	Meaning     string  `json:"meaning"` // what the figures are, in a sentence
	Bytes       int     `json:"bytes"`   // of a message
	Depth       int     `json:"depth"`
	Batch       int     `json:"batch"`
	SignalEvery int     `json:"signal_every"`
	Inline      int     `json:"inline"` // largest payload sent inline
	Warmup      uint64  `json:"warmup"`
	Iterations  uint64  `json:"iterations"` // measured
	Seconds     float64 `json:"seconds"`

	Latency   *Spread `json:"latency,omitempty"`
	Bandwidth *Flow   `json:"bandwidth,omitempty"`
}

// Path is rdma.Path as it stands in the output.
type Path struct {
	Detail   string `json:"detail,omitempty"`
	Device   string `json:"device,omitempty"`
	Port     int    `json:"port,omitempty"`
	GID      string `json:"gid,omitempty"`
	GIDIndex int    `json:"gid_index,omitempty"`
	GIDType  string `json:"gid_type,omitempty"`
	PeerGID  string `json:"peer_gid,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	Remote   string `json:"remote,omitempty"`
}

func pathOf(i rdma.ConnInfo) Path {
	p := Path{Detail: i.Detail, Device: i.Path.Device, Port: i.Path.Port, GID: i.Path.GID, GIDIndex: i.Path.GIDIndex,
		GIDType: i.Path.GIDType, PeerGID: i.Path.PeerGID, MTU: i.Path.MTU}
	if i.RemoteAddr != nil {
		p.Remote = i.RemoteAddr.String()
	}
	return p
}

// A Spread is the distribution of a latency in microseconds.
type Spread struct {
	Min     float64 `json:"min_us"`
	Max     float64 `json:"max_us"`
	Typical float64 `json:"typical_us"` // the median
	Avg     float64 `json:"avg_us"`
	StdDev  float64 `json:"stdev_us"`
	P90     float64 `json:"p90_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p99_9_us"`
}

// A Flow is a bandwidth and a rate.
type Flow struct {
	Peak    float64 `json:"peak_mib_s"`    // the best run of messages
	Average float64 `json:"average_mib_s"` // payload over time
	Rate    float64 `json:"messages_s"`
}

// meaning says in words what a test's figures are.
func (p Params) meaning() string {
	switch {
	case p.Kind == Latency && p.Op == Read:
		return "time of one READ, a full round trip"
	case p.Kind == Latency:
		return "half the time of a ping and its pong: one way"
	}
	return "payload over time; MiB are 2^20 bytes"
}

// A recorder collects the times of turns. It keeps them in a small buffer, so
// that the histogram's work falls outside the turns.
type recorder struct {
	hist   *hdrhistogram.Histogram // ns
	divide time.Duration           // 2 for a ping-pong
	buf    [1024]time.Duration
	n      int
}

// Histograms hold 1 ns to 60 s with three figures.
const (
	histHigh    = int64(60 * time.Second)
	histFigures = 3
)

func newRecorder(p Params) *recorder {
	r := &recorder{hist: hdrhistogram.New(1, histHigh, histFigures), divide: 1}
	if p.Op != Read {
		r.divide = 2
	}
	return r
}

// add takes the time of one turn and reports whether the buffer was emptied,
// which takes time of its own.
func (r *recorder) add(d time.Duration) (emptied bool) {
	r.buf[r.n] = d
	r.n++
	if r.n < len(r.buf) {
		return false
	}
	r.flush()
	return true
}

func (r *recorder) flush() {
	for _, d := range r.buf[:r.n] {
		_ = r.hist.RecordValue(min(max(int64(d/r.divide), 1), histHigh)) // always within
	}
	r.n = 0
}

// spread sums up the times of all turns, in microseconds.
func (r *recorder) spread() *Spread {
	r.flush()
	us := func(ns float64) float64 { return ns / 1e3 }
	at := func(q float64) float64 { return us(float64(r.hist.ValueAtQuantile(q))) }
	return &Spread{
		Min: us(float64(r.hist.Min())), Max: us(float64(r.hist.Max())), Typical: at(50), Avg: us(r.hist.Mean()),
		StdDev: us(r.hist.StdDev()), P90: at(90), P99: at(99), P999: at(99.9),
	}
}

// A meter follows a flow of messages and finds its best run.
type meter struct {
	size   int
	window uint64 // messages of a run
	start  time.Time
	from   time.Time // of the run
	done   uint64    // messages when the run began
	best   float64   // messages a second
}

// minWindow is the least number of messages of a run that may be the peak.
const minWindow = 256

func newMeter(p Params, now time.Time) *meter {
	return &meter{size: p.Size, window: max(minWindow, 4*uint64(p.Depth)), start: now, from: now}
}

// see takes the number of messages completed so far.
func (m *meter) see(done uint64) {
	if done-m.done < m.window {
		return
	}
	now := time.Now()
	if d := now.Sub(m.from); d > 0 {
		m.best = max(m.best, float64(done-m.done)/d.Seconds())
	}
	m.from, m.done = now, done
}

func (m *meter) flow(done uint64, took time.Duration) *Flow {
	rate := float64(done) / max(took.Seconds(), 1e-9)
	mib := float64(m.size) / (1 << 20)
	return &Flow{Peak: max(m.best, rate) * mib, Average: rate * mib, Rate: rate}
}
