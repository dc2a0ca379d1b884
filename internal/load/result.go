package load

import (
	"time"
)

// A Result is what Run has measured. Latencies are in microseconds; they count
// calls that were answered, a key that is not there included. Its JSON is what
// "kvclient bench -o json" prints, so names stay.
type Result struct {
	Ops          int64   `json:"ops"`            // keys that calls were answered for, or scans
	Errors       int64   `json:"errors"`         // calls that failed, or keys of a batch
	OpsPerSecond float64 `json:"ops_per_second"` // Ops by Seconds
	Latency              // of all operations together
	Seconds      float64 `json:"seconds"` // from the first call to the end of the last
	// Operations are by name of the operation: "get", "put", "insert", "scan",
	// "rmw", "delete"; those of the mix only.
	Operations map[string]OpResult `json:"operations"`
	Series     []Point             `json:"series"` // how it went over time
	// ErrorKinds are those of the warm-up, too; WarmupErrors is how many.
	ErrorKinds   []ErrorKind `json:"error_kinds,omitempty"`
	WarmupErrors int64       `json:"warmup_errors"`
	OpenLoop     *OpenLoop   `json:"open_loop,omitempty"` // with Options.Rate
	// Interrupted: the context ended before the run did. The rest tells what was
	// done until then.
	Interrupted bool `json:"interrupted"`
}

// A Latency is a distribution of times, in microseconds; all zero if there was
// no call.
type Latency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// An OpResult is about one kind of operation.
type OpResult struct {
	Ops          int64   `json:"ops"`
	Errors       int64   `json:"errors"`
	NotFound     int64   `json:"not_found"` // of Ops, without the key there
	OpsPerSecond float64 `json:"ops_per_second"`
	Latency
	Keys  int64                 `json:"keys,omitempty"` // that scans have read
	Paths map[string]PathResult `json:"paths"`          // by name of the Path
	// Curve is the latency at many quantiles, for a chart.
	Curve []Quantile `json:"-"`
}

// A PathResult is about the calls that were answered in one way, or, as "failed",
// were not answered.
type PathResult struct {
	Ops   int64   `json:"ops"`
	Share float64 `json:"share"` // of the operation's calls, failed ones included
	Latency
	// Curve is the latency at many quantiles, for a chart.
	Curve []Quantile `json:"-"`
}

// A Quantile is a point of a distribution.
type Quantile struct {
	Q      float64 // 0 to 1
	Micros float64
}

// A Point is one interval of a run. All but the last are of one length.
type Point struct {
	Second       float64 `json:"second"`  // its begin, since that of the measurement
	Seconds      float64 `json:"seconds"` // its length
	Ops          int64   `json:"ops"`
	Errors       int64   `json:"errors"`
	OpsPerSecond float64 `json:"ops_per_second"`
	Mean         float64 `json:"mean"` // microseconds
	Max          float64 `json:"max"`  // microseconds
}

// An ErrorKind is errors of one kind, and the first of them.
type ErrorKind struct {
	Kind     string   `json:"kind"`
	Count    int64    `json:"count"`
	Examples []string `json:"examples"`
}

// An OpenLoop tells whether a fixed rate was kept.
type OpenLoop struct {
	Rate float64 `json:"rate"` // keys per second, as asked for
	Due  int64   `json:"due"`  // calls that were due in the time
	// Missed calls were due and never made, because all callers were still busy at
	// the end. Latencies say nothing of them: they would have been the longest.
	Missed int64 `json:"missed"`
	// Lag is by how much calls began later than they were due, because the callers
	// were busy or woke late. It is part of their latency.
	Lag Latency `json:"lag"`
}

// curve is where Curve has its points: close together towards 1.
func curve() (q []float64) {
	for _, decade := range []float64{0, 0.9, 0.99, 0.999, 0.9999} {
		for i := range 18 {
			q = append(q, decade+(1-decade)*0.9*float64(i)/18)
		}
	}
	return append(q, 0.99999)
}

// A Filled is what the load phase has stored.
type Filled struct {
	Keys          int64   `json:"keys"`
	Bytes         int64   `json:"bytes"` // of keys and values
	Seconds       float64 `json:"seconds"`
	KeysPerSecond float64 `json:"keys_per_second"`
}

func micros(nanos int64) float64 { return float64(nanos) / float64(time.Microsecond) }
