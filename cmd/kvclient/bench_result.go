package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
)

// benchResult is the JSON output of bench. The fields of load.Result stand at the
// top: ops, errors, ops_per_second, p50 … max, operations and so on; they are
// missing with --load-only.
type benchResult struct {
	Bench benchSetup   `json:"bench"`
	Load  *load.Filled `json:"load,omitempty"` // without --skip-load
	*load.Result
	Client *clientResult `json:"client,omitempty"`
}

// benchSetup is what was measured.
type benchSetup struct {
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
	Rate            float64 `json:"rate,omitempty"` // per second; none: closed loop
	DurationSeconds float64 `json:"duration_seconds,omitempty"`
	WarmupSeconds   float64 `json:"warmup_seconds"`
	Operations      int64   `json:"operations,omitempty"`
	Seed            uint64  `json:"seed"`
	Server          string  `json:"server"`
	Fabric          string  `json:"fabric"`
	Device          string  `json:"device,omitempty"`
	Wait            string  `json:"wait"`
}

// clientResult is what the library has counted during the measurement.
type clientResult struct {
	Gets         uint64  `json:"gets"`
	Reads        uint64  `json:"reads"` // posted, for whatever purpose
	ReadsPerGet  float64 `json:"reads_per_get"`
	OneSided     float64 `json:"one_sided_share"` // of the gets
	CacheHitRate float64 `json:"cache_hit_rate"`  // of the location cache
	Retries      uint64  `json:"retries"`
	CPUSeconds   float64 `json:"cpu_seconds"` // of this process
}

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

// form writes the result as text, json, csv, html or png.
func (r *benchResult) form(form string) ([]byte, error) {
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
	case "png":
		return r.png()
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

// opNames are the operations in the order of a table, pathNames their paths.
var (
	opOrder   = []string{"get", "put", "insert", "scan", "rmw", "delete"}
	pathOrder = []string{"read_1", "read_2", "read_more", "read_large", "send", "batch", "failed"}
	pathTexts = map[string]string{"read_1": "1 READ", "read_2": "2 READs", "read_more": "more READs", "read_large": "in chunks", "send": "SEND", "batch": "batch", "failed": "failed"}
)

// rows are the result as a table: each operation, then its paths, and all at the
// end.
func (r *benchResult) rows() (rows []resultRow) {
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
			if path == "failed" {
				row.ops, row.errors = 0, p.Ops
			}
			rows = append(rows, row)
		}
	}
	return append(rows, resultRow{"all", "", r.Ops, r.Result.Errors, r.OpsPerSecond, r.Latency})
}

// csv has a line for each row; times are microseconds.
func (r *benchResult) csv() ([]byte, error) {
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

// headline says in a line what was measured.
func (s *benchSetup) headline() string {
	head := fmt.Sprintf("workload %s (%s), %s keys", s.Workload, s.Mix, s.Distribution)
	if s.Theta != 0 {
		head += fmt.Sprintf(" %.2f", s.Theta)
	}
	head += fmt.Sprintf(": %s records of %s B, %s", thousands(int64(s.Records)), s.ValueSize, count(s.Clients, "caller"))
	if s.Connections > 1 {
		head += fmt.Sprintf(" on %d connections", s.Connections)
	}
	if s.Batch > 1 {
		head += fmt.Sprintf(", %d keys in a call", s.Batch)
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
	return thousands(int64(n)) + " " + what + "s"
}

// loaded says what the load phase did.
func (r *benchResult) loaded() string {
	if r.Load == nil {
		return ""
	}
	return fmt.Sprintf("loaded %s keys, %s in %s, %s keys per second", thousands(r.Load.Keys), byteCount(r.Load.Bytes),
		seconds(r.Load.Seconds), thousands(int64(r.Load.KeysPerSecond)))
}

func seconds(s float64) string { return shortDuration(time.Duration(s * 1e9)) }

// shortMicros writes a time as people read it.
func shortMicros(us float64) string { return shortDuration(time.Duration(us * 1e3)) }

// done says what the measurement came to, in a line.
func (r *benchResult) done() string {
	text := fmt.Sprintf("%s operations in %s, %s per second, %s errors", thousands(r.Ops), seconds(r.Seconds), thousands(int64(r.OpsPerSecond)), thousands(r.Result.Errors))
	if r.Interrupted {
		text += ", interrupted"
	}
	return text
}

// remarks are what there is to say beside the table.
func (r *benchResult) remarks() (list []string) {
	if o := r.OpenLoop; o != nil {
		list = append(list, fmt.Sprintf("fixed rate: %s calls due, begun late by p50 %s, p99 %s, max %s", thousands(o.Due), shortMicros(o.Lag.P50), shortMicros(o.Lag.P99), shortMicros(o.Lag.Max)))
		if o.Missed > 0 {
			list = append(list, fmt.Sprintf("the rate was not kept: %s calls that were due were never made, so times are longer than they look", thousands(o.Missed)))
		}
	}
	for _, op := range opOrder {
		if o, ok := r.Operations[op]; ok && o.NotFound > 0 {
			list = append(list, fmt.Sprintf("%s: %s keys were not there, having been deleted", op, thousands(o.NotFound)))
		}
	}
	if c := r.Client; c != nil && c.Gets > 0 {
		list = append(list, fmt.Sprintf("READs per get %.2f, answered one-sidedly %.2f %%, places remembered %.2f %%, retries %s",
			c.ReadsPerGet, c.OneSided*100, c.CacheHitRate*100, thousands(int64(c.Retries))))
	}
	if c := r.Client; c != nil && c.CPUSeconds > 0 && r.Ops > 0 {
		list = append(list, fmt.Sprintf("processor time of this process: %s, %s per operation", seconds(c.CPUSeconds), seconds(c.CPUSeconds/float64(r.Ops))))
	}
	for _, k := range r.ErrorKinds {
		list = append(list, fmt.Sprintf("%s errors, %s: %s", thousands(k.Count), k.Kind, strings.Join(k.Examples, "; ")))
	}
	return list
}

// text is the result as a table for people.
func (r *benchResult) text() string {
	text := r.Bench.headline() + "\n"
	if loaded := r.loaded(); loaded != "" {
		text += loaded + "\n"
	}
	if r.Result == nil {
		return text
	}
	rows := []string{"\toperations\tper second\tp50\tp90\tp99\tp99.9\tmax\n"}
	for _, row := range r.rows() {
		name, ops := row.op, row.ops
		if row.path != "" {
			name = "  " + pathTexts[row.path]
			ops += row.errors
		}
		rows = append(rows, strings.Join([]string{name, thousands(ops), thousands(int64(row.perSecond)),
			shortMicros(row.P50), shortMicros(row.P90), shortMicros(row.P99), shortMicros(row.P999), shortMicros(row.Max)}, "\t")+"\n")
	}
	text += r.done() + "\n" + table(rows)
	for _, line := range r.remarks() {
		text += line + "\n"
	}
	return text
}

// failureText says why bench ends with an error.
func failureText(r *load.Result) string {
	text := fmt.Sprintf("%s of %s operations failed", thousands(r.Errors), thousands(r.Ops+r.Errors))
	if r.WarmupErrors > 0 {
		text += fmt.Sprintf(", and %s while it warmed up", thousands(r.WarmupErrors))
	}
	if len(r.ErrorKinds) > 0 && len(r.ErrorKinds[0].Examples) > 0 {
		text += ", the first with: " + r.ErrorKinds[0].Examples[0]
	}
	return text
}
