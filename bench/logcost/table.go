package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// A table collects figures over rounds. The rows are in the order in which they
// were made; ratios are to the first of them, or to the row that a row names.
type table struct {
	what    string   // first column: what a row is
	columns []string // names of figures, with units
	ratio   string   // the column of which there are ratios; "": none
	least   string   // the column of which the least of all rounds is told too; "": none
	rows    []*row
	notes   []string // below the table
}

// A row is one case.
type row struct {
	name    string
	base    *row                 // of its ratio; nil: the first row
	figures map[string][]float64 // by column, one for each round
}

// row makes a row.
func (t *table) row(name string) *row {
	r := &row{name: name, figures: map[string][]float64{}}
	t.rows = append(t.rows, r)
	return r
}

// add adds the figure of one round.
func (r *row) add(column string, v float64) { r.figures[column] = append(r.figures[column], v) }

// note adds a line below the table.
func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// markdown renders the table.
func (t *table) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "| %s | %s |", t.what, strings.Join(t.columns, " | "))
	if t.ratio != "" {
		fmt.Fprintf(&s, " ratio of %s (range) |", t.ratio)
	}
	cells := 1 + len(t.columns)
	if t.ratio != "" {
		cells++
	}
	s.WriteString("\n" + strings.Repeat("|---", cells) + "|\n")
	for _, r := range t.rows {
		fmt.Fprintf(&s, "| %s |", r.name)
		for _, c := range t.columns {
			fmt.Fprintf(&s, " %s", cell(r.figures[c]))
			if values := r.figures[c]; c == t.least && len(values) > 1 {
				fmt.Fprintf(&s, " (least %s)", digits(slices.Min(values)))
			}
			s.WriteString(" |")
		}
		if t.ratio != "" {
			fmt.Fprintf(&s, " %s |", t.ratioCell(r))
		}
		s.WriteString("\n")
	}
	for _, n := range t.notes {
		fmt.Fprintf(&s, "\n%s\n", n)
	}
	return s.String()
}

// cell is the median of rounds; a dash where a case has no such figure.
func cell(values []float64) string {
	if s := report.Summarize(values); s != nil {
		return digits(s.Median)
	}
	return "-"
}

// ratioCell is the median of a row's ratios within rounds, with their range.
func (t *table) ratioCell(r *row) string {
	base := r.base
	if base == nil {
		base = t.rows[0]
	}
	s := report.Summarize(ratios(r.figures[t.ratio], base.figures[t.ratio]))
	switch {
	case base == r:
		return "1"
	case s == nil:
		return "-"
	case s.N == 1:
		return digits(s.Median)
	}
	return fmt.Sprintf("%s (%s to %s)", digits(s.Median), digits(s.Min), digits(s.Max))
}

// ratios divides round by round. A round without a figure to divide by has none.
func ratios(values, base []float64) (out []float64) {
	for i := range min(len(values), len(base)) {
		if base[i] != 0 {
			out = append(out, values[i]/base[i])
		}
	}
	return out
}

// digits shows a figure with three significant digits, and thousands in full.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 10_000:
		s := strconv.FormatInt(int64(math.Round(v)), 10)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// percentile returns the value that a share p of values does not exceed: the
// smallest one of which that is true. values are sorted by it; none: 0.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	i := int(math.Ceil(p*float64(len(values)))) - 1
	return values[max(min(i, len(values)-1), 0)]
}
