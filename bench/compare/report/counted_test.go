package report

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

// counted has a get that reaches its target at the limit, one that misses it, batches that miss,
// a put without a target, and a row in which perftest failed.
func counted() *Counted {
	turns := func(name, kind string, samples ...Sample) Contender {
		c := Contender{Name: name, Kind: kind, How: "how | " + name}
		for i, s := range samples {
			r := Round{Round: i + 1, Order: 1, Sample: s.Counting()}
			if s.P50+s.Rate == 0 {
				r.Error = "no | device"
			}
			c.Rounds = append(c.Rounds, r)
		}
		return c
	}
	lat := func(us float64) Sample { return Sample{Ops: 1000, Seconds: 1, P50: us, P99: us * 9, Rate: 1e6 / us} }
	bw := func(rate float64) Sample { return Sample{Ops: 1000, Seconds: 1, Rate: rate} }
	get := func(name string, theirs Sample, ours ...Sample) Row {
		return Row{
			Name: name, Title: name, Text: "a READ", Figure: Instructions,
			Contenders: []Contender{turns("ib_read_lat", Floor, theirs, theirs, theirs), turns("us", Ours, ours...)},
			Targets:    []Target{{Text: "of ib_read_lat", Ours: "us", Theirs: []string{"ib_read_lat"}, Want: AtMost, Limit: 1.15}},
		}
	}
	c := &Counted{
		Started: time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC), Rounds: 3, Calls: 1000, Seed: 7,
		Rows: []Row{
			get("reached", lat(20), lat(23), lat(23), lat(29)),
			get("missed", lat(20), lat(23.01), lat(23.01), lat(23.02)),
			{
				Name: "batch", Title: "batch", Text: "READs", Figure: Figure{Name: "rate", Unit: "per 10⁹ instructions", More: true},
				Contenders: []Contender{turns("ib_read_bw", Floor, bw(80000)), turns("us", Ours, bw(64000))},
				Targets:    []Target{{Text: "of ib_read_bw", Ours: "us", Theirs: []string{"ib_read_bw"}, Want: AtLeast, Limit: 1}},
			},
			{Name: "put", Title: "put", Text: "both ends", Figure: Instructions, Contenders: []Contender{turns("us", Ours, lat(163.5))}},
			get("broken", Sample{}, lat(20)),
		},
	}
	(&Result{Counted: c}).Judge()
	return c
}

// TestCounting: by a clock of 1 ns an instruction a median in microseconds is thousands of
// them, and a rate is of 10⁹. Times do not stay: nobody shall take them for such.
func TestCounting(t *testing.T) {
	paths := map[string]float64{"reads per get": 1}
	for _, c := range []struct{ in, want Sample }{
		{Sample{Ops: 5, Seconds: 2, P50: 18.45, P90: 19, P99: 20, P999: 21, Max: 22, Rate: 54000, Paths: paths}, Sample{Ops: 5, Instructions: 18450, Paths: paths}},
		{Sample{Ops: 64, Seconds: 2, Rate: 80000}, Sample{Ops: 64, Rate: 80000, Instructions: 12500}},
		{Sample{}, Sample{}},
		{Sample{P50: -1, Rate: -1}, Sample{}},
	} {
		if got := c.in.Counting(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v is %+v, want %+v", c.in, got, c.want)
		}
	}
}

// TestCounts: targets of counts are judged as those of times, and the page has a line for each
// operation: what it takes, what perftest takes, and whether the target is reached.
func TestCounts(t *testing.T) {
	lab := &Result{Schema: Schema, Counted: counted()}
	var file, b bytes.Buffer
	if err := lab.WriteJSON(&file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"counted"`, `"instructions": 18450`, `"instructions": 23000`, `"reached": "yes"`, `"calls": 1000`} {
		if want := name != `"instructions": 18450`; strings.Contains(file.String(), name) != want {
			t.Errorf("%s in the JSON: %t", name, !want)
		}
	}
	read, err := ReadJSON(&file)
	if err != nil || !reflect.DeepEqual(read, lab) {
		t.Fatalf("read back: %v\n%+v", err, read)
	}
	if err := Page(&b, result(), read); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"# In a guest, over Soft-RoCE", "on 27 November 2026", "3 rounds of 1000 calls, seed 7",
		"| reached: a READ | 23,000 | 20,000 (how \\| ib_read_lat) | of ib_read_lat: at most 1.15 | 1.15 (1.15 to 1.45) | yes |\n",
		"| missed: a READ | 23,010 | 20,000 (how \\| ib_read_lat) | of ib_read_lat: at most 1.15 | 1.15 (1.15 to 1.15) | **no** |\n",
		"| batch: READs | 15,625 | 12,500 (how \\| ib_read_bw) | of ib_read_bw: at least 1 | 0.80 (one round) | **no** |\n",
		"| put: both ends | 163,500 | - | | | |\n",
		"| broken: a READ | 20,000 | failed: ib_read_lat: no \\| device (how \\| ib_read_lat) | of ib_read_lat: at most 1.15 | ib_read_lat: no \\| device | **not measured** |\n",
		"\n1 of 4 reached.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "Soft-RoCE: times") || strings.Contains(page, "make lab-bench` boots") {
		t.Errorf("the page tells of times that nobody has measured:\n%s", page)
	}
}

// TestCountsBesideTimes: times and counts stand under headings of their own; a file of before there
// were counts is shown as it was, and one whose counted part has nothing in it, too.
func TestCountsBesideTimes(t *testing.T) {
	show := func(c *Counted) string {
		lab := result()
		lab.Counted = c
		var b bytes.Buffer
		if err := Page(&b, result(), lab); err != nil {
			t.Fatal(err)
		}
		_, guest, ok := strings.Cut(b.String(), "# In a guest, over Soft-RoCE\n\n")
		if !ok || !strings.Contains(guest, "\n`make lab-bench` boots") && !strings.HasPrefix(guest, "`make lab-bench` boots") {
			t.Errorf("the page has no times:\n%s", guest)
		}
		return guest
	}
	old, both := show(nil), show(counted())
	if strings.Contains(old, "instructions") || strings.Contains(old, "Soft-RoCE: times") {
		t.Errorf("of a file without counts the page tells of them:\n%s", old)
	}
	if i, j := strings.Index(both, "## Soft-RoCE: instructions, counted\n"), strings.Index(both, "## Soft-RoCE: times\n"); i < 0 || j < i || !strings.HasSuffix(both, old) {
		t.Errorf("counts, then times as they were:\n%s", both)
	}
	short := counted()
	short.Quick = true
	if text := show(short); !strings.Contains(text, "Shortened run") {
		t.Errorf("a shortened count is not told to be one:\n%s", text)
	}
	for name, c := range map[string]*Counted{
		"nothing":       {},
		"no contenders": {Rows: []Row{{Name: "x", Title: "x", Targets: []Target{{Text: "t", Ours: "us", Want: AtMost, Limit: 1}}}}},
		"no figure":     {Rows: []Row{{Name: "x", Title: "a|b\nc", Contenders: []Contender{{Name: "us", Kind: Ours, Rounds: []Round{{Round: 1, Sample: Sample{Instructions: -4}}}}}}}},
	} {
		(&Result{Counted: c}).Judge()
		text := show(c)
		if !strings.HasSuffix(text, old) || strings.Contains(text, "yes |\n| x") || strings.Contains(text, "a|b") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
