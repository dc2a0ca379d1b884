package report

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/chart"
)

// Pictures draws each row that has figures, and the overviews; the keys are names
// of files.
func Pictures(res *Result) (map[string][]byte, error) {
	pics := make(map[string][]byte)
	for i := range res.Rows {
		r := &res.Rows[i]
		svg, err := picture(r)
		if err != nil {
			return nil, fmt.Errorf("picture of %s: %w", r.Name, err)
		}
		if svg != nil {
			pics[pictureName(r)] = svg
		}
	}
	for _, o := range overviews {
		svg, err := o.picture(res)
		if err != nil {
			return nil, fmt.Errorf("picture %s: %w", o.file, err)
		}
		if svg != nil {
			pics[o.file] = svg
		}
	}
	return pics, nil
}

func pictureName(r *Row) string { return "benchmarks-" + r.Name + ".svg" }

// kinds are the colours.
var kindNames = map[string]int{Ours: 0, Peer: 1, Floor: 2}

// bars are the contenders of a row that have a figure.
func bars(r *Row) (rows []chart.Row) {
	for i := range r.Contenders {
		if c := &r.Contenders[i]; c.Summary != nil {
			rows = append(rows, c.bar(c.Name, r.Figure))
		}
	}
	return rows
}

// bar is a contender that has a figure, in the colour of its kind.
func (c *Contender) bar(label string, f Figure) chart.Row {
	row := chart.Row{Label: label, Bars: make([]chart.Bar, len(kindNames))}
	row.Bars[kindNames[c.Kind]] = chart.Bar{
		Value: c.Summary.Median, Low: c.Summary.Min, High: c.Summary.Max, Text: withUnit(Number(c.Summary.Median), c.Summary.Median, f),
	}
	return row
}

// picture draws a row, a bar for each contender; nil if none has a figure.
func picture(r *Row) ([]byte, error) {
	rows := bars(r)
	if len(rows) == 0 {
		return nil, nil
	}
	return chart.Bars{
		Title: r.Title, Note: "median of the rounds and their extremes; " + lessOrMore(r.Figure) + " is better; logarithmic",
		Value:  chart.Axis{Label: figureWords(r.Figure) + ", " + r.Figure.Unit, Log: true},
		Series: []string{"rdmakv", "peers", "floors"}, Rows: rows, OneBar: true,
	}.SVG()
}
