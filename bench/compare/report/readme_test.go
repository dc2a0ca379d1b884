package report

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// mixed is a row whose targets are about two figures of the same turns: by the rate the first peer
// is the better one, by the server's processor time the second.
func mixed() Row {
	turn := func(name, kind string, rates, cpus []float64) Contender {
		c := turns(name, kind, rate, rates...)
		for i := range c.Rounds {
			c.Rounds[i].ServerCPU, c.Rounds[i].P99 = cpus[i], 7
		}
		return c
	}
	cpu := &Figure{Name: "server_cpu_us", Unit: "µs"}
	peers := []string{"fast", "frugal"}
	row := Row{
		Name: "puts", Title: "Puts", Figure: rate,
		Contenders: []Contender{
			turn("us", Ours, []float64{40e5, 10e5, 20e5}, []float64{4, 6, 8}),
			turn("fast", Peer, []float64{10e5, 10e5, 10e5}, []float64{9, 9, 9}),
			turn("frugal", Peer, []float64{1e5, 1e5, 1e5}, []float64{2, 2, 2}),
		},
		Targets: []Target{
			{Text: "rate", Headline: "puts/s, to the peer", Ours: "us", Theirs: peers, Want: AtLeast, Limit: 1.5},
			{Text: "CPU", Headline: "server CPU per put", Ours: "us", Want: AtMost, Limit: 5, Figure: cpu},
			{Text: "CPU beside", Headline: "the same of the peer", Ours: "frugal", Want: AtMost, Limit: 5, Figure: cpu, Aside: true},
			{Text: "CPU to peers", Ours: "us", Theirs: peers, Want: AtMost, Limit: 5, Figure: cpu},
			{Text: "rate alone", Headline: "puts", Ours: "us", Want: AtLeast, Limit: 4e6},
		},
	}
	row.Judge()
	return row
}

// TestFigureOfTarget: a target about another figure than the row's is judged by that one, also in
// the choice of the best peer.
func TestFigureOfTarget(t *testing.T) {
	row := mixed()
	for i, want := range []struct {
		median  float64
		against string
		reached Verdict
	}{{2, "fast", Yes}, {6, "", No}, {2, "", Yes}, {3, "frugal", Yes}, {2e6, "", No}} {
		got := row.Targets[i]
		if got.Ratio == nil || got.Ratio.Median != want.median || got.Against != want.against || got.Reached != want.reached {
			t.Errorf("%s: %+v against %q %s, want %+v", got.Text, got.Ratio, got.Against, got.Reached, want)
		}
	}
	var b strings.Builder
	if Text(&b, &row); !strings.Contains(b.String(), "6.00 µs (4.00 to 8.00)") {
		t.Errorf("the terminal shows:\n%s", &b)
	}
}

// TestReadme: README's table stands between two lines, what is around it stays, and nothing is
// written where a line is missing.
func TestReadme(t *testing.T) {
	res := &Result{
		Started: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), Rounds: 5, Machine: Machine{Cores: 2, Virtual: true}, Rows: []Row{mixed()},
	}
	if !res.Headlines() || (&Result{Rows: []Row{{Targets: []Target{{Text: "old"}}}}}).Headlines() {
		t.Error("headlines are told where there are none, or not told")
	}
	text, err := Readme([]byte("# One\n"+readmeBegin+"the last one\n"+readmeEnd+"# Two\n"), res)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for _, want := range []string{
		"on 21 Nov 2026, 2 cores of a virtual machine, medians of 5 interleaved rounds",
		"| puts/s, to the peer | at least 1.5 | 2.00 | 7.00 / 7.00 |\n",
		"| server CPU per put | at most 5 µs | **6.00 µs** |  |\n",
		"| the same of the peer |  | 2.00 µs |  |\n",
		"| puts | at least 4 M/s | **2 M/s** | 7.00 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("README has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "the last one") || strings.Contains(got, "CPU to peers") || !strings.HasPrefix(got, "# One\n") || !strings.HasSuffix(got, readmeEnd+"# Two\n") {
		t.Errorf("README is:\n%s", got)
	}
	if again, err := Readme(text, res); err != nil || string(again) != got {
		t.Errorf("written twice it is another one: %v\n%s", err, again)
	}
	for _, bad := range []string{"", readmeBegin, readmeEnd, readmeEnd + readmeBegin} {
		if _, err := Readme([]byte(bad), res); !errors.Is(err, ErrNoPlace) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
