package chart

import "fmt"

// A Point of a line.
type Point struct{ X, Y float64 }

// A Series is one line. Points that its axes cannot show are left out, and the
// line is broken there.
type Series struct {
	Name   string
	Points []Point
}

// A Line is a chart of lines.
type Line struct {
	Title, Note   string
	X, Y          Axis
	Series        []Series
	Width, Height float64 // pixels; default 720 by 360
}

// SVG draws the chart. It fails with ErrChart.
func (l Line) SVG() ([]byte, error) { return svgOf(l) }

func (l Line) size() (width, height float64) {
	return orDefault(l.Width, 720), orDefault(l.Height, 360)
}

func orDefault(v, def float64) float64 {
	if v > 0 {
		return min(v, maxSide)
	}
	return def
}

// usable returns the points of a series that can be shown, in unbroken parts.
func (l Line) usable(s Series) (parts [][]Point) {
	var part []Point
	for _, p := range s.Points {
		if l.X.usable(p.X) && l.Y.usable(p.Y) {
			part = append(part, p)
		} else if part != nil {
			parts, part = append(parts, part), nil
		}
	}
	if part != nil {
		parts = append(parts, part)
	}
	return parts
}

// draw checks the bounds first, then draws the axes, and each series over the
// ticks.
func (l Line) draw(c canvas) error {
	if len(l.Series) > MaxSeries {
		return fmt.Errorf("%w: %d lines, at most %d", ErrChart, len(l.Series), MaxSeries)
	}
	var least, most Point
	var names []string
	any := false
	for _, s := range l.Series {
		if len(s.Points) > MaxPoints {
			return fmt.Errorf("%w: %d points, at most %d", ErrChart, len(s.Points), MaxPoints)
		}
		names = append(names, s.Name)
		for _, part := range l.usable(s) {
			for _, p := range part {
				if !any {
					least, most, any = p, p, true
				}
				least = Point{min(least.X, p.X), min(least.Y, p.Y)}
				most = Point{max(most.X, p.X), max(most.Y, p.Y)}
			}
		}
	}
	if !any {
		return fmt.Errorf("%w: no points", ErrChart)
	}
	width, height := l.size()
	top := heading(c, width, l.Title, l.Note, names)
	bottom := height - margin - tickSize - 8
	if l.X.Label != "" {
		bottom -= labelSize + 6
	}
	ylo, yhi := l.Y.bounds(least.Y, most.Y, true)
	yticks := l.Y.ticks(ylo, yhi, int((bottom-top)/36))
	widest := 0.0
	for _, t := range yticks {
		widest = max(widest, textWidth(t.Label, tickSize, false))
	}
	leftEdge := margin + widest + 8
	if l.Y.Label != "" {
		leftEdge += labelSize + 6
	}
	rightEdge := width - margin - 20 // the last tick's label stands half outside
	if rightEdge-leftEdge < 20 || bottom-top < 20 {
		return fmt.Errorf("%w: %.0f by %.0f pixels leave no room", ErrChart, width, height)
	}
	xlo, xhi := l.X.bounds(least.X, most.X, false)
	x := scale{l.X.Log, xlo, xhi, leftEdge, rightEdge}
	y := scale{l.Y.Log, ylo, yhi, bottom, top}

	for _, t := range yticks {
		at := y.at(t.At)
		c.rule(xy{leftEdge, at}, xy{rightEdge, at}, false)
		c.text(xy{leftEdge - 6, at + tickSize*0.35}, t.Label, textStyle{size: tickSize, align: right, faint: true})
	}
	for _, t := range l.X.ticks(xlo, xhi, int((rightEdge-leftEdge)/70)) {
		at := x.at(t.At)
		c.rule(xy{at, top}, xy{at, bottom}, false)
		c.text(xy{at, bottom + tickSize + 5}, t.Label, textStyle{size: tickSize, align: middle, faint: true})
	}
	c.rule(xy{leftEdge, bottom}, xy{rightEdge, bottom}, true)
	c.rule(xy{leftEdge, top}, xy{leftEdge, bottom}, true)
	c.text(xy{(leftEdge + rightEdge) / 2, height - margin}, l.X.Label, textStyle{size: labelSize, align: middle})
	c.text(xy{margin + labelSize*0.8, (top + bottom) / 2}, l.Y.Label, textStyle{size: labelSize, align: middle, up: true})

	for i, s := range l.Series {
		for _, part := range l.usable(s) {
			points := make([]xy, len(part))
			for j, p := range part {
				points[j] = xy{x.at(p.X), clamp(y.at(p.Y), top, bottom)}
			}
			if len(points) == 1 { // a point alone is a short dash
				points = []xy{{points[0].x - 3, points[0].y}, {points[0].x + 3, points[0].y}}
			}
			c.line(points, 2, i)
		}
	}
	return nil
}

func clamp(v, lo, hi float64) float64 { return min(max(v, lo), hi) }
