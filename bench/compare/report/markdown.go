package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Page writes docs/benchmarks.md: everything on it follows from the results. That
// of the lab may be nil.
func Page(w io.Writer, res, lab *Result) error {
	p := &page{w: bufio.NewWriter(w), res: res}
	p.head()
	p.summary()
	p.method()
	for i := range res.Rows {
		p.row(&res.Rows[i])
	}
	if lab != nil {
		p.res = lab
		p.guest()
	}
	return p.w.Flush()
}

// guest is what was measured over Soft-RoCE, in a virtual machine: instructions, times,
// or both.
func (p *page) guest() {
	p.say("# In a guest, over Soft-RoCE\n")
	if p.res.Counted != nil {
		p.counted(p.res.Counted)
	}
	if len(p.res.Rows) == 0 {
		return
	}
	if p.res.Counted != nil {
		p.say("## Soft-RoCE: times\n")
	}
	m := p.res.Machine
	p.say("`make lab-bench` boots a virtual machine with the kernel's software RDMA device and measures there, on %s, %d rounds:",
		p.res.Started.Format("2 January 2006"), p.res.Rounds)
	p.say("the data path of `rdma/verbs` beside perftest and Redis. A guest is slower than its host, most of all without KVM:")
	p.say("only ratios within it mean anything. %s, Linux %s, %d cores. All figures: [lab.json](../bench/results/lab.json).\n",
		orDash(m.OS), orDash(m.Kernel), m.Cores)
	p.targets()
	for i := range p.res.Rows {
		p.row(&p.res.Rows[i])
	}
}

type page struct {
	w   *bufio.Writer // keeps the first error for Flush
	res *Result
}

func (p *page) say(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *page) head() {
	res := p.res
	p.say("# Benchmarks\n")
	p.say("<!-- Written by bench/compare; change that, not this. -->\n")
	if res.Quick {
		p.say("**Shortened run: these figures test the program, not the machine.**\n")
	}
	p.say("What rdmakv does beside Redis, memcached, LMDB and etcd on one machine, and what any of them stands on. Everything here was")
	p.say("measured in one run of `make bench-compare` on %s, which took %s; anybody can run it again.",
		res.Started.Format("2 January 2006"), minutes(res.Seconds))
	p.say("The machine is small and virtual: **trust the ratios, not the absolutes.** Every figure of every round is in")
	p.say("[latest.json](../bench/results/latest.json).\n")
	for _, line := range overviewLines(p.res, "") {
		p.say("%s\n", line)
	}
}

func minutes(seconds float64) string {
	if seconds < 90 {
		return fmt.Sprintf("%.0f seconds", seconds)
	}
	return fmt.Sprintf("%.0f minutes", seconds/60)
}

// summary is the table of targets.
func (p *page) summary() {
	p.say("## Targets\n")
	p.say("A ratio is the median of the ratios within rounds, beside it the smallest and the largest. Where a peer was asked in")
	p.say("several ways, the one that was best for it counts.\n")
	p.targets()
}

func (p *page) targets() {
	p.say("| row | target | measured | against | reached |")
	p.say("|---|---|---|---|---|")
	yes, all := 0, 0
	for i := range p.res.Rows {
		r := &p.res.Rows[i]
		for j := range r.Targets {
			t := &r.Targets[j]
			if t.Aside {
				continue
			}
			if all++; t.Reached == Yes {
				yes++
			}
			p.say("| [%s](#%s) | %s | %s | %s | %s |", r.Name, anchor(r.Title), t.Text, t.figure(t.of(r)), orDash(t.Against), t.verdict())
		}
	}
	p.say("\n%d of %d reached.\n", yes, all)
	if !p.asides() {
		return
	}
	p.say("Told for honesty, no targets:\n")
	p.say("| row | comparison | ratio | against |")
	p.say("|---|---|---|---|")
	for i := range p.res.Rows {
		r := &p.res.Rows[i]
		for j := range r.Targets {
			if t := &r.Targets[j]; t.Aside {
				p.say("| [%s](#%s) | %s: %s | %s | %s |", r.Name, anchor(r.Title), t.Ours, t.Text, t.figure(t.of(r)), orDash(t.Against))
			}
		}
	}
	p.say("")
}

