package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
)

// TestBar: the bar survives any width, lines of the log stay whole above it, and
// nothing of it is left in the end.
func TestBar(t *testing.T) {
	p := server.FillProgress{Shards: 32, ShardsFilled: 8, Keys: 5_000_000, Expected: 10_000_000, Elapsed: 2500 * time.Millisecond}
	for columns := -1; columns < 200; columns++ {
		if got := fillBar(p, columns); len(got) > max(0, columns) {
			t.Errorf("%d columns: the bar has %d", columns, len(got))
		}
	}
	got := fillBar(p, 100)
	_, in, _ := strings.Cut(got, "[")
	in, tail, _ := strings.Cut(in, "]")
	if in != strings.Repeat("#", len(in)/2)+strings.Repeat(".", len(in)-len(in)/2) || len(in) < 10 || !strings.HasPrefix(tail, "  50 % 5.0 M keys, 2.0 M/s") {
		t.Errorf("the bar is %q", got)
	}
	p.Expected = 0
	if got := fillBar(p, 100); !strings.Contains(got, " 25 % ") {
		t.Errorf("without a known number of keys: %q", got)
	}
	var out bytes.Buffer
	b := &bar{w: &out, columns: func() int { return 60 }}
	write := func(line string) {
		t.Helper()
		if n, err := b.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
	}
	write("one\n")
	b.filled(p)
	write("two\n")
	p.Done = true
	b.filled(p)
	write("three\n")
	shown := ""
	for part := range strings.SplitSeq(out.String(), "\r\x1b[K") { // each wipes the line before it
		shown = shown[:strings.LastIndex(shown, "\n")+1] + part
	}
	if shown != "one\ntwo\nthree\n" || !strings.Contains(out.String(), "filling memory [") {
		t.Errorf("the terminal shows %q of %q", shown, out.String())
	}
	if newBar(&out) != nil {
		t.Error("a buffer is taken for a terminal")
	}
}
