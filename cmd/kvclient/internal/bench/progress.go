package bench

import (
	"fmt"
	"io"
	"time"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/load"
)

// follow calls f now and then while something is under way, and once more at the
// end, so that the last call sees all of it. The function that it returns ends it,
// and returns when f is not running any more.
func follow(p *load.Progress, f func(*load.Progress)) (stop func()) {
	end := cli.Every(cli.RedrawEvery, func() { f(p) })
	return func() {
		end()
		f(p)
	}
}

// A runProgress shows how far a measurement is: a bar on a terminal, a plain line
// every five seconds elsewhere.
type runProgress struct {
	w     io.Writer
	tty   bool
	o     *load.Options
	stop  func()
	begun time.Time // of the phase
	warm  bool      // it is the warm-up
	shown time.Time
	width func() int
}

// showRun begins to show how far the measurement is; the load counts in
// b.o.Progress, which costs it no lock.
func (b *bench) showRun() *runProgress {
	r := &runProgress{w: b.Stderr, tty: cli.IsTerminal(b.Stderr), o: &b.o, begun: time.Now(), shown: time.Now(), width: func() int { return cli.Columns(b.Stderr) }, warm: true}
	r.stop = follow(b.o.Progress, r.look)
	return r
}

// look draws the state, if it is time to.
func (r *runProgress) look(p *load.Progress) {
	now := time.Now()
	// The time of a phase counts from the first look that sees it.
	if warm := p.Warming.Load(); warm != r.warm {
		r.warm, r.begun = warm, now
	}
	line := r.line(p, now.Sub(r.begun))
	if r.tty {
		cli.Redraw(r.w, cli.Cut(line, r.width()))
	} else if now.Sub(r.shown) >= cli.LineEvery { // it is called more often than that
		r.shown = now
		fmt.Fprintln(r.w, line)
	}
}

// line is the whole state in plain words; on a terminal with a bar before them,
// whose end is what comes first of --duration and --operations.
func (r *runProgress) line(p *load.Progress, elapsed time.Duration) string {
	ops := p.Ops.Load()
	what, share := "measuring", 0.0
	switch {
	case r.warm:
		what = "warming up"
		share = float64(elapsed) / float64(max(r.o.Warmup, 1))
	default:
		if r.o.Duration > 0 {
			share = float64(elapsed) / float64(r.o.Duration)
		}
		if r.o.Operations > 0 {
			share = max(share, float64(ops)/float64(r.o.Operations))
		}
	}
	text := fmt.Sprintf("%s: %s operations in %s, %s per second", what, cli.Thousands(ops), cli.Duration(elapsed),
		cli.Thousands(int64(float64(ops)/max(elapsed.Seconds(), 1e-3))))
	if n := p.Errors.Load(); n > 0 {
		text += ", " + cli.Thousands(n) + " errors"
	}
	if !r.tty {
		return text
	}
	return cli.Bar(min(share, 1), text)
}

// finish takes the display away: the result tells the rest.
func (r *runProgress) finish() {
	r.stop()
	if r.tty {
		cli.Wipe(r.w)
	}
}
