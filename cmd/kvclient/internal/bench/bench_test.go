package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/load"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata to what the program prints now")

// sampleResult is a result with one of everything.
func sampleResult() *result {
	lat := func(base float64) load.Latency {
		return load.Latency{Min: base / 2, Mean: base * 1.1, P50: base, P90: base * 1.5, P99: base * 3, P999: base * 10, Max: base * 99}
	}
	curve := func(base float64) (list []load.Quantile) {
		for i := range 50 {
			list = append(list, load.Quantile{Q: float64(i) / 50, Micros: base + float64(i)})
		}
		return list
	}
	return &result{
		Bench: setup{Workload: "a", Mix: "get=50,put=50", Distribution: "zipf", Theta: 0.99, Records: 1_000_000, KeySize: 16, ValueSize: "1000",
			ValueMean: 1000, Prefix: "bench/", Clients: 8, Connections: 2, Batch: 1, Rate: 50_000, DurationSeconds: 2, WarmupSeconds: 0.2, Seed: 1,
			Server: "kv1:7400", Fabric: "iwarp", Device: "iwarp0", Wait: "adaptive"},
		Load: &load.Filled{Keys: 1_000_000, Bytes: 1_016_000_000, Seconds: 4, KeysPerSecond: 250_000},
		Result: &load.Result{
			Ops: 99_990, Errors: 10, OpsPerSecond: 49_995, Latency: lat(20), Seconds: 2,
			Operations: map[string]load.OpResult{
				"get": {Ops: 50_000, Errors: 0, NotFound: 3, OpsPerSecond: 25_000, Latency: lat(0.5), Curve: curve(0.5), Paths: map[string]load.PathResult{
					"read_1": {Ops: 49_000, Share: 0.98, Latency: lat(0.4), Curve: curve(0.4)},
					"send":   {Ops: 1000, Share: 0.02, Latency: lat(30), Curve: curve(30)},
				}},
				"put": {Ops: 49_990, Errors: 10, OpsPerSecond: 24_995, Latency: lat(400), Curve: curve(400), Paths: map[string]load.PathResult{
					"failed": {Ops: 10, Share: 0.0002, Latency: lat(5e6)},
				}},
			},
			Series: []load.Point{
				{Second: 0, Seconds: 1, Ops: 49_990, OpsPerSecond: 49_990, Mean: 20, Max: 1000},
				{Second: 1, Seconds: 1, Ops: 50_000, Errors: 10, OpsPerSecond: 50_000, Mean: 21, Max: 2000},
			},
			ErrorKinds: []load.ErrorKind{{Kind: "timeout", Count: 10, Examples: []string{`rdmakv put "<k>" at kv1:7400: no answer in time`}}},
			OpenLoop:   &load.OpenLoop{Rate: 50_000, Due: 100_020, Missed: 20, Lag: lat(3)},
		},
		Client: clientSummary(client.Counters{Gets: 5}, client.Counters{Gets: 50_005, Reads: 51_000, OneSidedHits: 49_000, CacheHits: 49_000, CacheMisses: 1000}, 3*time.Second),
	}
}

// TestBenchForms compares what bench prints with testdata: scripts rely on
// it. After a change that is meant, run it with -rewrite and look at the diff.
func TestBenchForms(t *testing.T) {
	for _, form := range []string{"text", "json", "csv"} {
		got, err := sampleResult().form(form)
		if err != nil {
			t.Fatal(err)
		}
		if form == "json" {
			var b bytes.Buffer
			if err := json.Indent(&b, got, "", "  "); err != nil {
				t.Fatal(err)
			}
			got = b.Bytes()
		}
		path := filepath.Join("testdata", "result."+form)
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s:\n%s", form, path, got)
		}
	}
}

