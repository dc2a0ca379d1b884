package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The lines of README between which its table stands.
const (
	readmeBegin = "<!-- The table is written by bench/compare, by `make bench-compare`: change that, not this. -->\n"
	readmeEnd   = "<!-- The end of what bench/compare writes. -->\n"
)

// ErrNoPlace: a page lacks the lines between which a program writes its tables.
var ErrNoPlace = errors.New("the page lacks the lines between which tables are written; put them back")

// Headlines says whether any target is for README. Results from before there were such have none.
func (res *Result) Headlines() bool {
	for i := range res.Rows {
		for j := range res.Rows[i].Targets {
			if res.Rows[i].Targets[j].Headline != "" {
				return true
			}
		}
	}
	return false
}

// Readme returns the text of README with the table of these results in the place of the last one.
func Readme(text []byte, res *Result) ([]byte, error) {
	text, err := Between(text, readmeBegin, readmeEnd, func(w io.Writer) error { return readmeTable(w, res) })
	if err != nil {
		return nil, fmt.Errorf("README.md: %w", err)
	}
	return text, nil
}

// Between returns a page with what write writes in the place of what stood between the lines begin
// and end, which stay. It fails with ErrNoPlace, or as write does.
func Between(text []byte, begin, end string, write func(io.Writer) error) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, ErrNoPlace
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(begin)
	if err := write(&b); err != nil {
		return nil, err
	}
	b.WriteString(end)
	b.Write(after)
	return b.Bytes(), nil
}

// readmeTable writes the overviews and one line for each target that has a headline.
func readmeTable(w io.Writer, res *Result) error {
	p := &page{w: bufio.NewWriter(w), res: res}
	virtual := ""
	if res.Machine.Virtual {
		virtual = " of a virtual machine"
	}
	p.say("One run of `make bench-compare` on %s, %d cores%s, medians of %d interleaved rounds; bold",
		res.Started.Format("2 Jan 2006"), res.Machine.Cores, virtual, res.Rounds)
	p.say("figures miss their goal, and lines without a goal are told beside the one above. p99 is that of rdmakv's calls, and")
	p.say("behind the slash that of what the line compares with. Trust the ratios, not the absolutes, and measure your machine by")
	p.say("the same command.\n")
	for _, line := range overviewLines(res, "docs/") {
		p.say("%s\n", line)
	}
	p.say("| | goal | measured | p99, µs |")
	p.say("|---|---|---|---|")
	for i := range res.Rows {
		r := &res.Rows[i]
		for j := range r.Targets {
			if t := &r.Targets[j]; t.Headline != "" {
				p.say("| %s | %s | %s | %s |", t.Headline, t.goal(r), t.short(r), r.tail(t))
			}
		}
	}
	p.say("")
	return p.w.Flush()
}

// goal is the limit, "" for a figure that is only told.
func (t *Target) goal(r *Row) string {
	if t.Aside {
		return ""
	}
	want := "at most "
	if t.Want == AtLeast {
		want = "at least "
	}
	if len(t.Theirs) > 0 {
		return want + strconv.FormatFloat(t.Limit, 'f', -1, 64)
	}
	return want + withUnit(strconv.FormatFloat(t.Limit, 'f', -1, 64), t.Limit, t.of(r))
}

// short is what was measured, without its spread.
func (t *Target) short(r *Row) string {
	s := string(NotMeasured)
	switch {
	case t.Ratio == nil:
	case len(t.Theirs) > 0:
		s = Ratio(t.Ratio.Median)
	default:
		s = withUnit(Number(t.Ratio.Median), t.Ratio.Median, t.of(r))
	}
	if t.Reached != Yes && !t.Aside {
		return "**" + s + "**"
	}
	return s
}

// withUnit puts the unit behind a number, and large ones in millions.
func withUnit(text string, v float64, f Figure) string {
	if v >= 1e6 {
		text = strconv.FormatFloat(v/1e6, 'g', 3, 64) + " M"
	}
	if strings.HasPrefix(f.Unit, "/") {
		return text + f.Unit
	}
	return text + " " + f.Unit
}

// tail is the 99th percentile of the contender that a target is for, and behind a slash that of the
// one that it is compared with, where they have one.
func (r *Row) tail(t *Target) string {
	if t.of(r).tailless() {
		return ""
	}
	ours, theirs := r.contender(t.Ours).p99(), r.contender(t.Against).p99()
	if theirs != "" {
		theirs = " / " + theirs
	}
	return ours + theirs
}

// p99 is the median of the rounds, "" where there is none.
func (c *Contender) p99() string {
	if c == nil || c.Kind == Floor && c.System == "memory" { // whose samples are means of many copies
		return ""
	}
	if v := c.median(func(s Sample) float64 { return s.P99 }); v > 0 {
		return Number(v)
	}
	return ""
}
