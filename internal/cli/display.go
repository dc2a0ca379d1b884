package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A display is a line of standard error that tells how far something is. On a terminal it
// is drawn again and again in the same place; elsewhere, where each line stays, a line is
// written now and then.

// These are the intervals at which a display shows something.
const (
	RedrawEvery = 100 * time.Millisecond // on a terminal: often enough to look alive
	LineEvery   = 5 * time.Second        // elsewhere
)

// Every calls f at intervals, in a goroutine of its own, until stop is called; when stop
// returns, f is not running any more and never will be. stop may be called once.
func Every(interval time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// Columns returns the width of a terminal, or 80 if w is none or does not know its width.
func Columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Cut shortens a text to what one line of a terminal takes: a longer one would wrap, and
// could not be wiped. On a very narrow terminal nothing is left.
func Cut(text string, columns int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), max(columns-1, 0))])
}

// Bar draws a share from 0 to 1 as a bar of fixed width and as percents, with a text
// behind it.
func Bar(share float64, text string) string {
	const width = 24
	full := int(share * width)
	return fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("█", full), strings.Repeat("·", width-full), share*100, text)
}

// Redraw writes a text in the place of the last line of a terminal. It does not report
// errors of writing: a text that cannot be shown is lost.
func Redraw(w io.Writer, text string) { fmt.Fprintf(w, "\r%s\x1b[K", text) }

// Wipe takes the last line of a terminal away.
func Wipe(w io.Writer) { fmt.Fprint(w, "\r\x1b[K") }
