package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rdmakv/rdmakv/internal/server"
)

// A bar shows on a terminal how far memory has been filled, below the log,
// whose lines go through it. Elsewhere the log itself says so now and then.
type bar struct {
	w       io.Writer
	columns func() int

	mu   sync.Mutex
	text string // what stands on the last line; empty: nothing
}

// newBar returns the bar of a terminal, or nil if w is none.
func newBar(w io.Writer) *bar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
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

// filled shows how far the fill is; the last call takes the bar away. What
// cannot be shown is lost.
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
// known how many there are, else by shards.
func fillBar(p server.FillProgress, columns int) string {
	share := float64(p.ShardsFilled) / float64(max(1, p.Shards))
	if p.Expected > 0 {
		share = min(1, float64(p.Keys)/float64(p.Expected))
	}
	rate := float64(p.Keys) / max(p.Elapsed.Seconds(), 1e-3) / 1e6
	head := "filling memory "
	tail := fmt.Sprintf(" %3.0f %% %.1f M keys, %.1f M/s, %v", 100*share, float64(p.Keys)/1e6, rate, p.Elapsed.Round(time.Second))
	width := columns - len(head) - len(tail) - 2
	if width < 5 { // no room for a bar
		return (head + tail)[:max(0, min(columns, len(head+tail)))]
	}
	done := int(share * float64(width))
	return head + "[" + strings.Repeat("#", done) + strings.Repeat(".", width-done) + "]" + tail
}
