package report

import "time"

// A Counted is what was counted in a guest whose clock advances by 1 ns with each
// instruction: those of the program and of its libraries, of the peer, and of the
// kernel, on one processor.
type Counted struct {
	Started  time.Time `json:"started"`
	Rounds   int       `json:"rounds"`
	Calls    int       `json:"calls"` // of one turn of a get or a put; ten times as many in batches
	Quick    bool      `json:"quick"` // shortened: the figures are a test of the program only
	Versions []Version `json:"versions"`
	// Rows have no times. Their figure is Instructions, or a rate for 10⁹ of them.
	Rows []Row `json:"rows"`
}

// Instructions is the figure of what one operation takes.
var Instructions = Figure{Name: "instructions", Unit: "instructions"}

// Counting turns a sample that was taken by a clock that counts instructions into
// one of instructions. Of a latency it keeps the median.
func (s Sample) Counting() Sample {
	switch {
	case s.P50 > 0:
		s.Instructions = s.P50 * 1000
	case s.Rate > 0:
		s.Instructions = 1e9 / s.Rate
	}
	rate := s.Rate
	if s.P50 > 0 {
		rate = 0 // of calls one at a time it would be their mean, which timer interrupts are in
	}
	return Sample{Ops: s.Ops, Rate: rate, Instructions: s.Instructions, Paths: s.Paths}
}
