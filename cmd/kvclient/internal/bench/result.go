package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
)

// result is the JSON output of bench. The fields of load.Result stand at the
// top: ops, errors, ops_per_second, p50 … max, operations and so on; they are
// missing with --load-only.
type result struct {
	Bench setup        `json:"bench"`
	Load  *load.Filled `json:"load,omitempty"` // without --skip-load
	*load.Result
	Client *clientResult `json:"client,omitempty"`
}

// setup is what was measured, and how: with it another person can measure the same.
// Sizes are in bytes, rates per second. Settings that play no part are left out, so
// that two runs of the same measurement are equal in it.
type setup struct {
	Workload        string  `json:"workload"` // "mix" if the mix is another one
	Mix             string  `json:"mix"`
	Distribution    string  `json:"distribution"`
	Theta           float64 `json:"theta,omitempty"`
	Records         int     `json:"records"`
	KeySize         int     `json:"key_size"`
	ValueSize       string  `json:"value_size"`
	ValueMean       float64 `json:"value_mean"` // bytes
	Prefix          string  `json:"prefix"`
	Clients         int     `json:"clients"`
	Connections     int     `json:"connections"`
	Batch           int     `json:"batch"`
	Registered      bool    `json:"registered,omitempty"`    // values stand in a client.Buffer
	BoundSeconds    float64 `json:"bound_seconds,omitempty"` // gets may be so old
	Rate            float64 `json:"rate,omitempty"`          // per second; none: closed loop
	DurationSeconds float64 `json:"duration_seconds,omitempty"`
	WarmupSeconds   float64 `json:"warmup_seconds"`
	Operations      int64   `json:"operations,omitempty"`
	Seed            uint64  `json:"seed"`
	Server          string  `json:"server"`
	Fabric          string  `json:"fabric"`
	Device          string  `json:"device,omitempty"`
	Wait            string  `json:"wait"`
}

// clientResult is what the library has counted during the measurement, as
// differences; the warm-up and the load phase are not in it. It tells why the times
// are what they are: how often a get was one READ, and how often it had to ask the
// server.
type clientResult struct {
	Gets         uint64  `json:"gets"`
	Reads        uint64  `json:"reads"` // posted, for whatever purpose
	ReadsPerGet  float64 `json:"reads_per_get"`
	OneSided     float64 `json:"one_sided_share"` // of the gets
	CacheHitRate float64 `json:"cache_hit_rate"`  // of the location cache
	Retries      uint64  `json:"retries"`
	CPUSeconds   float64 `json:"cpu_seconds"` // of this process, in user code and in the kernel
}

// clientSummary is the difference of two looks at the counters. The shares are of
// gets alone, which are what one-sided READs are for.
func clientSummary(before, after client.Counters, cpu time.Duration) *clientResult {
	r := &clientResult{Gets: after.Gets - before.Gets, Reads: after.Reads - before.Reads, Retries: retries(after) - retries(before), CPUSeconds: cpu.Seconds()}
	if n := float64(r.Gets); n > 0 {
		r.ReadsPerGet = float64(r.Reads) / n
		r.OneSided = float64(after.OneSidedHits+after.OneSidedMisses-before.OneSidedHits-before.OneSidedMisses) / n
	}
	if hits, misses := after.CacheHits-before.CacheHits, after.CacheMisses-before.CacheMisses; hits+misses > 0 {
		r.CacheHitRate = float64(hits) / float64(hits+misses)
	}
	return r
}

// form writes the result as text, json, csv, html or svg. Scripts read json and
// csv, so their names and columns are never changed; testdata has them.
func (r *result) form(form string) ([]byte, error) {
	switch form {
	case "json":
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		err := enc.Encode(r)
		return b.Bytes(), err
	case "csv":
		return r.csv()
	case "html":
		return r.html()
	case "svg":
		return r.svg()
	}
	return []byte(r.text()), nil
}

// A resultRow is a line of the tables: an operation, or one of its paths.
type resultRow struct {
	op, path  string // path "" is the operation as a whole, op "all" all of them
	ops       int64
	errors    int64
	perSecond float64
	load.Latency
}

