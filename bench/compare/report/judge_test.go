package report

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name    string
		figure  Figure
		rows    []Contender
		target  Target
		want    Verdict
		ratio   float64
		against string
		because string
	}{
		{"reached at the limit", p50,
			[]Contender{turns("us", Ours, p50, 1, 1, 1), turns("redis", Peer, p50, 10, 10, 10)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 0.1}, Yes, 0.1, "redis", ""},
		{"missed by a little", p50,
			[]Contender{turns("us", Ours, p50, 1.01, 1.01, 1.01), turns("redis", Peer, p50, 10, 10, 10)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 0.1}, No, 0.101, "redis", ""},
		{"the best way of the peer counts", rate,
			[]Contender{turns("us", Ours, rate, 30, 30, 30), turns("slow way", Peer, rate, 1, 1, 1), turns("fast way", Peer, rate, 20, 20, 20)},
			Target{Ours: "us", Theirs: []string{"slow way", "fast way"}, Want: AtLeast, Limit: 2}, No, 1.5, "fast way", ""},
		{"the best latency is the smallest", p50,
			[]Contender{turns("us", Ours, p50, 6, 6, 6), turns("slow way", Peer, p50, 60, 60, 60), turns("fast way", Peer, p50, 10, 10, 10)},
			Target{Ours: "us", Theirs: []string{"slow way", "fast way"}, Want: AtMost, Limit: 0.5}, No, 0.6, "fast way", ""},
		{"the median of ratios, not the ratio of medians", rate,
			[]Contender{turns("us", Ours, rate, 10, 40, 90), turns("redis", Peer, rate, 10, 10, 30)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtLeast, Limit: 3}, Yes, 3, "redis", ""},
		{"a figure of its own", p50,
			[]Contender{turns("us", Ours, p50, 0.9, 1.1, 0.8)},
			Target{Ours: "us", Want: AtMost, Limit: 1}, Yes, 0.9, "", ""},
		{"we failed", p50,
			[]Contender{turns("us", Ours, p50, 0, 0), turns("redis", Peer, p50, 10, 10)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 1}, NotMeasured, 0, "", "us: it broke"},
		{"they failed", p50,
			[]Contender{turns("us", Ours, p50, 1, 1), turns("redis", Peer, p50, 0, 0)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 1}, NotMeasured, 0, "", "redis: it broke"},
		{"one way of theirs failed", p50,
			[]Contender{turns("us", Ours, p50, 1, 1), turns("redis", Peer, p50, 0, 0), turns("redis, other", Peer, p50, 4, 4)},
			Target{Ours: "us", Theirs: []string{"redis", "redis, other"}, Want: AtMost, Limit: 1}, Yes, 0.25, "redis, other", ""},
		{"never in one round", p50,
			[]Contender{turns("us", Ours, p50, 1, 0), turns("redis", Peer, p50, 0, 1)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 1}, NotMeasured, 0, "redis", "no round"},
		{"left out", p50,
			[]Contender{turns("redis", Peer, p50, 1)},
			Target{Ours: "us", Theirs: []string{"redis"}, Want: AtMost, Limit: 1}, NotMeasured, 0, "", "left out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := Row{Name: "row", Figure: c.figure, Contenders: c.rows, Targets: []Target{c.target}}
			row.Judge()
			row.Judge() // once more changes nothing
			got := row.Targets[0]
			if got.Reached != c.want || got.Against != c.against || !strings.Contains(got.Because, c.because) {
				t.Errorf("%s against %q because %q, want %s against %q because %q", got.Reached, got.Against, got.Because, c.want, c.against, c.because)
			}
			if (got.Ratio != nil) != (c.ratio != 0) {
				t.Fatalf("ratio %+v", got.Ratio)
			}
			if got.Ratio != nil && (got.Ratio.Median < c.ratio*0.999 || got.Ratio.Median > c.ratio*1.001) {
				t.Errorf("ratio %v, want %v", got.Ratio.Median, c.ratio)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	good := Row{Name: "r", Contenders: []Contender{{Name: "a"}, {Name: "b"}},
		Targets: []Target{{Ours: "a", Theirs: []string{"b"}, Want: AtMost}}}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Row){
		"twice":       func(r *Row) { r.Contenders[1].Name = "a" },
		"stranger":    func(r *Row) { r.Targets[0].Theirs[0] = "c" },
		"no ours":     func(r *Row) { r.Targets[0].Ours = "" },
		"wants least": func(r *Row) { r.Targets[0].Want = "least" },
	} {
		r := Row{Name: "r", Contenders: []Contender{{Name: "a"}, {Name: "b"}},
			Targets: []Target{{Ours: "a", Theirs: []string{"b"}, Want: AtMost}}}
		change(&r)
		if r.Check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
