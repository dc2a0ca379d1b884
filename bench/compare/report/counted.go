package report

import (
	"fmt"
	"strconv"
	"time"
)

// A Counted is what was counted in a guest whose clock advances by 1 ns with each
// instruction: those of the program and of its libraries, of the peer, and of the
// kernel, on one processor.
type Counted struct {
	Started  time.Time `json:"started"`
	Rounds   int       `json:"rounds"`
	Calls    int       `json:"calls"` // of one turn of a get or a put; ten times as many in batches
	Quick    bool      `json:"quick"` // shortened: the figures are a test of the program only
	Seed     uint64    `json:"seed"`  // of the orders
	Versions []Version `json:"versions"`
	// Rows have no times. Their figure is Instructions, or a rate, which is of 10⁹
	// instructions; each sample has Instructions.
	Rows []Row `json:"rows"`
}

// Instructions is the figure of what one operation takes.
var Instructions = Figure{Name: "instructions", Unit: "instructions"}

// Counting makes instructions of a sample's times, which a clock has measured that
// advances by 1 ns with each. Calls one at a time have the median; of a rate, which
// stays, it is the mean. Other times are left out.
func (s Sample) Counting() Sample {
	c := Sample{Ops: s.Ops, Paths: s.Paths}
	switch {
	case s.P50 > 0:
		c.Instructions = s.P50 * 1e3
	case s.Rate > 0:
		c.Rate, c.Instructions = s.Rate, 1e9/s.Rate
	}
	return c
}

// instructions are those of an operation, for a table.
func (c *Contender) instructions(r *Row) string {
	if c.Summary == nil {
		return "failed: " + cell(c.failure(r))
	}
	s := c.summary(Instructions)
	if s == nil {
		return "-"
	}
	return thousands(strconv.FormatFloat(s.Median, 'f', 0, 64))
}

// counted is the part of the page on the instructions.
func (p *page) counted(c *Counted) {
	p.say("## Soft-RoCE: instructions, counted\n")
	if c.Quick {
		p.say("**Shortened run: these figures test the program, not the machine.**\n")
	}
	p.say("`COUNT=only make lab-bench` counts what an operation takes in a guest with one processor, whose clock advances by 1 ns with")
	p.say("each instruction (QEMU, `-icount`); on %s. How busy the host is does not matter. Rounds of a get differ by less than", c.Started.Format("2 January 2006"))
	p.say("a percent; those of batches, of a put, of ib_read_bw, and of ib_read_lat for 4 KiB, differ by a tenth or more in some runs, so their")
	p.say("medians count. All that runs until the answer is there counts: the caller, its libraries, the kernel, which does both ends of a")
	p.say("READ in software, and, for a put, the server. Instructions are not time: cache misses do not count, and a card does what")
	p.say("the kernel does here. Medians of %d rounds of %d calls, seed %d; a ratio is the median of those within rounds.\n", c.Rounds, c.Calls, c.Seed)
	p.say("| operation | rdmakv | perftest | target | measured | reached |")
	p.say("|---|---|---|---|---|---|")
	yes, all := 0, 0
	for i := range c.Rows {
		r := &c.Rows[i]
		ours, theirs := "-", "-"
		for j := range r.Contenders {
			if x := &r.Contenders[j]; x.Kind == Ours {
				ours = x.instructions(r)
			} else {
				theirs = fmt.Sprintf("%s (%s)", x.instructions(r), cell(x.How))
			}
		}
		what := fmt.Sprintf("%s: %s", cell(r.Title), cell(r.Text))
		if len(r.Targets) == 0 {
			p.say("| %s | %s | %s | | | |", what, ours, theirs)
		}
		for j := range r.Targets {
			t := &r.Targets[j]
			p.say("| %s | %s | %s | %s: %s | %s | %s |", what, ours, theirs, cell(t.Text), t.goal(r), t.figure(t.of(r)), t.verdict())
			if all++; t.Reached == Yes {
				yes++
			}
		}
	}
	p.say("\n%d of %d reached.\n", yes, all)
}
