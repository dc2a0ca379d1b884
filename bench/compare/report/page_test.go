package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// result has a target reached, one missed, one not measured, one aside, and a
// contender that printed control characters before it failed.
func result() *Result {
	broken := turns("memcached TCP, C", Peer, p50, 0, 0)
	broken.Rounds[0].Error = "<script> a | b\nc"
	cpu := turns("rdmakv shm", Ours, p50, 0.25, 0.5, 0.75)
	for i := range cpu.Rounds {
		cpu.Rounds[i].ClientCPU, cpu.Rounds[i].P99 = 0.3, 1.5
		cpu.Rounds[i].Paths = map[string]float64{"read_1": 0.9, "read_2": 0.1}
	}
	row := Row{
		Name: "get-shm", Title: "Shared memory: one client, 64 B", Text: "One caller.", Figure: p50,
		Contenders: []Contender{cpu, turns("Redis UNIX, C", Peer, p50, 50, 40, 60), broken, turns("memory copy of 64 B", Floor, p50, 0.01, 0.01, 0.01)},
		Targets: []Target{
			{Text: "at most 1 µs", Ours: "rdmakv shm", Want: AtMost, Limit: 1},
			{Text: "at most 1/1000 of Redis", Ours: "rdmakv shm", Theirs: []string{"Redis UNIX, C"}, Want: AtMost, Limit: 0.001},
			{Text: "at most 1/10 of memcached", Ours: "rdmakv shm", Theirs: []string{"memcached TCP, C"}, Want: AtMost, Limit: 0.1},
			{Text: "beside a copy", Ours: "rdmakv shm", Theirs: []string{"memory copy of 64 B"}, Want: AtMost, Limit: 1, Aside: true},
		},
	}
	row.Judge()
	return &Result{
		Schema: Schema, Started: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), Seconds: 600, Rounds: 3, Slice: 1, Seed: 7,
		Machine: Machine{OS: "Linux", Cores: 2, Virtual: true}, Versions: []Version{{"Redis", "7"}}, Rows: []Row{row},
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	want := result()
	if err := want.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	// Names that scripts rely on.
	for _, name := range []string{`"schema": 1`, `"rows"`, `"contenders"`, `"p50_us"`, `"median"`, `"targets"`, `"reached": "yes"`, `"ratio"`, `"machine"`, `"seed": 7`, `"error"`} {
		if !strings.Contains(text, name) {
			t.Errorf("no %s in the JSON", name)
		}
	}
	got, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back:\n%+v\nwritten:\n%+v", got, want)
	}
	for _, bad := range []string{"", "{}", `{"schema": 2}`, `[]`} {
		if _, err := ReadJSON(strings.NewReader(bad)); !errors.Is(err, ErrSchema) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	lab := result()
	lab.Rows[0].Name, lab.Rows[0].Title = "lab-get-64", "Soft-RoCE: gets of 64 B"
	if err := Page(&b, result(), lab); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"| at most 1 µs | 0.500 µs (0.250 to 0.750) | - | yes |",
		"| at most 1/1000 of Redis | 0.013 (0.005 to 0.013) | Redis UNIX, C | **no** |",
		"| at most 1/10 of memcached | memcached TCP, C: &lt;script> a \\| b c | - | **not measured** |",
		"1 of 3 reached.",
		"beside a copy | 50.00 (25.00 to 75.00) | memory copy of 64 B |",
		"| **rdmakv shm** |  | 0.500 | 0.250 to 0.750 | 1.50 | 0 + 0.300 | ; 90.0 % by one READ, 10.0 % by two READs |",
		"2 turns failed",
		"# In a guest, over Soft-RoCE",
		"benchmarks-lab-get-64.svg",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	headings := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^##? (.*)$`).FindAllStringSubmatch(page, -1) {
		headings[anchor(h[1])] = true
	}
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(page, -1)
	if len(links) == 0 {
		t.Error("no links to rows")
	}
	for _, l := range links {
		if !headings[l[1]] {
			t.Errorf("link to #%s, which is no heading", l[1])
		}
	}
	pics, err := Pictures(result())
	if err != nil {
		t.Fatal(err)
	}
	labPics, err := Pictures(lab)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\]\((benchmarks-[^)]*)\)`).FindAllStringSubmatch(page, -1) {
		if pics[m[1]] == nil && labPics[m[1]] == nil {
			t.Errorf("the page shows %s, which is not drawn", m[1])
		}
	}
	for name, svg := range pics {
		if err := wellFormed(svg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func wellFormed(doc []byte) error {
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		if _, err := d.Token(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestPageOfNothing: a run in which nothing could be measured has a page, too.
func TestPageOfNothing(t *testing.T) {
	res := result()
	res.Quick = true
	for i := range res.Rows[0].Contenders {
		res.Rows[0].Contenders[i] = turns(res.Rows[0].Contenders[i].Name, Peer, p50, 0)
	}
	res.Rows[0].Error = "no disk"
	res.Rows[0].Judge()
	var b bytes.Buffer
	if err := Page(&b, res, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0 of 3 reached", "no disk", "it broke", "Shortened run"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(b.String(), ".svg") {
		t.Error("a picture of nothing")
	}
	if pics, err := Pictures(res); err != nil || len(pics) != 0 {
		t.Errorf("%d pictures of nothing, %v", len(pics), err)
	}
	Text(io.Discard, &res.Rows[0])
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.01234: "0.0123", 0.5: "0.500", 1: "1.00", 9.876: "9.88", 12.34: "12.3", 123.4: "123", 1234: "1,230", 1234567: "1,230,000",
		-5: "-5.00", -12345: "-12,300", 999.6: "1000",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0.00", 0.0123: "0.012", 0.1: "0.10", 1.1: "1.10", 12.345: "12.35", 123.4: "123"} {
		if got := Ratio(v); got != want {
			t.Errorf("ratio %v is %s, want %s", v, got, want)
		}
	}
}
