package report

import (
	"strings"
	"testing"
)

// TestOverview: each bar is the best of a system's clients, bars stand best first, a system that was
// not measured has none, and the legend names no kind without a bar.
func TestOverview(t *testing.T) {
	slow, fast, spins := turns("Redis UNIX, Go", Peer, p50, 20, 20), turns("Redis UNIX, C", Peer, p50, 12, 14), turns("Redis TCP, C spinning, one core", Peer, p50, 9, 9)
	res := &Result{Rows: []Row{
		{Name: "get-shm", Figure: p50, Contenders: []Contender{
			slow, fast, turns("rdmakv shm, places not known", Ours, p50, 0.1, 0.1), turns("rdmakv shm", Ours, p50, 0.25, 0.35), turns("LMDB", Peer, p50, 0, 0),
			turns("memory copy of 64 B", Floor, p50, 0.01),
		}},
		{Name: "get-iwarp", Figure: p50, Contenders: []Contender{spins, turns("rdmakv iwarp, adaptive", Ours, p50, 30, 30)}},
		{Name: "rate-iwarp-50", Figure: rate, Contenders: []Contender{
			turns("Redis TCP, C", Peer, rate, 1e5), turns("Redis TCP, C, pipelined", Peer, rate, 3e5), turns("rdmakv iwarp", Ours, rate, 2e5),
		}},
		{Name: "puts-durable-50", Figure: rate, Contenders: []Contender{turns("bare Pebble", Floor, rate, 8e4), turns("rdmakv shm", Ours, rate, 5e4)}},
		{Name: "other", Figure: rate, Contenders: []Contender{turns("Redis TCP, C", Peer, rate, 1e9)}},
	}}
	for i := range res.Rows {
		res.Rows[i].Judge()
	}
	for i, want := range [][]string{
		{"rdmakv, shared memory 0.300 µs", "Redis 9.00 µs", "rdmakv, iwarp over TCP 30.0 µs"},
		{"Redis, one connection, 50 pipelined 300,000/s", "rdmakv, iwarp, one connection 200,000/s", "Redis, 50 connections 100,000/s"},
		{"bare Pebble, no network 80,000/s", "rdmakv, shared memory 50,000/s"},
	} {
		var got []string
		rows, _ := overviews[i].rows(res)
		for _, r := range rows {
			text := r.Label
			for _, b := range r.Bars {
				if b.Text != "" {
					text += " " + b.Text
				}
			}
			got = append(got, text)
		}
		if strings.Join(got, "; ") != strings.Join(want, "; ") {
			t.Errorf("%s:\n%q, want\n%q", overviews[i].file, got, want)
		}
		svg, err := overviews[i].picture(res)
		if err != nil || wellFormed(svg) != nil {
			t.Fatal(err, wellFormed(svg))
		}
		if floors := strings.Contains(string(svg), ">floors<"); floors != (i == 2) {
			t.Errorf("%s: the legend has floors: %v", overviews[i].file, floors)
		}
		if log := strings.Contains(overviews[i].note, "logarithmic"); log != overviews[i].log {
			t.Errorf("%s says of its axis: %s", overviews[i].file, overviews[i].note)
		}
		if len(overviews[i].bars) != 5 {
			t.Errorf("%s has %d bars", overviews[i].file, len(overviews[i].bars))
		}
	}
	text, err := Readme([]byte(readmeBegin+readmeEnd), res)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range overviews {
		if !strings.Contains(string(text), "]("+"docs/"+o.file+")") {
			t.Errorf("README does not show %s", o.file)
		}
	}
	// A picture of one bar compares nothing.
	res.Rows = res.Rows[3:4]
	res.Rows[0].Contenders = res.Rows[0].Contenders[:1]
	if lines := overviewLines(res, ""); len(lines) != 0 {
		t.Errorf("of one bar: %q", lines)
	}
}

// TestCongestion: the page says which congestion control the peers had.
func TestCongestion(t *testing.T) {
	for name, want := range map[string]string{"reno": "every TCP socket had it", "bbr": "the machine's default (bbr)", "": "(not known)"} {
		res := result()
		res.Machine.Congestion = name
		var b strings.Builder
		if err := Page(&b, res, nil); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "%!") {
			t.Errorf("%q: the page has no %q", name, want)
		}
	}
}
