package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A printer writes steps and the table: with colour and frame on a terminal,
// plain elsewhere, because a log file has no use for either.
type printer struct {
	w     io.Writer
	fancy bool
	start time.Time
}

func newPrinter(f *os.File) *printer {
	fancy := term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &printer{w: f, fancy: fancy, start: time.Now()}
}

// paint colours a text on a terminal.
func (p *printer) paint(colour, text string) string {
	if !p.fancy {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Colours, as SGR parameters.
const (
	bold  = "1"
	faint = "2"
	green = "1;32"
	red   = "1;31"
	cyan  = "36"
)

func (p *printer) step(word, format string, args ...any) {
	colour := green
	if word == "SIGKILL" {
		colour = red
	}
	at := fmt.Sprintf("%6.2fs", time.Since(p.start).Seconds())
	fmt.Fprintf(p.w, "%s  %s %s\n", p.paint(faint, at), p.paint(colour, fmt.Sprintf("%-8s", word)), fmt.Sprintf(format, args...))
}

// table prints what both comparisons saw.
func (p *printer) table(stanzas []stanza, before, after comparison) {
	passes := []pass{before.cold, before.warm, before.absent, after.cold, after.warm, after.absent}
	rows := [][]string{{"", "first get", "again", "absent key", "first get", "again", "absent key"}}
	add := func(name string, cell func(pass) string) {
		row := []string{name}
		for _, one := range passes {
			row = append(row, cell(one))
		}
		rows = append(rows, row)
	}
	add("gets", func(x pass) string { return count(uint64(x.gets)) })
	add("READs per get", func(x pass) string { return fmt.Sprintf("%.2f", float64(x.reads)/float64(x.gets)) })
	add("answered one-sidedly", func(x pass) string { return count(x.oneSided) })
	add("answered by SEND", func(x pass) string { return count(x.bySend) })
	add("p50", func(x pass) string { return durationText(time.Duration(x.hist.ValueAtQuantile(50))) })
	add("p99", func(x pass) string { return durationText(time.Duration(x.hist.ValueAtQuantile(99))) })
	add("server CPU, total", func(x pass) string {
		if x.cpu < 0 {
			return "unknown"
		}
		return x.cpu.String()
	})
	fmt.Fprintln(p.w)
	fmt.Fprintf(p.w, "%s %s    %s %s    %s start %s, after SIGKILL %s\n\n", p.paint(bold, "keys"), count(uint64(len(stanzas))),
		p.paint(bold, "bytes"), count(uint64(totalBytes(stanzas))),
		p.paint(bold, "ready"), durationText(before.startup), durationText(after.startup))
	p.frame(rows, 3)
	fmt.Fprintln(p.w, p.paint(faint, `first get: two pairs of buckets and the item. again: the place is remembered.
absent key: proved absent by READs. The server's store code takes no part in a
one-sided get; its CPU time here is the iwarp fabric, a network card in software.`))
}

// frame draws the rows in columns, with a line over the groups of columns.
func (p *printer) frame(rows [][]string, group int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	groups := []string{"after the import", "after SIGKILL and restart"}
	span := func(g int) (n int) {
		for i := range group {
			n += width[1+g*group+i] + 2
		}
		return n
	}
	v, h := " ", "-"
	if p.fancy {
		v, h = p.paint(faint, "│"), "─"
	}
	line := strings.Repeat(" ", width[0]+2)
	for g := range groups {
		line += v + p.paint(cyan, fmt.Sprintf(" %-*s", span(g)-1, groups[g]))
	}
	fmt.Fprintln(p.w, strings.TrimRight(line, " "))
	for r, row := range rows {
		line := p.paint(bold, fmt.Sprintf(" %-*s ", width[0], row[0]))
		for i, cell := range row[1:] {
			if i%group == 0 {
				line += v
			}
			text := fmt.Sprintf(" %*s ", width[i+1], cell)
			if r == 0 {
				text = p.paint(bold, text)
			}
			line += text
		}
		fmt.Fprintln(p.w, line)
		if r == 0 {
			fmt.Fprintln(p.w, p.paint(faint, strings.Repeat(h, width[0]+2+len(groups)+span(0)+span(1))))
		}
	}
	fmt.Fprintln(p.w)
}

// count writes 1234567 as 1,234,567.
func count(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// durationText rounds to three figures.
func durationText(d time.Duration) string {
	for unit := time.Duration(1); unit < time.Minute; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
