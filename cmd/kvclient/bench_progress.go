package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/load"
)

// follow calls f now and then while something is under way, and once more at the
// end. The function that it returns ends it.
func follow(p *load.Progress, f func(*load.Progress)) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressTTY)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				f(p)
				return
			case <-tick.C:
				f(p)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
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

func (b *bench) showRun() *runProgress {
	columns := &progress{w: b.stderr}
	r := &runProgress{w: b.stderr, tty: isTerminal(b.stderr), o: &b.o, begun: time.Now(), shown: time.Now(), width: columns.columns, warm: true}
	r.stop = follow(b.o.Progress, r.look)
	return r
}

func (r *runProgress) look(p *load.Progress) {
	now := time.Now()
	if warm := p.Warming.Load(); warm != r.warm {
		r.warm, r.begun = warm, now
	}
	line := r.line(p, now.Sub(r.begun))
	if r.tty {
		runes := []rune(line)
		fmt.Fprintf(r.w, "\r%s\x1b[K", string(runes[:min(len(runes), max(r.width()-1, 0))]))
	} else if now.Sub(r.shown) >= progressPlain {
		r.shown = now
		fmt.Fprintln(r.w, line)
	}
}

// line is the whole state in plain words.
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
	text := fmt.Sprintf("%s: %s operations in %s, %s per second", what, thousands(ops), shortDuration(elapsed),
		thousands(int64(float64(ops)/max(elapsed.Seconds(), 1e-3))))
	if n := p.Errors.Load(); n > 0 {
		text += ", " + thousands(n) + " errors"
	}
	if !r.tty {
		return text
	}
	const width = 24
	full := int(min(share, 1) * width)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("█", full), strings.Repeat("·", width-full), min(share, 1)*100, text)
}

// finish takes the display away: the result tells the rest.
func (r *runProgress) finish() {
	r.stop()
	if r.tty {
		fmt.Fprint(r.w, "\r\x1b[K")
	}
}
