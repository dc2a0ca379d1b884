package feature

import (
	"errors"
	"strings"
	"testing"
)

// TestCheck is the table of which program may be part of which cluster.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		level Level
		reads Range
		words string // "": it may
	}{
		{0, Range{}, ""},
		{0, Range{0, 1}, ""},
		{1, Range{0, 1}, ""},
		{2, Range{1, 2}, ""},
		{1, Range{}, "at level 1, and this program reads level 0 alone: start this node with a newer program"},
		{2, Range{0, 1}, "at level 2, and this program reads levels 0 to 1: start this node with a newer program"},
		{0, Range{1, 2}, "at level 0, and this program reads levels 1 to 2: start this node with an older program"},
	} {
		err := c.reads.Check(c.level)
		if (err == nil) != (c.words == "") || err != nil && (!errors.Is(err, ErrUnread) || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("level %d, a program of %v: %v, want %q", c.level, c.reads, err, c.words)
		}
	}
}

// TestForms: what is written at level 0 is what the program before levels wrote, and no form falls from a level to the next one.
func TestForms(t *testing.T) {
	if Of(0) != (Forms{1, 1, 1}) {
		t.Errorf("level 0 has %+v written, which the program before levels does not read", Of(0))
	}
	if Here().Oldest+1 < Here().Newest {
		t.Errorf("the program reads %v: a release that is two behind has no business here", Here())
	}
	for l := Here().Oldest; l < Here().Newest; l++ {
		was, is := Of(l), Of(l+1)
		if is.State < was.State || is.Question < was.Question || is.Node < was.Node || is == was {
			t.Errorf("level %d has %+v written, level %d %+v", l, was, l+1, is)
		}
	}
}
