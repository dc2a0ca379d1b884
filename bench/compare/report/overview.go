package report

import (
	"slices"
	"strings"

	"github.com/rdmakv/rdmakv/internal/chart"
)

// An overview is a picture of five bars, for a reader who looks at nothing else. Where
// a bar is a system that was asked in several ways, it is the best of them, spinning
// and pinned clients too: nobody is to say that a peer could have done better.
type overview struct {
	file, title, note string
	log               bool
	bars              []pick
}

// A pick is one bar: the best of the contenders of some rows whose names begin so.
type pick struct {
	label string
	rows  []string
	begin []string
	// but leaves out names that have this in them; only takes no others.
	but, only string
}

var overviews = []overview{
	{
		file: "benchmarks-gets.svg", title: "A get of 64 B, one caller: median latency", log: true,
		note: "10,000 keys; less is better; the axis is logarithmic, so lengths are no ratios; thin lines: least and most of the rounds; peers by the best of all their clients, TCP or UNIX socket",
		bars: []pick{
			{label: "rdmakv, shared memory", rows: []string{"get-shm"}, begin: []string{"rdmakv shm"}, but: "not known"},
			{label: "LMDB in memory", rows: []string{"get-shm"}, begin: []string{"LMDB"}},
			{label: "rdmakv, iwarp over TCP", rows: []string{"get-iwarp"}, begin: []string{"rdmakv iwarp, adaptive"}},
			{label: "memcached", rows: []string{"get-shm", "get-iwarp"}, begin: []string{"memcached"}},
			{label: "Redis", rows: []string{"get-shm", "get-iwarp"}, begin: []string{"Redis"}},
		},
	},
	{
		file: "benchmarks-rates.svg", title: "Gets of 64 B per second, 50 callers over sockets",
		note: "50,000 keys; more is better; the axis is linear and begins at 0; thin lines: least and most of the rounds; peers by the best of their clients",
		bars: []pick{
			{label: "rdmakv, iwarp, one connection", rows: []string{"rate-iwarp-50"}, begin: []string{"rdmakv iwarp"}},
			{label: "Redis, one connection, 50 pipelined", rows: []string{"rate-iwarp-50"}, begin: []string{"Redis TCP"}, only: "pipelined"},
			{label: "Redis, 50 connections", rows: []string{"rate-iwarp-50"}, begin: []string{"Redis TCP"}, but: "pipelined"},
			{label: "Redis, 50 UNIX sockets", rows: []string{"rate-iwarp-50"}, begin: []string{"Redis UNIX"}},
			{label: "memcached, 50 connections", rows: []string{"rate-iwarp-50"}, begin: []string{"memcached TCP"}},
		},
	},
	{
		file: "benchmarks-puts.svg", title: "Durable puts of 100 B per second, 50 callers",
		note: "each acknowledged when it is on disk; more is better; the axis is linear and begins at 0; thin lines: least and most of the rounds; Redis with appendfsync always, by the best of its clients",
		bars: []pick{
			{label: "rdmakv, iwarp, one connection", rows: []string{"puts-durable-50"}, begin: []string{"rdmakv iwarp"}},
			{label: "rdmakv, shared memory", rows: []string{"puts-durable-50"}, begin: []string{"rdmakv shm"}},
			{label: "Redis, one connection, 50 pipelined", rows: []string{"puts-durable-50"}, begin: []string{"Redis TCP"}, only: "pipelined"},
			{label: "Redis, 50 connections", rows: []string{"puts-durable-50"}, begin: []string{"Redis TCP"}, but: "pipelined"},
			{label: "bare Pebble, no network", rows: []string{"puts-durable-50"}, begin: []string{"bare Pebble"}},
		},
	},
}

// of finds the contender of a pick, nil if none of them has a figure.
func (p pick) of(res *Result) (best *Contender, f Figure) {
	for i := range res.Rows {
		r := &res.Rows[i]
		if !slices.Contains(p.rows, r.Name) {
			continue
		}
		for j := range r.Contenders {
			c := &r.Contenders[j]
			if c.Summary == nil || p.but != "" && strings.Contains(c.Name, p.but) || !strings.Contains(c.Name, p.only) ||
				!slices.ContainsFunc(p.begin, func(b string) bool { return strings.HasPrefix(c.Name, b) }) {
				continue
			}
			if best == nil || r.Figure.better(c.Summary.Median, best.Summary.Median) {
				best, f = c, r.Figure
			}
		}
	}
	return best, f
}

// rows are the bars that there are, the best first.
func (o overview) rows(res *Result) (rows []chart.Row, f Figure) {
	type bar struct {
		row   chart.Row
		value float64
	}
	var list []bar
	for _, p := range o.bars {
		if c, figure := p.of(res); c != nil {
			f = figure
			list = append(list, bar{c.bar(p.label, f), c.Summary.Median})
		}
	}
	slices.SortStableFunc(list, func(a, b bar) int {
		switch {
		case f.better(a.value, b.value):
			return -1
		case f.better(b.value, a.value):
			return 1
		}
		return 0
	})
	for _, b := range list {
		rows = append(rows, b.row)
	}
	return rows, f
}

// picture draws the bars, nil if there are not two to compare.
func (o overview) picture(res *Result) ([]byte, error) {
	rows, f := o.rows(res)
	if len(rows) < 2 {
		return nil, nil
	}
	kinds := []string{"rdmakv", "peers", "floors"}
	if !slices.ContainsFunc(rows, func(r chart.Row) bool { return r.Bars[kindNames[Floor]].Value != 0 }) {
		kinds = kinds[:kindNames[Floor]] // no colour without a bar
		for i := range rows {
			rows[i].Bars = rows[i].Bars[:len(kinds)]
		}
	}
	label := f.Unit
	if f.Name == "rate" {
		label = "per second"
	}
	return chart.Bars{
		Title: o.title, Note: o.note, Value: chart.Axis{Label: label, Log: o.log}, Series: kinds, Rows: rows, OneBar: true,
	}.SVG()
}

// overviewLines are the pictures that there are, as Markdown, for a document from which the pictures
// are in a directory: "docs/", or "".
func overviewLines(res *Result, dir string) (lines []string) {
	for _, o := range overviews {
		if rows, _ := o.rows(res); len(rows) >= 2 {
			lines = append(lines, "!["+o.title+"]("+dir+o.file+")")
		}
	}
	return lines
}
