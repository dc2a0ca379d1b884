package chart

import "testing"

// TestOneBar: rows of one bar each, of different series, take no room for the
// others.
func TestOneBar(t *testing.T) {
	b := Bars{
		Series: []string{"a", "b", "c"},
		Rows:   []Row{{"x", []Bar{{Value: 1}, {}, {}}}, {"y", []Bar{{}, {}, {Value: 2}}}},
	}
	_, wide := b.size()
	b.OneBar = true
	_, low := b.size()
	if saved := wide - low; saved < 2*2*barHeight {
		t.Errorf("%.0f pixels are saved by rows of one bar", saved)
	}
	if _, err := b.SVG(); err != nil {
		t.Error(err)
	}
}
