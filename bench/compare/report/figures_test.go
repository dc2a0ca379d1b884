package report

import (
	"math"
	"reflect"
	"testing"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want *Summary
	}{
		{nil, nil},
		{[]float64{3}, &Summary{3, 3, 3, 1}},
		{[]float64{5, 1}, &Summary{3, 1, 5, 2}},
		{[]float64{9, 1, 2}, &Summary{2, 1, 9, 3}},
		{[]float64{4, 1, 3, 2}, &Summary{2.5, 1, 4, 4}},
		{[]float64{7, 7, 7, 7, 100}, &Summary{7, 7, 100, 5}},
	} {
		in := append([]float64(nil), c.in...)
		if got := Summarize(in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
		if !reflect.DeepEqual(in, append([]float64(nil), c.in...)) {
			t.Errorf("%v was changed to %v", c.in, in)
		}
	}
	if s := (&Summary{Median: 4, Min: 3, Max: 5}); s.Spread() != 0.5 {
		t.Errorf("spread %v", s.Spread())
	}
	if s := (&Summary{}); s.Spread() != 0 {
		t.Errorf("spread of nothing %v", s.Spread())
	}
}

var (
	p50  = Figure{Name: "p50", Unit: "µs"}
	rate = Figure{Name: "rate", Unit: "/s", More: true}
)

// turns makes a contender whose figure of round i+1 is values[i]; one of 0 failed.
func turns(name, kind string, f Figure, values ...float64) Contender {
	c := Contender{Name: name, Kind: kind}
	for i, v := range values {
		r := Round{Round: i + 1, Order: 1}
		switch {
		case v == 0:
			r.Error = "it broke"
		case f.Name == "p50":
			r.P50 = v
		default:
			r.Rate = v
		}
		c.Rounds = append(c.Rounds, r)
	}
	return c
}

func TestRatiosAreOfOneRound(t *testing.T) {
	a := turns("a", Ours, p50, 1, 2, 0, 9)
	b := turns("b", Peer, p50, 10, 10, 10)
	if got, want := ratios(p50, &a, &b), []float64{0.1, 0.2}; !reflect.DeepEqual(got, want) {
		t.Errorf("ratios %v, want %v: rounds that one of them lacks do not count", got, want)
	}
}

func TestFigures(t *testing.T) {
	s := Sample{P50: 1, Rate: 2, BytesPerKey: 3, Value: 4, ServerCPU: 11, LeaderCPU: 5, FollowerCPU: 3}
	for name, want := range map[string]float64{
		"p50": 1, "rate": 2, "bytes_per_key": 3, "seconds": 4, "server_cpu_us": 11, "leader_cpu_us": 5, "follower_share": 0.6,
	} {
		if got := (Figure{Name: name}).Of(s); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if p50.Valid(v) {
			t.Errorf("%v counts as a latency", v)
		}
	}
	// Where no leader was told apart there is no share of it, and no target that nobody has measured is reached.
	for _, s := range []Sample{{}, {ServerCPU: 11}, {FollowerCPU: 3}, {LeaderCPU: 5}} {
		if f := (Figure{Name: "follower_share"}); f.Valid(f.Of(s)) {
			t.Errorf("of %+v a follower's share is %v", s, f.Of(s))
		}
	}
	if f := (Figure{Name: "leader_cpu_us"}); f.Valid(f.Of(Sample{ServerCPU: 11})) {
		t.Error("the processor time of all nodes is taken for the leader's")
	}
	if !(Figure{Name: "bytes_per_key"}).Valid(-3) {
		t.Error("memory below the payload is not believed")
	}
	if !p50.better(1, 2) || p50.better(2, 1) || !rate.better(2, 1) || rate.better(1, 2) {
		t.Error("better is the wrong way round")
	}
}
