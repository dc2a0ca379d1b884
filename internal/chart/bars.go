package chart

import "fmt"

// A Bar is one value, with the least and the most that was measured; both are 0 if
// there is no spread. A value that is not positive gives no bar.
type Bar struct {
	Value     float64
	Low, High float64
	Text      string // beside the bar; default Number(Value)
}

// A Row is one thing that is compared: a bar for each series.
type Row struct {
	Label string
	Bars  []Bar
}

// Bars is a chart of horizontal bars, which leave room for long names.
type Bars struct {
	Title, Note string
	Value       Axis
	Series      []string // names; with one there is no legend
	Rows        []Row
	Width       float64 // pixels; default 720. The height is as needed.
	// OneBar says that a row has a bar of one series only, and is only as high as
	// that bar: the series are kinds of rows.
	OneBar bool
}

// SVG draws the chart. It fails with ErrChart.
func (b Bars) SVG() ([]byte, error) { return svgOf(b) }

const (
	barHeight = 15.0
	barGap    = 2.0
	rowGap    = 10.0
)

func (b Bars) rowHeight() float64 {
	if b.OneBar {
		return barHeight + rowGap
	}
	return float64(max(len(b.Series), 1))*(barHeight+barGap) + rowGap
}

func (b Bars) size() (width, height float64) {
	width = orDefault(b.Width, 720)
	top := heading(nowhere{}, width, b.Title, b.Note, b.Series)
	height = top + float64(len(b.Rows))*b.rowHeight() + tickSize + 8 + margin
	if b.Value.Label != "" {
		height += labelSize + 8
	}
	return width, height
}

// text is what stands beside a bar.
func (bar Bar) text() string {
	if bar.Text != "" {
		return bar.Text
	}
	return Number(bar.Value)
}

// draw checks the bounds first, then draws the axis, and each row with its label,
// its bars and their spreads.
func (b Bars) draw(c canvas) error {
	switch {
	case len(b.Series) > MaxSeries:
		return fmt.Errorf("%w: %d series, at most %d", ErrChart, len(b.Series), MaxSeries)
	case len(b.Rows) == 0 || len(b.Rows) > MaxRows:
		return fmt.Errorf("%w: %d rows, want 1 to %d", ErrChart, len(b.Rows), MaxRows)
	}
	least, most, widest, widestText := 0.0, 0.0, 0.0, 0.0
	for _, r := range b.Rows {
		if len(r.Bars) > max(len(b.Series), 1) {
			return fmt.Errorf("%w: row %q has %d bars for %d series", ErrChart, r.Label, len(r.Bars), len(b.Series))
		}
		widest = max(widest, textWidth(r.Label, labelSize, false))
		for _, bar := range r.Bars {
			if !b.shown(bar) {
				continue
			}
			low, high := min(bar.Value, orDefault(bar.Low, bar.Value)), max(bar.Value, bar.High)
			if most == 0 {
				least = low
			}
			least, most = min(least, low), max(most, high)
			widestText = max(widestText, textWidth(bar.text(), tickSize, false))
		}
	}
	if most == 0 {
		return fmt.Errorf("%w: no bars", ErrChart)
	}
	width, height := b.size()
	top := heading(c, width, b.Title, b.Note, b.Series)
	bottom := top + float64(len(b.Rows))*b.rowHeight()
	leftEdge := margin + min(widest, width*0.6) + 8
	rightEdge := width - margin - widestText - 8
	if rightEdge-leftEdge < 20 {
		return fmt.Errorf("%w: %.0f pixels leave no room", ErrChart, width)
	}
	lo, hi := b.Value.bounds(least, most, true)
	if b.Value.Log && b.Value.Max <= b.Value.Min {
		lo = least / 2 // so that the smallest one is a bar, too
	}
	x := scale{b.Value.Log, lo, hi, leftEdge, rightEdge}
	for _, t := range b.Value.ticks(lo, hi, int((rightEdge-leftEdge)/60)) {
		at := x.at(t.At)
		c.rule(xy{at, top}, xy{at, bottom}, false)
		c.text(xy{at, bottom + tickSize + 5}, t.Label, textStyle{size: tickSize, align: middle, faint: true})
	}
	c.rule(xy{leftEdge, top}, xy{leftEdge, bottom}, true)
	c.text(xy{(leftEdge + rightEdge) / 2, height - margin}, b.Value.Label, textStyle{size: labelSize, align: middle})
	for i, r := range b.Rows {
		y := top + float64(i)*b.rowHeight() + rowGap/2
		c.text(xy{leftEdge - 6, y + (b.rowHeight()-rowGap)/2 + labelSize*0.35}, r.Label, textStyle{size: labelSize, align: right})
		for j, bar := range r.Bars {
			if b.shown(bar) {
				at := y + float64(j)*(barHeight+barGap)
				if b.OneBar {
					at = y
				}
				b.drawBar(c, x, bar, at, j)
			}
		}
	}
	return nil
}

func (b Bars) shown(bar Bar) bool { return b.Value.usable(bar.Value) && bar.Value > 0 }

// drawBar draws one bar with its spread and its text.
func (b Bars) drawBar(c canvas, x scale, bar Bar, y float64, color int) {
	end := clamp(x.at(bar.Value), x.from, x.to)
	c.rect(xy{x.from, y}, xy{max(end, x.from+1), y + barHeight}, color)
	if bar.Low > 0 && bar.High >= bar.Low {
		low, high := clamp(x.at(bar.Low), x.from, x.to), clamp(x.at(bar.High), x.from, x.to)
		mid := y + barHeight/2
		c.rule(xy{low, mid}, xy{high, mid}, true)
		c.rule(xy{low, mid - 3}, xy{low, mid + 3}, true)
		c.rule(xy{high, mid - 3}, xy{high, mid + 3}, true)
		end = max(end, high)
	}
	c.text(xy{end + 5, y + barHeight/2 + tickSize*0.35}, bar.text(), textStyle{size: tickSize})
}

// nowhere is a canvas for callers that only ask how much room is taken.
type nowhere struct{}

func (nowhere) line([]xy, float64, int)    {}
func (nowhere) rule(xy, xy, bool)          {}
func (nowhere) rect(xy, xy, int)           {}
func (nowhere) text(xy, string, textStyle) {}
