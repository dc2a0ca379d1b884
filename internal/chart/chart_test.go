package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var keep = flag.String("keep", "", "directory to leave the charts in, to look at")

// samples are charts of the kinds that benchmarks draw.
func samples() map[string]Chart {
	curve := func(base float64) (p []Point) {
		for i := range 60 {
			x := float64(i) / 15
			p = append(p, Point{x, base * (1 + math.Exp(x*1.3-2))})
		}
		return p
	}
	line := Line{
		Title: "Latency of get and put", Note: "kvclient bench, workload a, 1 M records of 1,000 B, 50 callers",
		X: Axis{Label: "percentile", Ticks: []Tick{{0, "0"}, {1, "90 %"}, {2, "99 %"}, {3, "99.9 %"}, {4, "99.99 %"}}},
		Y: Axis{Label: "latency (µs)", Log: true}, Series: []Series{{"get", curve(2.1)}, {"get, 1 READ", curve(1.8)}, {"put", curve(90)}},
	}
	over := Line{Title: "Throughput", X: Axis{Label: "time (s)"}, Y: Axis{Label: "operations per second"}, Series: []Series{{Name: "ops/s"}}}
	for i := range 30 {
		over.Series[0].Points = append(over.Series[0].Points, Point{float64(i), 1.2e6 + 2e5*math.Sin(float64(i))})
	}
	over.Series[0].Points[12].Y = math.NaN() // a gap
	bars := Bars{
		Title: "Gets of 64 B, one client", Note: "median of 5 rounds; the line is the spread", Value: Axis{Label: "gets per second", Log: true},
		Series: []string{"p50", "p99"},
		Rows: []Row{
			{"rdmakv, shared memory", []Bar{{1.6e6, 1.5e6, 1.7e6, ""}, {Value: 8e5}}},
			{"rdmakv, iWARP, <loopback> & more", []Bar{{Value: 4e4}, {Value: 2e4}}},
			{"Redis, UNIX socket", []Bar{{Value: 3e4, Low: 2e4, High: 5e4}, {Value: 1000, Text: "1,000 (of 2,000)"}}},
		},
	}
	return map[string]Chart{
		"column": Column{line, over, bars},
		"line":   line, "over": over, "bars": bars,
		"linear-bars": Bars{Rows: []Row{{"a", []Bar{{Value: 3}}}, {"b", []Bar{{Value: 7}}}}, Value: Axis{Label: "x"}},
		"one-point":   Line{Series: []Series{{"x", []Point{{1, 5}}}}},
		"flat":        Line{Series: []Series{{"x", []Point{{1, 0}, {2, 0}}}}},
	}
}

// TestCharts: each chart is a well-formed SVG with its texts and colours.
func TestCharts(t *testing.T) {
	for name, c := range samples() {
		svg, err := c.SVG()
		if err != nil {
			t.Fatal(name, err)
		}
		dec := xml.NewDecoder(bytes.NewReader(svg))
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !bytes.Contains(svg, []byte("#0072b2")) || !bytes.Contains(svg, []byte(`width="720"`)) || !bytes.Contains(svg, []byte("<text ")) || !bytes.Contains(svg, []byte("prefers-color-scheme:dark")) || bytes.Contains(svg, []byte("NaN")) {
			t.Errorf("%s: %s", name, svg)
		}
		if *keep != "" {
			if err := os.WriteFile(filepath.Join(*keep, name+".svg"), svg, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	svg, _ := samples()["bars"].SVG()
	for _, want := range []string{"&lt;loopback&gt; &amp; more", "1.6M", "gets per second", "1,000 (of 2,000)", "p99"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("the SVG has no %q", want)
		}
	}
}

// TestRefused: what cannot be drawn is an error.
func TestRefused(t *testing.T) {
	many := make([]Series, MaxSeries+1)
	for name, draw := range map[string]func() ([]byte, error){
		"no lines":      Line{}.SVG,
		"no charts":     Column{}.SVG,
		"bad part":      Column{Line{}}.SVG,
		"no positive":   Line{Y: Axis{Log: true}, Series: []Series{{"x", []Point{{1, 0}}}}}.SVG,
		"only NaN":      Line{Series: []Series{{"x", []Point{{1, math.NaN()}}}}}.SVG,
		"too many":      Line{Series: many}.SVG,
		"no rows":       Bars{}.SVG,
		"no bars":       Bars{Rows: []Row{{Label: "x"}}}.SVG,
		"more bars":     Bars{Rows: []Row{{"x", make([]Bar, 2)}}}.SVG,
		"no room":       Line{Width: 40, Height: 40, Series: []Series{{"x", []Point{{1, 1}}}}}.SVG,
		"too many rows": Bars{Rows: make([]Row, MaxRows+1)}.SVG,
	} {
		if _, err := draw(); !errors.Is(err, ErrChart) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.5", 0.25: "0.25", 1.234: "1.23", 12.34: "12.3", 99.99: "100", 123.4: "123", 1500: "1500",
		9999: "10k", 20_000: "20k", 123_456: "123k", 999_999: "1M", 1.55e6: "1.55M", 2e9: "2G", -1500: "-1500", 1e-3: "0.001", 5000: "5000",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

// TestTicks: few, in order, within the axis.
func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		a      Axis
		lo, hi float64
	}{{Axis{}, 0, 1}, {Axis{}, 0, 1e9}, {Axis{}, -5, 5}, {Axis{}, 100, 100.01}, {Axis{Log: true}, 0.1, 1e9}, {Axis{Log: true}, 3, 4}, {Axis{Log: true}, 1, 100}} {
		list := tc.a.ticks(tc.lo, tc.hi, 8)
		if len(list) > 18 || len(list) == 0 && !(tc.a.Log && tc.hi < 5) {
			t.Errorf("%+v: %v", tc, list)
		}
		for i, tick := range list {
			if tick.At < tc.lo-1e-9 || tick.At > tc.hi*(1+1e-9) || i > 0 && tick.At <= list[i-1].At {
				t.Errorf("%+v: tick %v of %v", tc, tick, list)
			}
		}
	}
}