// opOrder are the operations in the order of a table, pathOrder and pathTexts their
// paths: from the cheapest to the dearest, and what failed at the end.
var (
	opOrder   = []string{"get", "put", "insert", "scan", "rmw", "delete"}
	pathOrder = []string{"read_1", "read_2", "read_more", "read_large", "send", "batch", "failed"}
	pathTexts = map[string]string{"read_1": "1 READ", "read_2": "2 READs", "read_more": "more READs", "read_large": "in chunks", "send": "SEND", "batch": "batch", "failed": "failed"}
)

// rows are the result as a table: each operation, then its paths, and all at the
// end. Operations that did not happen have no row.
func (r *result) rows() (rows []resultRow) {
	for _, op := range opOrder {
		o, ok := r.Result.Operations[op]
		if !ok {
			continue
		}
		rows = append(rows, resultRow{op, "", o.Ops, o.Errors, o.OpsPerSecond, o.Latency})
		for _, path := range pathOrder {
			p, ok := o.Paths[path]
			if !ok {
				continue
			}
			row := resultRow{op, path, p.Ops, 0, float64(p.Ops) / max(r.Seconds, 1e-9), p.Latency}
			// Operations that failed count as errors and not as operations.
			if path == "failed" {
				row.ops, row.errors = 0, p.Ops
			}
			rows = append(rows, row)
		}
	}
	return append(rows, resultRow{"all", "", r.Ops, r.Result.Errors, r.OpsPerSecond, r.Latency})
}

// csv has a line for each row, times in microseconds; with --load-only it is the
// heading alone.
func (r *result) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"operation", "path", "ops", "errors", "ops_per_second", "min", "mean", "p50", "p90", "p99", "p99_9", "max"})
	if r.Result != nil {
		for _, row := range r.rows() {
			rec := []string{row.op, row.path, strconv.FormatInt(row.ops, 10), strconv.FormatInt(row.errors, 10)}
			for _, v := range []float64{row.perSecond, row.Min, row.Mean, row.P50, row.P90, row.P99, row.P999, row.Max} {
				rec = append(rec, strconv.FormatFloat(v, 'f', 3, 64))
			}
			_ = w.Write(rec)
		}
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// headline says in a line what was measured, so that a result that is copied
// somewhere tells what it is of.
func (s *setup) headline() string {
	head := fmt.Sprintf("workload %s (%s), %s keys", s.Workload, s.Mix, s.Distribution)
	if s.Theta != 0 {
		head += fmt.Sprintf(" %.2f", s.Theta)
	}
	head += fmt.Sprintf(": %s records of %s B, %s", cli.Thousands(int64(s.Records)), s.ValueSize, count(s.Clients, "caller"))
	if s.Connections > 1 {
		head += fmt.Sprintf(" on %d connections", s.Connections)
	}
	if s.Batch > 1 {
		head += fmt.Sprintf(", %d keys in a call", s.Batch)
	}
	if s.Registered {
		head += ", registered memory"
	}
	if s.BoundSeconds > 0 {
		head += fmt.Sprintf(", gets may be %v old", time.Duration(s.BoundSeconds*float64(time.Second)).Round(time.Microsecond))
	}
	if s.Rate > 0 {
		head += fmt.Sprintf(", %.6g operations per second", s.Rate)
	}
	return head + ", " + s.Fabric
}

// count is a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return cli.Thousands(int64(n)) + " " + what + "s"
}

// loaded says what the load phase did; "" if there was none.
func (r *result) loaded() string {
	if r.Load == nil {
		return ""
	}
	return fmt.Sprintf("loaded %s keys, %s in %s, %s keys per second", cli.Thousands(r.Load.Keys), cli.Bytes(r.Load.Bytes),
		seconds(r.Load.Seconds), cli.Thousands(int64(r.Load.KeysPerSecond)))
}

// seconds writes a time that JSON has as a number of seconds.
func seconds(s float64) string { return cli.Duration(time.Duration(s * 1e9)) }

