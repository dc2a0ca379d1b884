package bench

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/rdmakv/rdmakv/internal/chart"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
)

// charts are the pictures of a report: latency by percentile, throughput and
// latency over time. Those with nothing to show are left out.
func (r *result) charts() (list []chart.Chart) {
	if r.Result == nil {
		return nil
	}
	curves := chart.Line{
		Title: "Latency by percentile", Note: r.Bench.headline(),
		X: chart.Axis{Label: "percentile of operations", Ticks: []chart.Tick{
			{At: 0, Label: "0"}, {At: nines(0.5), Label: "50 %"}, {At: 1, Label: "90 %"}, {At: 2, Label: "99 %"},
			{At: 3, Label: "99.9 %"}, {At: 4, Label: "99.99 %"}, {At: 5, Label: "99.999 %"},
		}},
		Y: chart.Axis{Label: "latency (µs)", Log: true},
	}
	for _, op := range opOrder {
		o, ok := r.Operations[op]
		if !ok || len(o.Curve) == 0 {
			continue
		}
		curves.Series = append(curves.Series, chart.Series{Name: op, Points: curvePoints(o.Curve, o.Ops)})
		for _, path := range pathOrder {
			// One path is the operation itself: its curve would lie under the
			// other.
			if p, ok := o.Paths[path]; ok && len(o.Paths) > 1 {
				curves.Series = append(curves.Series, chart.Series{Name: op + ", " + pathTexts[path], Points: curvePoints(p.Curve, p.Ops)})
			}
		}
	}
	if len(curves.Series) > 0 {
		// More lines than colours cannot be told apart.
		curves.Series = curves.Series[:min(len(curves.Series), chart.MaxSeries)]
		list = append(list, curves)
	}
	// Both charts over time have the same axis, so that they can be read one below
	// the other.
	overTime := chart.Axis{Label: "time (s)", Max: r.Seconds}
	through := chart.Line{
		Title: "Throughput over time", X: overTime, Y: chart.Axis{Label: "operations per second"},
		Series: []chart.Series{{Name: "operations"}}, Height: 280,
	}
	times := chart.Line{
		Title: "Latency over time", X: overTime, Y: chart.Axis{Label: "latency (µs)", Log: true},
		Series: []chart.Series{{Name: "mean"}, {Name: "longest"}}, Height: 280,
	}
	for _, p := range settled(r.Series) {
		x := p.Second + p.Seconds/2 // the middle of the interval
		through.Series[0].Points = append(through.Series[0].Points, chart.Point{X: x, Y: p.OpsPerSecond})
		times.Series[0].Points = append(times.Series[0].Points, chart.Point{X: x, Y: p.Mean})
		times.Series[1].Points = append(times.Series[1].Points, chart.Point{X: x, Y: p.Max})
	}
	if r.Ops > 0 {
		list = append(list, through, times)
	}
	return list
}

// settled leaves out the last interval if it is a small rest: its rate is chance,
// and a curve that drops at its end would look like a fault of the store.
func settled(series []load.Point) []load.Point {
	if n := len(series); n > 1 && series[n-1].Seconds < series[0].Seconds/2 {
		return series[:n-1]
	}
	return series
}

// nines is where a quantile stands on an axis of percentiles: 90 % at 1, 99 % at
// 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

// curvePoints are the quantiles that were measured. Of n operations none lies
// beyond 1-1/n: points beyond would repeat the longest one and look like a
// measurement.
func curvePoints(curve []load.Quantile, ops int64) (points []chart.Point) {
	for _, q := range curve {
		if q.Q == 0 || (1-q.Q)*float64(ops) >= 1 {
			points = append(points, chart.Point{X: nines(q.Q), Y: q.Micros})
		}
	}
	return points
}

// svg is the charts as one picture.
func (r *result) svg() ([]byte, error) {
	list := r.charts()
	if len(list) == 0 {
		return nil, fmt.Errorf("nothing was measured that a picture could show")
	}
	return chart.Column(list).SVG()
}

// reportStyle is all the style of the page: it stands alone, in light and in dark.
const reportStyle = `body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;background:#fff;color:#1b1f24}
table{border-collapse:collapse;margin:1em 0;font-variant-numeric:tabular-nums}
th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #d9dee3}
th:first-child,td:first-child{text-align:left}
tr.path td{color:#57606a}tr.path td:first-child{padding-left:2em}
svg{max-width:100%;height:auto;margin:.5em 0}
.bad{color:#b3261e}
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#2b323b}tr.path td{color:#9da7b1}.bad{color:#ff8a80}}`

// html is a page that needs no other file, so that it can be sent or kept. Texts
// from flags or from a server are escaped.
func (r *result) html() ([]byte, error) {
	var b strings.Builder
	esc := html.EscapeString
	b.WriteString("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\n")
	fmt.Fprintf(&b, "<title>kvclient bench: workload %s</title>\n<style>\n%s\n</style></head>\n<body>\n", esc(r.Bench.Workload), reportStyle)
	fmt.Fprintf(&b, "<h1>kvclient bench</h1>\n<p>%s</p>\n", esc(r.Bench.headline()))
	if loaded := r.loaded(); loaded != "" {
		fmt.Fprintf(&b, "<p>%s</p>\n", esc(loaded))
	}
	if r.Result != nil {
		class := ""
		if r.Result.Errors+r.WarmupErrors > 0 || r.Interrupted {
			class = ` class="bad"`
		}
		fmt.Fprintf(&b, "<p%s>%s</p>\n", class, esc(r.done()))
		r.htmlTable(&b)
		for _, line := range r.remarks() {
			fmt.Fprintf(&b, "<p>%s</p>\n", esc(line))
		}
	}
	for _, c := range r.charts() {
		// In the page itself, as text: it can be searched, and needs no second
		// file.
		svg, err := c.SVG()
		if err != nil {
			return nil, err
		}
		b.Write(svg)
	}
	b.WriteString("</body>\n</html>\n")
	return []byte(b.String()), nil
}

// htmlTable is the table of the text form, with times in microseconds so that
// columns compare.
func (r *result) htmlTable(b *strings.Builder) {
	b.WriteString("<table>\n<tr><th>µs</th><th>operations</th><th>per second</th><th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th></tr>\n")
	for _, row := range r.rows() {
		name, class, ops := row.op, "", row.ops
		if row.path != "" {
			name, class = pathTexts[row.path], ` class="path"`
			ops += row.errors
		}
		fmt.Fprintf(b, "<tr%s><td>%s</td><td>%s</td><td>%s</td>", class, html.EscapeString(name), cli.Thousands(ops), cli.Thousands(int64(row.perSecond)))
		for _, v := range []float64{row.P50, row.P90, row.P99, row.P999, row.Max} {
			fmt.Fprintf(b, "<td>%s</td>", threeFigures(v))
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table>\n")
}

// threeFigures writes microseconds with three figures: 0.412, 12.3, 4,560.
func threeFigures(v float64) string {
	switch {
	case v >= 1000:
		return cli.Thousands(int64(v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