// TestBenchReports: the page is well formed and stands alone; the picture is one.
func TestBenchReports(t *testing.T) {
	page, err := sampleResult().form("html")
	if err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`<!DOCTYPE html>|<meta [^>]*>`).ReplaceAllString(string(page), "")))
	svgs := 0
	for {
		token, err := dec.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "svg" {
			svgs++
		}
	}
	if svgs != 3 || bytes.Contains(page, []byte("<k>")) || regexp.MustCompile(`(src|href)=`).Match(page) {
		t.Errorf("%d charts in %s", svgs, page)
	}
	for _, want := range []string{"&lt;k&gt;", "get, 1 READ", "Throughput over time", "latency (µs)", "the rate was not kept", "prefers-color-scheme"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
	picture, err := sampleResult().form("svg")
	if err != nil {
		t.Fatal(err)
	}
	var root struct{ XMLName xml.Name }
	if err := xml.Unmarshal(picture, &root); err != nil || root.XMLName.Local != "svg" || bytes.Count(picture, []byte("<svg")) != 1 {
		t.Errorf("%v: %s", err, picture)
	}
	for _, want := range []string{"get, 1 READ", "Throughput over time", "Latency over time"} {
		if !bytes.Contains(picture, []byte(want)) {
			t.Errorf("the picture has no %q", want)
		}
	}
	// With --load-only there is nothing to draw.
	only := &result{Bench: sampleResult().Bench, Load: sampleResult().Load}
	for _, form := range []string{"text", "json", "csv", "html"} {
		if _, err := only.form(form); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
	if _, err := only.form("svg"); err == nil {
		t.Error("a picture of nothing")
	}
}

// TestBenchOptions: what flags come to.
func TestBenchOptions(t *testing.T) {
	parse := func(line string) (load.Options, error) {
		var f flags
		set := pflag.NewFlagSet("bench", pflag.ContinueOnError)
		f.add(set)
		if err := set.Parse(strings.Fields(line)); err != nil {
			return load.Options{}, err
		}
		return f.options(set.Changed)
	}
	for line, right := range map[string]func(o load.Options) bool{
		"": func(o load.Options) bool {
			return o.Mix == load.Mix{load.OpGet: 100} && o.Values.Max() == 100 && o.Choice == load.Uniform && o.Duration == 5*time.Second && o.Warmup == 500*time.Millisecond && o.Workers == 1
		},
		"--workload a": func(o load.Options) bool {
			return o.Mix == load.Mix{load.OpGet: 50, load.OpPut: 50} && o.Values.Max() == 1000 && o.Choice == load.Zipfian
		},
		"--workload d --distribution uniform":       func(o load.Options) bool { return o.Choice == load.Uniform && o.Mix[load.OpInsert] == 5 },
		"--operations 10":                           func(o load.Options) bool { return o.Duration == 0 && o.Operations == 10 && o.Warmup == 0 },
		"--operations 10 --duration 2s":             func(o load.Options) bool { return o.Duration == 2*time.Second && o.Operations == 10 },
		"--duration 10m":                            func(o load.Options) bool { return o.Warmup == 5*time.Second },
		"--keys 7 --no-load --sessions 3":           func(o load.Options) bool { return o.Records == 7 && o.FillWorkers == 3*loadWorkers },
		"--read-share 0.25":                         func(o load.Options) bool { return o.Mix == load.Mix{load.OpGet: 0.25, load.OpPut: 0.75} },
		"--batch 64 --rate 1e5 --warmup 0 --seed 9": func(o load.Options) bool { return o.Batch == 64 && o.Rate == 1e5 && o.Warmup == 0 && o.Seed == 9 },
	} {
		o, err := parse(line)
		if err != nil || !right(o) {
			t.Errorf("%q: %+v, %v", line, o, err)
		}
	}
	for line, want := range map[string]string{
		"--key-size 12":              "keys of 12 bytes, want 16",
		"--skip-load --load-only":    "leave nothing to do",
		"--value-size 999999999":     "--value-size is up to 999999999, want at most",
		"--operations -1":            "--operations is -1",
		"--duration 1ms":             "--duration is 1ms, want 10ms to 24h",
		"--warmup -1s":               "--warmup is -1s",
		"--connections 0":            "--connections is 0, want 1 to 1024",
		"--scan-length 0":            "--scan-length is 0, want 1 to 10000",
		"--prefix " + long(300):      "--prefix has 300 bytes, want at most 256",
		"--mix get=1 --read-share 1": "--mix and --read-share exclude each other",
	} {
		if _, err := parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// TestRunProgress: the display says which phase it is, and how far.
func TestRunProgress(t *testing.T) {
	p := new(load.Progress)
	o := &load.Options{Duration: 10 * time.Second, Warmup: 2 * time.Second}
	r := &runProgress{tty: true, o: o, warm: true}
	p.Ops.Store(500_000)
	if got := r.line(p, time.Second); !strings.HasPrefix(got, "[████████████············]  50 %  warming up: 500,000 operations in 1s, 500,000 per second") {
		t.Error(got)
	}
	r.warm = false
	p.Errors.Store(3)
	if got := r.line(p, 20*time.Second); !strings.Contains(got, "100 %  measuring") || !strings.HasSuffix(got, ", 3 errors") {
		t.Error(got)
	}
	o.Duration, o.Operations, r.tty = 0, 1_000_000, false
	if got := r.line(p, time.Second); strings.ContainsAny(got, "█\x1b") {
		t.Error(got)
	}
}
