package report

import (
	"math"
	"slices"
)

// A Summary is of one figure over rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"` // rounds that count
}

// Summarize returns the median and the extremes, nil for nothing. The median of
// an even number is the mean of the two in the middle.
func Summarize(values []float64) *Summary {
	if len(values) == 0 {
		return nil
	}
	v := slices.Sorted(slices.Values(values))
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = v[len(v)/2-1] + (mid-v[len(v)/2-1])/2
	}
	return &Summary{Median: mid, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// Spread is how far the rounds lie apart, as a share of the median.
func (s *Summary) Spread() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.Max - s.Min) / s.Median
}

// Of is the row's figure in a sample.
func (f Figure) Of(s Sample) float64 {
	switch f.Name {
	case "p50":
		return s.P50
	case "rate":
		return s.Rate
	case "instructions":
		return s.Instructions
	case "bytes_per_key":
		return s.BytesPerKey
	case "server_cpu_us":
		return s.ServerCPU
	case "leader_cpu_us":
		return s.LeaderCPU
	case "follower_share":
		return s.FollowerCPU / s.LeaderCPU // not a number where neither was measured, which is not valid
	}
	return s.Value
}

// Valid says whether a figure can be compared: a figure of 0 or below would make
// ratios of nothing. Memory beyond key and value may be anything that is finite,
// and processor time may be none.
func (f Figure) Valid(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	return v > 0 || f.Name == "bytes_per_key" || f.Name == "server_cpu_us" && v == 0
}

// tailless says that a figure is none of the calls' latencies, so that their 99th percentile tells
// nothing of it.
func (f Figure) tailless() bool {
	return f.Name == "server_cpu_us" || f.Name == "leader_cpu_us" || f.Name == "follower_share"
}

// by returns the figure of each round that did not fail.
func (c *Contender) by(f Figure) map[int]float64 {
	out := make(map[int]float64)
	for _, r := range c.Rounds {
		if v := f.Of(r.Sample); r.Error == "" && f.Valid(v) {
			out[r.Round] = v
		}
	}
	return out
}

// better says whether a is better than b.
func (f Figure) better(a, b float64) bool {
	if f.More {
		return a > b
	}
	return a < b
}

// ratios are a's figures over b's, of the rounds that both have, in order.
func ratios(f Figure, a, b *Contender) []float64 {
	ours, theirs := a.by(f), b.by(f)
	var rounds []int
	for r := range ours {
		if v, ok := theirs[r]; ok && v != 0 {
			rounds = append(rounds, r)
		}
	}
	slices.Sort(rounds)
	var out []float64
	for _, r := range rounds {
		out = append(out, ours[r]/theirs[r])
	}
	return out
}
