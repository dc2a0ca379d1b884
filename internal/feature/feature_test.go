package feature

import (
	"errors"
	"slices"
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
	if Of(0) != (Forms{1, 1}) || Of(1) != (Forms{2, 2}) {
		t.Errorf("level 0 has %+v written, and the program before levels reads nothing but 1; level 1 has %+v", Of(0), Of(1))
	}
	if newest := Here().Newest; Of(newest+1) != Of(newest) || Of(255) != Of(newest) {
		t.Errorf("a level behind the newest has %+v written, that one %+v", Of(newest+1), Of(newest))
	}
	if Here().Oldest+1 < Here().Newest {
		t.Errorf("the program reads %v: a release that is two behind has no business here", Here())
	}
	for l := Here().Oldest; l < Here().Newest; l++ {
		was, is := Of(l), Of(l+1)
		if is.State < was.State || is.Node < was.Node || is == was {
			t.Errorf("level %d has %+v written, level %d %+v", l, was, l+1, is)
		}
	}
}

// TestAllows: a form may be written from its level on, and one that the table does not have never; the error says what to do. No form is there twice, and none needs more than this program's newest level.
func TestAllows(t *testing.T) {
	for _, c := range []struct {
		level  Level
		family Family
		form   int
		needs  Level // 0: it is allowed
	}{
		{0, ShardMap, 3, 0}, {0, ShardMap, 4, 0}, {0, Question, 4, 0}, {0, Question, 5, 1}, {0, Document, 26, 0}, {0, MetaState, 1, 0}, {1, MetaState, 1, 0}, {1, MetaState, 2, 0}, {0, MetaState, 2, 1}, {0, NodeFile, 2, 1},
		{0, ShardMap, 0, 255}, {1, ShardMap, 33, 255}, {1, ShardMap, 6, 255}, {254, ShardMap, 6, 255}, {255, ShardMap, 6, 255}, {254, EngineEntry, 77, 255}, {0, "nothing", 1, 255},
	} {
		err := Allows(c.level, c.family, c.form)
		n := (*NeedsError)(nil)
		if (err == nil) != (c.needs == 0) || err != nil && (!errors.Is(err, ErrNeeds) || !errors.As(err, &n) || n.Needs != c.needs) {
			t.Errorf("%s %d at level %d: %v, want %d", c.family, c.form, c.level, err, c.needs)
		}
	}
	if err := Allows(0, MetaState, 2); err == nil || !strings.Contains(err.Error(), "state of the meta group 2 needs level 1, and the cluster is at level 0: start every node with a newer program") {
		t.Errorf("%v", err)
	}
	if err := Allows(254, ShardMap, 6); err == nil || !strings.Contains(err.Error(), "no cluster may have shard map 6 with this program: use a newer one") {
		t.Errorf("%v", err)
	}
	// Nothing but these is there before what it is for.
	waits := []Form{
		{ShardMap, "6", NoLevel, "spaces of tenants with groups of their own: nodes do not run these yet"},
		{ReportField, "space", NoLevel, "replicas that were kept of groups of spaces"},
	}
	seen := map[string]bool{}
	for _, f := range All() {
		if f.Level > Here().Newest && !slices.Contains(waits, f) || (f.Why == "") != (f.Level == 0) {
			t.Errorf("%+v", f)
		}
		for _, which := range strings.Fields(f.Which) {
			if at := string(f.Family) + " " + which; seen[at] {
				t.Errorf("%s stands there twice", at)
			} else {
				seen[at] = true
			}
		}
	}
}
