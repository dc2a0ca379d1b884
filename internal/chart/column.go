package chart

import "fmt"

// A Chart is one that can be part of a Column.
type Chart interface {
	figure
	SVG() ([]byte, error)
}

// A Column is charts of one picture, one below the other.
type Column []Chart

// SVG draws the charts. It fails with ErrChart.
func (col Column) SVG() ([]byte, error) { return svgOf(col) }

func (col Column) size() (width, height float64) {
	for _, c := range col {
		w, h := c.size()
		width, height = max(width, w), height+h
	}
	return width, height
}

// draw draws each chart below the one before it.
func (col Column) draw(c canvas) error {
	if len(col) == 0 {
		return fmt.Errorf("%w: an empty column", ErrChart)
	}
	down := 0.0
	for _, part := range col {
		if err := part.draw(shifted{c, down}); err != nil {
			return err
		}
		_, h := part.size()
		down += h
	}
	return nil
}

// shifted is a part of a canvas, by so many pixels further down.
type shifted struct {
	c    canvas
	down float64
}

func (s shifted) at(p xy) xy { return xy{p.x, p.y + s.down} }

func (s shifted) line(points []xy, width float64, color int) {
	moved := make([]xy, len(points))
	for i, p := range points {
		moved[i] = s.at(p)
	}
	s.c.line(moved, width, color)
}

func (s shifted) rule(a, b xy, strong bool)             { s.c.rule(s.at(a), s.at(b), strong) }
func (s shifted) rect(a, b xy, color int)               { s.c.rect(s.at(a), s.at(b), color) }
func (s shifted) text(at xy, t string, style textStyle) { s.c.text(s.at(at), t, style) }
