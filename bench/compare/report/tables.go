package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Text writes a row for a terminal.
func Text(w io.Writer, r *Row) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := range r.Contenders {
		c := &r.Contenders[i]
		if c.Summary == nil {
			fmt.Fprintf(tw, "    %s\tfailed: %s\n", c.Name, c.failure(r))
			continue
		}
		fmt.Fprintf(tw, "    %s\t%s %s\t%s\t%s\n", c.Name, Number(c.Summary.Median), r.Figure.Unit, spread(c.Summary), c.cpuText())
	}
	for i := range r.Targets {
		t := &r.Targets[i]
		mark := string(t.Reached)
		if t.Aside && t.Reached != NotMeasured {
			mark = "aside"
		}
		fmt.Fprintf(tw, "    [%s] %s\t%s\n", mark, t.Text, t.outcome(t.of(r)))
	}
	_ = tw.Flush() // if the terminal is gone, the run is not lost for it
}

// Number writes a figure in three significant digits, with thousands apart.
func Number(v float64) string {
	abs := math.Abs(v)
	switch {
	case abs >= 1000:
		return thousands(strconv.FormatFloat(roundTo(v, 3), 'f', 0, 64))
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case abs == 0:
		return "0"
	case abs >= 0.0995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// roundTo leaves so many significant digits.
func roundTo(v float64, digits int) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-float64(digits-1))
	return math.Round(v/unit) * unit
}

func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

// spread is "min to max".
func spread(s *Summary) string {
	if s.N < 2 {
		return "one round"
	}
	return Number(s.Min) + " to " + Number(s.Max)
}

// outcome is the ratio or the figure, with its spread.
func (t *Target) outcome(f Figure) string {
	if t.Ratio == nil {
		return t.Because
	}
	if len(t.Theirs) == 0 {
		return fmt.Sprintf("%s %s (%s)", Number(t.Ratio.Median), f.Unit, spread(t.Ratio))
	}
	return fmt.Sprintf("%s (%s), against %s", Ratio(t.Ratio.Median), ratioSpread(t.Ratio), t.Against)
}

// Ratio writes a ratio: two digits behind the point, more below a tenth.
func Ratio(v float64) string {
	if v < 0.0995 && v > 0 {
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	if v >= 99.5 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func ratioSpread(s *Summary) string {
	if s.N < 2 {
		return "one round"
	}
	return Ratio(s.Min) + " to " + Ratio(s.Max)
}

// median is of one field over the rounds that did not fail; 0 if none has it.
func (c *Contender) median(field func(Sample) float64) float64 {
	var values []float64
	for _, r := range c.Rounds {
		if v := field(r.Sample); r.Error == "" && v != 0 {
			values = append(values, v)
		}
	}
	if s := Summarize(values); s != nil {
		return s.Median
	}
	return 0
}

// cpuText is the processor time of an operation, of the server and the client.
func (c *Contender) cpuText() string {
	server, client := c.median(func(s Sample) float64 { return s.ServerCPU }), c.median(func(s Sample) float64 { return s.ClientCPU })
	if client == 0 {
		return ""
	}
	if c.Kind == Floor {
		return fmt.Sprintf("CPU %s", Number(client))
	}
	return fmt.Sprintf("CPU %s + %s", Number(server), Number(client))
}

// paths tells how gets were answered.
func (c *Contender) paths() string {
	var parts []string
	for _, p := range []struct{ name, words string }{
		{"read_1", "one READ"}, {"read_2", "two READs"}, {"read_more", "more READs"}, {"read_large", "READs of chunks"},
		{"send", "messages"}, {"batch", ""},
	} {
		share := c.median(func(s Sample) float64 { return s.Paths[p.name] })
		if share >= 0.0005 && p.words != "" {
			parts = append(parts, fmt.Sprintf("%.1f %% by %s", 100*share, p.words))
		}
	}
	return strings.Join(parts, ", ")
}
