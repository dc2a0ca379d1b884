package report

import (
	"fmt"
	"strings"

	"github.com/rdmakv/rdmakv/internal/chart"
)

// Pictures draws each row that has figures, and an overview of gets; the keys are
// names of files.
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
	svg, err := overview(res)
	if err != nil {
		return nil, fmt.Errorf("picture of all: %w", err)
	}
	if svg != nil {
		pics[overviewName] = svg
	}
	return pics, nil
}

const overviewName = "benchmarks-gets.svg"

func pictureName(r *Row) string { return "benchmarks-" + r.Name + ".svg" }

// kinds are the colours.
var kindNames = map[string]int{Ours: 0, Peer: 1, Floor: 2}

// bars are the contenders of a row that have a figure.
func bars(r *Row) (rows []chart.Row) {
	for i := range r.Contenders {
		c := &r.Contenders[i]
		if c.Summary == nil {
			continue
		}
		row := chart.Row{Label: c.Name, Bars: make([]chart.Bar, len(kindNames))}
		row.Bars[kindNames[c.Kind]] = chart.Bar{
			Value: c.Summary.Median, Low: c.Summary.Min, High: c.Summary.Max, Text: Number(c.Summary.Median) + " " + r.Figure.Unit,
		}
		rows = append(rows, row)
	}
	return rows
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

// overview shows the latency of a get of 64 B in one picture: rdmakv's fabrics,
// each peer by its best client that sleeps, and by one that spins.
func overview(res *Result) ([]byte, error) {
	rows := overviewRows(res)
	if len(rows) == 0 {
		return nil, nil
	}
	return chart.Bars{
		Title: "A get of 64 B, one client", Note: "median latency, logarithmic; less is better",
		Value: chart.Axis{Label: "µs", Log: true}, Series: []string{"rdmakv", "peers", "floors"}, Rows: rows, OneBar: true,
	}.SVG()
}

func overviewRows(res *Result) (rows []chart.Row) {
	for i := range res.Rows {
		r := &res.Rows[i]
		if r.Name != "get-shm" && r.Name != "get-iwarp" {
			continue
		}
		for _, row := range bars(r) {
			// Two clients of a peer are enough here.
			if !strings.Contains(row.Label, ", Go") && !strings.Contains(row.Label, "redis-benchmark") {
				rows = append(rows, row)
			}
		}
	}
	return rows
}
