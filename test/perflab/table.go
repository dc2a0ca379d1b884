package perflab

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Row compares two figures, each measured once in every round.
type Row struct {
	Name      string    `json:"name"`
	Unit      string    `json:"unit"`
	Ours      []float64 `json:"ours"` // one for each round
	Yardstick string    `json:"yardstick"`
	Theirs    []float64 `json:"theirs"`
	// Ratio is that of the medians.
	OursMedian   float64 `json:"ours_median"`
	TheirsMedian float64 `json:"theirs_median"`
	Ratio        float64 `json:"ratio"`
	// RatioMedian is the median of the rounds' ratios: each is of two figures
	// measured within seconds.
	RatioMedian float64 `json:"ratio_median"`
	Goal        float64 `json:"goal,omitempty"`     // 0: none
	AtLeast     bool    `json:"at_least,omitempty"` // the goal is a lower bound
	Met         bool    `json:"met"`
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

// judge fills in what follows from the measurements. Both lists have one entry
// for each round.
func (r *Row) judge() {
	r.OursMedian, r.TheirsMedian = median(r.Ours), median(r.Theirs)
	r.Ratio = r.OursMedian / r.TheirsMedian
	ratios := make([]float64, len(r.Ours))
	for i := range ratios {
		ratios[i] = r.Ours[i] / r.Theirs[i]
	}
	r.RatioMedian = median(ratios)
	r.Met = r.Goal == 0 || r.Ratio <= r.Goal && !r.AtLeast || r.Ratio >= r.Goal && r.AtLeast
}

// text is the rows as a table.
func text(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tours\tperftest\tratio\tof rounds\tgoal\t\n")
	for _, r := range rows {
		goal, met := "", ""
		if r.Goal != 0 {
			goal, met = fmt.Sprintf("<= %.2f", r.Goal), "met"
			if r.AtLeast {
				goal = fmt.Sprintf(">= %.2f", r.Goal)
			}
			if !r.Met {
				met = "MISSED"
			}
		}
		fmt.Fprintf(w, "%s\t%.1f %s\t%.1f %s\t%.2f\t%.2f\t%s\t%s\n", r.Name, r.OursMedian, r.Unit, r.TheirsMedian, r.Yardstick, r.Ratio, r.RatioMedian, goal, met)
	}
	_ = w.Flush() // into memory
	return b.String()
}
