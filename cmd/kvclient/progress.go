package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// A progress tells how far an import or export is: a bar on a terminal, a
// plain line now and then elsewhere. It never writes to standard output.
type progress struct {
	w     io.Writer
	tty   bool
	verb  string // "imported"
	total int64  // bytes to come; 0 if nobody knows
	start time.Time
	// spread is how many keys each node of a cluster got; it may be nil, or return
	// nil.
	spread func() map[string]uint64

	keys  atomic.Int64
	bytes atomic.Int64 // of the stream, for the bar; negative: there is none

	stop, stopped chan struct{}
}

// How often something is shown.
const (
	progressTTY   = 100 * time.Millisecond
	progressPlain = 5 * time.Second
)

// newProgress starts to show; finish ends it.
func newProgress(w io.Writer, verb string, total int64, spread func() map[string]uint64) *progress {
	p := &progress{
		spread: spread,
		w:      w, tty: isTerminal(w), verb: verb, total: total, start: time.Now(),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go p.run()
	return p
}

func (p *progress) run() {
	defer close(p.stopped)
	every := progressPlain
	if p.tty {
		every = progressTTY
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		if p.tty {
			fmt.Fprintf(p.w, "\r%s\x1b[K", p.bar(p.columns()))
		} else {
			fmt.Fprintln(p.w, p.line())
		}
	}
}

// finish ends the display with one last line.
func (p *progress) finish() {
	p.end()
	fmt.Fprintln(p.w, p.line())
}

// finish ends the display of a command. After an error the last line comes behind
// what went wrong, and only if anything was done.
func (a *app) finish(show *progress, err error) {
	if err == nil {
		show.finish()
		return
	}
	show.end()
	if show.keys.Load() > 0 {
		a.before = show.line()
	}
}

// end takes the display away.
func (p *progress) end() {
	close(p.stop)
	<-p.stopped
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// line is the whole state in plain words.
func (p *progress) line() string {
	elapsed := time.Since(p.start)
	keys := p.keys.Load()
	bytes := ""
	if n := p.bytes.Load(); n >= 0 {
		bytes = ", " + byteCount(n)
	}
	return fmt.Sprintf("%s %s keys%s in %s, %s keys/s%s", p.verb, thousands(keys), bytes,
		shortDuration(elapsed), thousands(int64(float64(keys)/max(elapsed.Seconds(), 1e-9))), p.shares())
}

// maxShares bounds the nodes that are shown by themselves.
const maxShares = 8

// shares is what each node of a cluster has got.
func (p *progress) shares() string {
	if p.spread == nil {
		return ""
	}
	nodes := p.spread()
	if len(nodes) == 0 {
		return ""
	}
	if len(nodes) > maxShares {
		least, most := uint64(math.MaxUint64), uint64(0)
		for _, n := range nodes {
			least, most = min(least, n), max(most, n)
		}
		return fmt.Sprintf(" (%d nodes: %s to %s each)", len(nodes), thousands(int64(least)), thousands(int64(most)))
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		parts = append(parts, id+" "+thousands(int64(nodes[id])))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// bar draws the state into the given number of columns, or as much of it as
// fits: on a very narrow terminal that is nothing at all.
func (p *progress) bar(columns int) string {
	text := p.line()
	if p.total > 0 {
		share := min(float64(p.bytes.Load())/float64(p.total), 1)
		const width = 24
		full := int(share * width)
		text = fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("█", full), strings.Repeat("·", width-full), share*100, text)
	}
	runes := []rune(text)
	return string(runes[:min(len(runes), max(columns-1, 0))])
}

func (p *progress) columns() int {
	if f, ok := p.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 { // some terminals do not know theirs
			return width
		}
	}
	return 80
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// byteCount writes a number of bytes in the largest binary unit below it.
func byteCount(n int64) string {
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit-1])
}

// shortDuration rounds to three figures, which is what anybody reads.
func shortDuration(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
