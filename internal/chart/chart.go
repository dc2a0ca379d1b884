package chart

import (
	"errors"
	"math"
)

// Bounds of a chart.
const (
	MaxSeries = 8 // that can be told apart
	MaxPoints = 100_000
	MaxRows   = 100
	maxSide   = 8192 // pixels
)

// ErrChart: a chart has nothing to show, or too much.
var ErrChart = errors.New("cannot draw the chart")

// An Axis is one of the two.
type Axis struct {
	Label string // with the unit: "latency (µs)"
	Log   bool   // logarithmic; values that are not positive are left out
	// Ticks, if any, replace those that are chosen by themselves.
	Ticks []Tick
	// Min and Max, if Max is above Min, replace the bounds of the data.
	Min, Max float64
}

// A Tick is a mark at an axis.
type Tick struct {
	At    float64
	Label string
}

// A canvas is what a chart is drawn on, in pixels from the top left.
type canvas interface {
	// line draws through the points, in a colour of the palette.
	line(points []xy, width float64, color int)
	// rule draws a thin straight line, of the grid or of an axis.
	rule(a, b xy, strong bool)
	// rect fills a rectangle in a colour of the palette.
	rect(a, b xy, color int)
	text(at xy, s string, style textStyle)
}

// xy is a place on a canvas.
type xy struct{ x, y float64 }

// A textStyle says how a text is written.
type textStyle struct {
	size  float64 // pixels
	align align
	bold  bool
	faint bool
	up    bool // from bottom to top
}

type align uint8

const (
	left align = iota
	middle
	right
)

// Sizes of letters, in pixels.
const (
	titleSize = 16.0
	noteSize  = 12.0
	labelSize = 12.0
	tickSize  = 11.0
)

// palette are the colours of series: Okabe and Ito's, those that can be seen on
// white and on black.
var palette = [MaxSeries]uint32{0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x8c6d31, 0x808080}

// A figure is a chart of either kind.
type figure interface {
	size() (width, height float64)
	draw(c canvas) error
}

func svgOf(f figure) ([]byte, error) {
	w, h := f.size()
	c := newSVG(w, h)
	if err := f.draw(c); err != nil {
		return nil, err
	}
	return c.bytes(), nil
}

// heading draws title, note and, where there is more than one series, a legend.
// It returns the height that is taken.
func heading(c canvas, width float64, title, note string, names []string) float64 {
	y := margin
	if title != "" {
		for _, line := range wrap(title, width-2*margin, titleSize, true) {
			y += titleSize
			c.text(xy{margin, y}, line, textStyle{size: titleSize, bold: true})
			y += 4
		}
	}
	if note != "" {
		for _, line := range wrap(note, width-2*margin, noteSize, false) {
			y += noteSize
			c.text(xy{margin, y}, line, textStyle{size: noteSize, faint: true})
			y += 4
		}
	}
	if len(names) > 1 {
		y += 6 + labelSize
		x := margin
		for i, name := range names {
			w := 18 + textWidth(name, labelSize, false) + 16
			if x+w > width-margin && x > margin {
				x, y = margin, y+labelSize+6
			}
			c.rect(xy{x, y - labelSize + 2}, xy{x + 12, y + 1}, i)
			c.text(xy{x + 18, y}, name, textStyle{size: labelSize})
			x += w
		}
		y += 4
	}
	return y + 8
}

const margin = 14.0

// A scale maps values to pixels.
type scale struct {
	log      bool
	min, max float64 // of the values
	from, to float64 // pixels
}

func (s scale) at(v float64) float64 {
	lo, hi := s.min, s.max
	if s.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// bounds returns the bounds of an axis for those of the data. A linear axis of
// values begins with zero, because an axis that does not shows differences
// larger than they are.
func (a Axis) bounds(least, most float64, zero bool) (lo, hi float64) {
	if a.Max > a.Min && !(a.Log && a.Min <= 0) {
		return a.Min, a.Max
	}
	lo, hi = least, most
	switch {
	case a.Log:
		lo, hi = lo/1.15, hi*1.15
	case zero && lo >= 0:
		lo, hi = 0, hi*1.05
	}
	if !(hi > lo) {
		if a.Log {
			return lo / 2, lo * 2
		}
		return lo, lo + 1
	}
	return lo, hi
}

// usable reports whether a value can be shown on the axis.
func (a Axis) usable(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}
