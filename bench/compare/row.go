package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/report"
	"github.com/rdmakv/rdmakv/bench/compare/servers"
)

// A row is a question and the contenders that are asked.
type row struct {
	report.Row
	// once: more rounds would bring the same figure, or take too long.
	once  bool
	needs uint64 // bytes of memory, where they are more than a usual machine has
	asked []contender
}

// A contender is one way of asking one system.
type contender struct {
	report.Contender
	group   string // what targets call it by, with others
	client  kind
	measure func(context.Context, *rig) (report.Sample, error)
}

// A kind says how a contender is counted.
type kind uint8

const (
	// usual clients wait as clients do: targets against a group are against these.
	usual kind = iota
	// spinning clients exist in this benchmark only; their ratios stand in a table of
	// their own
	spinning
	// pinned ones are compared with others that are pinned alike.
	pinned
)

// newRow begins a row.
func newRow(name, title, text string, f report.Figure) *row {
	return &row{Row: report.Row{Name: name, Title: title, Text: text, Figure: f}}
}

// Figures of rows.
func p50() report.Figure  { return report.Figure{Name: "p50", Unit: "µs"} }
func rate() report.Figure { return report.Figure{Name: "rate", Unit: "/s", More: true} }
func cpu() report.Figure  { return report.Figure{Name: "server_cpu_us", Unit: "µs"} }

// leaderCPU is the processor time of the node that leads all others, or is alone, and
// followerShare that of another one as a share of it.
func leaderCPU() report.Figure { return report.Figure{Name: "leader_cpu_us", Unit: "µs"} }
func followerShare() report.Figure {
	return report.Figure{Name: "follower_share", Unit: "of the leader's"}
}

// add adds a contender.
func (r *row) add(cs ...contender) *row {
	for _, c := range cs {
		r.asked = append(r.asked, c)
		r.Contenders = append(r.Contenders, c.Contender)
	}
	return r
}

// group names the contenders of groups, separated by commas.
func (r *row) group(groups string, of kind) (names []string) {
	wanted := strings.Split(groups, ",")
	for _, c := range r.asked {
		if slices.Contains(wanted, c.group) && c.client == of {
			names = append(names, c.Name)
		}
	}
	if names == nil {
		return []string{"nobody of " + groups} // which Check finds
	}
	return names
}

// target holds ours to a limit, against the best usual client of groups; ""
// is the figure alone.
func (r *row) target(text, ours, group, want string, limit float64) *row {
	t := report.Target{Text: text, Ours: ours, Want: want, Limit: limit}
	if group != "" {
		t.Theirs = r.group(group, usual)
	}
	r.Targets = append(r.Targets, t)
	return r
}

// versus holds ours to a limit against one contender.
func (r *row) versus(text, ours, theirs, want string, limit float64) *row {
	r.Targets = append(r.Targets, report.Target{Text: text, Ours: ours, Theirs: []string{theirs}, Want: want, Limit: limit})
	return r
}

// spun adds a ratio that is no target: against the clients of a group that spin.
func (r *row) spun(text, ours, group, want string, limit float64) *row {
	r.Targets = append(r.Targets, report.Target{Text: text, Ours: ours, Theirs: r.group(group, spinning), Want: want, Limit: limit, Aside: true})
	return r
}

// aside tells one against the usual clients of a group.
func (r *row) aside(text, ours, group, want string, limit float64) *row {
	return r.target(text, ours, group, want, limit).beside()
}

// beside turns the target that was added last into a ratio that is only shown.
func (r *row) beside() *row {
	r.Targets[len(r.Targets)-1].Aside = true
	return r
}

// of makes the target that was added last one of another figure of the same turns.
func (r *row) of(f report.Figure) *row {
	r.Targets[len(r.Targets)-1].Figure = &f
	return r
}

// headline has README's table show the target that was added last, in a line that begins so.
func (r *row) headline(text string) *row {
	r.Targets[len(r.Targets)-1].Headline = text
	return r
}

// warm is how long a load runs before it is measured: long enough that a location
// cache is as full as it gets.
func warm(o options) time.Duration {
	if o.quick {
		return o.slice / 4
	}
	return max(o.slice/4, 250*time.Millisecond)
}

// placements are two ways to put two processes onto cores: both on one, and one on
// each. Where there is only one core, the latter fails.
func placements() []pins {
	cores := append(servers.Cores(), servers.NoCore, servers.NoCore)
	return []pins{{true, cores[0], cores[0]}, {true, cores[0], cores[1]}}
}

// turnLimit bounds a turn beside what it measures.
const turnLimit = 60 * time.Second