// shortMicros writes a time that JSON has as a number of microseconds.
func shortMicros(us float64) string { return cli.Duration(time.Duration(us * 1e3)) }

// done is the result of the measurement in one line.
func (r *result) done() string {
	text := fmt.Sprintf("%s operations in %s, %s per second, %s errors", cli.Thousands(r.Ops), seconds(r.Seconds), cli.Thousands(int64(r.OpsPerSecond)), cli.Thousands(r.Result.Errors))
	if r.Interrupted {
		text += ", interrupted"
	}
	return text
}

// remarks are what there is to say beside the table, in the order of importance:
// first what makes the figures less true than they look.
func (r *result) remarks() (list []string) {
	// At a fixed rate a store that cannot keep up shows in the lag and in calls
	// that were never made, not in the operations per second.
	if o := r.OpenLoop; o != nil {
		list = append(list, fmt.Sprintf("fixed rate: %s calls due, begun late by p50 %s, p99 %s, max %s", cli.Thousands(o.Due), shortMicros(o.Lag.P50), shortMicros(o.Lag.P99), shortMicros(o.Lag.Max)))
		if o.Missed > 0 {
			list = append(list, fmt.Sprintf("the rate was not kept: %s calls that were due were never made, so times are longer than they look", cli.Thousands(o.Missed)))
		}
	}
	for _, op := range opOrder {
		if o, ok := r.Operations[op]; ok && o.NotFound > 0 {
			list = append(list, fmt.Sprintf("%s: %s keys were not there, having been deleted", op, cli.Thousands(o.NotFound)))
		}
	}
	if c := r.Client; c != nil && c.Gets > 0 {
		list = append(list, fmt.Sprintf("READs per get %.2f, answered one-sidedly %.2f %%, places remembered %.2f %%, retries %s",
			c.ReadsPerGet, c.OneSided*100, c.CacheHitRate*100, cli.Thousands(int64(c.Retries))))
	}
	if c := r.Client; c != nil && c.CPUSeconds > 0 && r.Ops > 0 {
		list = append(list, fmt.Sprintf("processor time of this process: %s, %s per operation", seconds(c.CPUSeconds), seconds(c.CPUSeconds/float64(r.Ops))))
	}
	for _, k := range r.ErrorKinds {
		list = append(list, fmt.Sprintf("%s errors, %s: %s", cli.Thousands(k.Count), k.Kind, strings.Join(k.Examples, "; ")))
	}
	return list
}

// text is the result as a table for people.
func (r *result) text() string {
	text := r.Bench.headline() + "\n"
	if loaded := r.loaded(); loaded != "" {
		text += loaded + "\n"
	}
	if r.Result == nil { // --load-only
		return text
	}
	rows := []string{"\toperations\tper second\tp50\tp90\tp99\tp99.9\tmax\n"}
	for _, row := range r.rows() {
		name, ops := row.op, row.ops
		// A path stands under its operation, with what failed on it among its
		// operations.
		if row.path != "" {
			name = "  " + pathTexts[row.path]
			ops += row.errors
		}
		rows = append(rows, strings.Join([]string{name, cli.Thousands(ops), cli.Thousands(int64(row.perSecond)),
			shortMicros(row.P50), shortMicros(row.P90), shortMicros(row.P99), shortMicros(row.P999), shortMicros(row.Max)}, "\t")+"\n")
	}
	text += r.done() + "\n" + cli.Table(rows)
	for _, line := range r.remarks() {
		text += line + "\n"
	}
	return text
}

// failureText says why bench ends with an error: how many operations failed, and
// the first reason, because thousands of failures mostly have one.
func failureText(r *load.Result) string {
	text := fmt.Sprintf("%s of %s operations failed", cli.Thousands(r.Errors), cli.Thousands(r.Ops+r.Errors))
	if r.WarmupErrors > 0 {
		text += fmt.Sprintf(", and %s while it warmed up", cli.Thousands(r.WarmupErrors))
	}
	if len(r.ErrorKinds) > 0 && len(r.ErrorKinds[0].Examples) > 0 {
		text += ", the first with: " + r.ErrorKinds[0].Examples[0]
	}
	return text
}
