package app

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// A Progress tells how far an import or export is: a bar on a terminal, a
// plain line now and then elsewhere. It never writes to standard output.
type Progress struct {
	w     io.Writer
	tty   bool
	verb  string // "imported"
	total int64  // bytes to come; 0 if that is not known
	Begun time.Time
	// spread is how many keys each node of a cluster got; it may be nil, or return
	// nil.
	spread func() map[string]uint64

	Keys  atomic.Int64
	Bytes atomic.Int64 // of the stream, for the bar; negative: there is none

	stop func() // of the drawing
}

// NewProgress begins to show on w, standard error, how far an import or export is;
// verb is what is done ("imported"), total the bytes to come, or 0 where that is
// not known. The caller adds to Keys and Bytes from any goroutine and ends the
// display with Finish or End. spread may be nil; else it tells how many keys each
// node of a cluster has got.
func NewProgress(w io.Writer, verb string, total int64, spread func() map[string]uint64) *Progress {
	p := &Progress{
		spread: spread,
		w:      w, tty: cli.IsTerminal(w), verb: verb, total: total, Begun: time.Now(),
	}
	every := cli.LineEvery
	if p.tty {
		every = cli.RedrawEvery
	}
	p.stop = cli.Every(every, p.draw)
	return p
}

// draw shows the state as it is now.
func (p *Progress) draw() {
	if p.tty {
		cli.Redraw(p.w, p.bar(cli.Columns(p.w)))
	} else {
		fmt.Fprintln(p.w, p.line())
	}
}

// Finish ends the display with one last line, which stays on a terminal, too.
func (p *Progress) Finish() {
	p.End()
	fmt.Fprintln(p.w, p.line())
}

// Finish ends the display of a command that ended with err. After an error the last
// line comes behind the message, so that the reason is read first, and only if
// anything was done: "imported 0 keys" would be one more line that tells nothing.
func (a *App) Finish(show *Progress, err error) {
	if err == nil {
		show.Finish()
		return
	}
	show.End()
	if show.Keys.Load() > 0 {
		a.before = show.line()
	}
}

// End takes the display away. After it nothing is written any more.
func (p *Progress) End() {
	p.stop()
	if p.tty {
		cli.Wipe(p.w)
	}
}

// line is the whole state in plain words.
func (p *Progress) line() string {
	elapsed := time.Since(p.Begun)
	keys := p.Keys.Load()
	bytes := ""
	if n := p.Bytes.Load(); n >= 0 {
		bytes = ", " + cli.Bytes(n)
	}
	return fmt.Sprintf("%s %s keys%s in %s, %s keys/s%s", p.verb, cli.Thousands(keys), bytes,
		cli.Duration(elapsed), cli.Thousands(int64(float64(keys)/max(elapsed.Seconds(), 1e-9))), p.shares())
}

// maxShares bounds the nodes that are shown by themselves; of more than these the
// least and the most are shown, which tell whether keys are spread evenly.
const maxShares = 8

// shares is how much each node of a cluster has got; "" for a server without a
// cluster.
func (p *Progress) shares() string {
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
		return fmt.Sprintf(" (%d nodes: %s to %s each)", len(nodes), cli.Thousands(int64(least)), cli.Thousands(int64(most)))
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		parts = append(parts, id+" "+cli.Thousands(int64(nodes[id])))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// bar draws the state into the given number of columns, or as much of it as
// fits: on a very narrow terminal that is nothing at all.
func (p *Progress) bar(columns int) string {
	text := p.line()
	if p.total > 0 {
		text = cli.Bar(min(float64(p.Bytes.Load())/float64(p.total), 1), text)
	}
	return cli.Cut(text, columns)
}