// asides says whether there is any.
func (p *page) asides() bool {
	for i := range p.res.Rows {
		for j := range p.res.Rows[i].Targets {
			if p.res.Rows[i].Targets[j].Aside {
				return true
			}
		}
	}
	return false
}

// figure is the ratio or the figure without what it is against.
func (t *Target) figure(f Figure) string {
	switch {
	case t.Ratio == nil:
		return cell(t.Because)
	case len(t.Theirs) == 0:
		return fmt.Sprintf("%s %s (%s)", Number(t.Ratio.Median), f.Unit, spread(t.Ratio))
	}
	return fmt.Sprintf("%s (%s)", Ratio(t.Ratio.Median), ratioSpread(t.Ratio))
}

func (t *Target) verdict() string {
	if t.Reached == Yes {
		return "yes"
	}
	return "**" + string(t.Reached) + "**"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return cell(s)
}

// cell makes a text fit into a table. The text of a failure may contain anything.
func cell(s string) string {
	const most = 300
	s = strings.NewReplacer("\n", " ", "|", "\\|", "<", "&lt;").Replace(s)
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + " ..."
	}
	return s
}

// anchor is the fragment that renderers of Markdown give a heading.
func anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// row is one question with the figures of every contender.
func (p *page) row(r *Row) {
	p.say("## %s\n", r.Title)
	if r.Error != "" {
		p.say("Something went wrong: %s\n", cell(r.Error))
	}
	p.say("%s Row `%s`; the figure is %s in %s, %s is better.\n", r.Text, r.Name, figureWords(r.Figure), r.Figure.Unit, lessOrMore(r.Figure))
	if len(bars(r)) > 0 {
		p.say("![%s](%s)\n", cell(r.Title), pictureName(r))
	}
	p.say("| who | waits | median | min to max | p99, µs | CPU per operation, server + client, µs | how |")
	p.say("|---|---|---|---|---|---|---|")
	for i := range r.Contenders {
		c := &r.Contenders[i]
		if c.Summary == nil {
			p.say("| %s | %s | failed | | | | %s |", c.Name, c.Waiting, cell(c.failure(r)))
			continue
		}
		how := c.How
		if paths := c.paths(); paths != "" {
			how += "; " + paths
		}
		p99 := ""
		if v := c.median(func(s Sample) float64 { return s.P99 }); v > 0 {
			p99 = Number(v)
		}
		p.say("| %s | %s | %s | %s | %s | %s | %s |", strong(c), c.Waiting, Number(c.Summary.Median), spread(c.Summary), p99,
			strings.TrimPrefix(c.cpuText(), "CPU "), cell(how))
	}
	p.say("")
	var failed int
	for i := range r.Contenders {
		for _, round := range r.Contenders[i].Rounds {
			if round.Error != "" {
				failed++
			}
		}
	}
	if failed > 0 {
		p.say("%d turns failed; they are in the JSON.\n", failed)
	}
}

// strong sets off what is ours.
func strong(c *Contender) string {
	if c.Kind == Ours {
		return "**" + c.Name + "**"
	}
	return c.Name
}

func figureWords(f Figure) string {
	switch f.Name {
	case "p50":
		return "the median latency of a call"
	case "rate":
		return "operations per second"
	case "bytes_per_key":
		return "bytes beyond key and value"
	case "resident_per_key":
		return "resident memory per key, its bytes and its value's among them,"
	case "server_cpu_us":
		return "the server's processor time of an operation"
	case "leader_cpu_us":
		return "the leader's processor time of an operation"
	case "follower_share":
		return "a follower's processor time of an operation, of its leader's"
	}
	return f.Name
}

func lessOrMore(f Figure) string {
	if f.More {
		return "more"
	}
	return "less"
}
