package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/server"
)

// A bar shows on a terminal how far memory has been filled, below the log, whose
// lines go through it: both write to one terminal, and a line that came in between
// would tear the bar. Elsewhere the log itself says so now and then. Its methods
// may be called from several goroutines.
type bar struct {
	w       io.Writer
	columns func() int

	mu   sync.Mutex
	text string // what stands on the last line; empty: nothing
}

// newBar returns the bar of a terminal; nil if w is none.
func newBar(w io.Writer) *bar {
	f, ok := w.(*os.File)
	if !ok || !cli.IsTerminal(w) {
		return nil
	}
	return &bar{w: w, columns: func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 80
		}
		return width
	}}
}

// Write writes lines of the log above the bar.
func (b *bar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == "" {
		return b.w.Write(p)
	}
	if _, err := io.WriteString(b.w, "\r\x1b[K"); err != nil {
		return 0, err
	}
	n, err := b.w.Write(p)
	if err == nil {
		_, err = io.WriteString(b.w, b.text)
	}
	return n, err
}

// filled shows how far the fill is; the last call takes the bar away. Errors of
// writing are ignored.
func (b *bar) filled(p server.FillProgress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text != "" {
		_, _ = io.WriteString(b.w, "\r\x1b[K")
	}
	if b.text = ""; !p.Done && p.Err == nil {
		b.text = fillBar(p, b.columns()-1)
		_, _ = io.WriteString(b.w, b.text)
	}
}

// fillBar draws the state into the given number of columns: by keys where it is
// known how many there are, else by shards. A line that is wider than the terminal
// would wrap, and could not be taken away again.
func fillBar(p server.FillProgress, columns int) string {
	share := float64(p.ShardsFilled) / float64(max(1, p.Shards))
	if p.Expected > 0 {
		share = min(1, float64(p.Keys)/float64(p.Expected))
	}
	rate := float64(p.Keys) / max(p.Elapsed.Seconds(), 1e-3) / 1e6
	head := "filling memory "
	tail := fmt.Sprintf(" %3.0f %% %.1f M keys, %.1f M/s, %v", 100*share, float64(p.Keys)/1e6, rate, p.Elapsed.Round(time.Second))
	width := columns - len(head) - len(tail) - 2 // what is left between the brackets
	if width < 5 {                               // no room for a bar
		return (head + tail)[:max(0, min(columns, len(head+tail)))]
	}
	done := int(share * float64(width))
	return head + "[" + strings.Repeat("#", done) + strings.Repeat(".", width-done) + "]" + tail
}
