package fabric

import (
	"fmt"
	"strings"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/perf"
)

// A perfPrinter prints results as they come: a line of JSON each, or tables
// with perftest's columns. Widths are fixed, so that a line can be printed
// before the next is known.
type perfPrinter struct {
	*app.App
	head string // of the table that is being printed
}

// show prints a result. A new heading is printed only where something of it has
// changed.
func (p *perfPrinter) show(r perf.Result) error {
	if p.Output == "json" {
		return p.PrintJSON(r)
	}
	var text string
	if head := perfHead(r); head != p.head {
		if p.head != "" {
			text = "\n"
		}
		text += head
		p.head = head
	}
	return p.Print(text + perfLine(r))
}

// perfHead says what was measured, how, and what the columns are: those of
// perftest, so that results can be laid side by side.
func perfHead(r perf.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s over %s/%s to %s", r.Test, r.Fabric, r.Device, r.Path.Remote)
	if r.Path.Detail != "" {
		fmt.Fprintf(&b, " (%s)", r.Path.Detail)
	}
	if r.Path.GID != "" {
		fmt.Fprintf(&b, "\nport %d, GID %d %s (%s), peer %s, MTU %d", r.Path.Port, r.Path.GIDIndex, r.Path.GID, r.Path.GIDType, r.Path.PeerGID, r.Path.MTU)
	}
	fmt.Fprintf(&b, "\n%s", r.Meaning)
	if r.Bandwidth != nil {
		fmt.Fprintf(&b, "; %d in flight, %d a doorbell, a completion for every %d", r.Depth, r.Batch, r.SignalEvery)
	}
	how := "polling"
	if r.Mode == "events" {
		how = "by events"
	}
	fmt.Fprintf(&b, "; completions: %s\n", how)
	if r.Latency != nil {
		b.WriteString(" #bytes #iterations   t_min[usec]   t_max[usec] t_typical[usec]   t_avg[usec] t_stdev[usec]     99%[usec]   99.9%[usec]\n")
	} else {
		b.WriteString(" #bytes #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]\n")
	}
	return b.String()
}

// perfLine is one result under perfHead's columns.
func perfLine(r perf.Result) string {
	if l := r.Latency; l != nil {
		return fmt.Sprintf("%7d %11d %13.2f %13.2f %15.2f %13.2f %13.2f %13.2f %13.2f\n",
			r.Bytes, r.Iterations, l.Min, l.Max, l.Typical, l.Avg, l.StdDev, l.P99, l.P999)
	}
	f := r.Bandwidth
	return fmt.Sprintf("%7d %11d %17.2f %20.2f %14.6f\n", r.Bytes, r.Iterations, f.Peak, f.Average, f.Rate/1e6)
}
