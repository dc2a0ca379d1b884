package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Judge judges all rows, those of what was counted among them.
func (r *Result) Judge() {
	for i := range r.Rows {
		r.Rows[i].Judge()
	}
	if r.Counted != nil {
		for i := range r.Counted.Rows {
			r.Counted.Rows[i].Judge()
		}
	}
}

// Judge fills in the summaries and whether the targets were reached. It may be
// called again after more rounds.
func (row *Row) Judge() {
	for i := range row.Contenders {
		c := &row.Contenders[i]
		c.Summary = c.summary(row.Figure)
	}
	for i := range row.Targets {
		row.judge(&row.Targets[i])
	}
}

func (c *Contender) summary(f Figure) *Summary {
	return Summarize(slices.Collect(maps.Values(c.by(f))))
}

// of is the figure that a target is about: its own, or else the row's.
func (t *Target) of(row *Row) Figure {
	if t.Figure != nil {
		return *t.Figure
	}
	return row.Figure
}

// judge fills in one target: the ratio to the best of its peers, and whether it is
// reached. A target that cannot be measured says why.
func (row *Row) judge(t *Target) {
	t.Against, t.Ratio, t.Reached, t.Because = "", nil, NotMeasured, ""
	ours := row.contender(t.Ours)
	if ours == nil {
		t.Because = fmt.Sprintf("%s was left out", t.Ours)
		return
	}
	figure := t.of(row)
	own := ours.summary(figure)
	if own == nil {
		t.Because = ours.failure(row)
		return
	}
	if len(t.Theirs) == 0 {
		t.Ratio = own
	} else {
		best := row.best(figure, t.Theirs)
		if best == nil {
			t.Because = row.failures(t.Theirs)
			return
		}
		t.Against = best.Name
		if t.Ratio = Summarize(ratios(figure, ours, best)); t.Ratio == nil {
			t.Because = fmt.Sprintf("no round in which both %s and %s were measured", ours.Name, best.Name)
			return
		}
	}
	t.Reached = No
	if t.Want == AtMost && t.Ratio.Median <= t.Limit || t.Want == AtLeast && t.Ratio.Median >= t.Limit {
		t.Reached = Yes
	}
}

// best is the contender of names whose median of a figure is best, nil if none has one.
func (row *Row) best(f Figure, names []string) *Contender {
	var best *Contender
	var median float64
	for _, name := range names {
		c := row.contender(name)
		if c == nil {
			continue
		}
		if s := c.summary(f); s != nil && (best == nil || f.better(s.Median, median)) {
			best, median = c, s.Median
		}
	}
	return best
}

func (row *Row) contender(name string) *Contender {
	for i := range row.Contenders {
		if row.Contenders[i].Name == name {
			return &row.Contenders[i]
		}
	}
	return nil
}

// failure says why a contender has no figure.
func (c *Contender) failure(row *Row) string {
	for _, r := range c.Rounds {
		if r.Error != "" {
			return c.Name + ": " + r.Error
		}
	}
	if row.Error != "" {
		return row.Error
	}
	return c.Name + " was not measured"
}

// failures says why none of names has a figure.
func (row *Row) failures(names []string) string {
	var why []string
	for _, name := range names {
		if c := row.contender(name); c != nil {
			why = append(why, c.failure(row))
		} else {
			why = append(why, name+" was left out")
		}
	}
	return strings.Join(why, "; ")
}

// Check finds targets that name contenders the row does not have, which would
// make them unmeasurable for ever, and contenders of the same name.
func (row *Row) Check() error {
	seen := make(map[string]bool)
	for _, c := range row.Contenders {
		if seen[c.Name] {
			return fmt.Errorf("row %s has two contenders %q", row.Name, c.Name)
		}
		seen[c.Name] = true
	}
	for _, t := range row.Targets {
		for _, name := range append([]string{t.Ours}, t.Theirs...) {
			if !seen[name] {
				return fmt.Errorf("row %s: target %q is about %q, which is no contender", row.Name, t.Text, name)
			}
		}
		if t.Want != AtMost && t.Want != AtLeast {
			return fmt.Errorf("row %s: target %q wants %q", row.Name, t.Text, t.Want)
		}
	}
	return nil
}
