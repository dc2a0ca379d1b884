package rdma

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A SpinBudget says for each wait how long it may poll before it sleeps, and
// learns from what came of it. There is one for each connection and kind of
// wait, since a READ takes microseconds and the reply to a durable put
// milliseconds.
//
//	Next ──0──────────────────────▶ sleep ─▶ Slept
//	  └──d──▶ poll for up to d ─┬─▶ Got
//	                            ├─▶ Vain ─▶ sleep ─▶ Slept
//	                            └─▶ Quit (nobody waits any more)
//
// In mode adaptive a wait spins for twice what the last successful spins took on
// average. Spins that go on being in vain cost their budget: then waits sleep at
// once, and only one in 16, in 32, … in 1,024 tries again. A sleep that turned
// out shorter than the longest spin ends that too.
//
// Next, Got, Vain, Quit and Slept are for one goroutine at a time; Stats for all.
type SpinBudget struct {
	mode WaitMode
	max  time.Duration

	mean  time.Duration // of successful spins, moving; below 0: none yet
	score int           // 0: spinning is in vain
	skip  int           // waits to come that sleep at once
	rest  int           // how many that will be the next time
	slot  bool          // this one counts among spinners
	turn  uint8
	asked uint32
	room  int32 // for spinners, when it was last asked

	got, vain, spun atomic.Uint64
}

const (
	// MaxSpin is the longest time to spin that may be asked for: longer waits
	// are not worth a processor.
	MaxSpin = time.Millisecond
	// DefaultSpin is the longest spin where nobody says otherwise: to sleep and
	// be woken takes about that long.
	DefaultSpin = 50 * time.Microsecond

	spinScore    = 8 // trust in spinning, at most
	spinNewScore = 4 // at the start
	spinRest     = 16
	spinMaxRest  = 1024
	spinSlack    = 2 * time.Microsecond
)

// spinners is how many adaptive waits of this process spin now.
var spinners atomic.Int32

// NewSpinBudget makes a budget; max is the longest spin of one wait, 0 for none.
func NewSpinBudget(mode WaitMode, max time.Duration) *SpinBudget {
	return &SpinBudget{mode: mode, max: max, mean: -1, score: spinNewScore, rest: spinRest}
}

// Next is how long the wait that begins may spin; 0 is not at all. If it is more
// than that, one of Got, Vain and Quit must follow.
func (b *SpinBudget) Next() time.Duration {
	switch {
	case b.max <= 0 || b.mode == WaitEvent:
		return 0
	case b.mode == WaitPoll:
		return b.max
	case b.skip > 0:
		b.skip--
		return 0
	}
	// Some processor must be left to who makes what is waited for. How many there
	// are is asked now and then: the answer takes a lock of the scheduler.
	if b.asked%64 == 0 {
		b.room = max(1, int32(runtime.GOMAXPROCS(0)-1))
	}
	b.asked++
	if spinners.Add(1) > b.room {
		spinners.Add(-1)
		return 0
	}
	b.slot = true
	if b.mean < 0 {
		return b.max
	}
	return min(b.max, 2*b.mean+spinSlack)
}

// Adaptive reports whether Slept has a use.
func (b *SpinBudget) Adaptive() bool { return b.mode == WaitAdaptive && b.max > 0 }

// Timed reports whether Got should be told how long the wait that begins took:
// always before the first success, then for one in 8.
func (b *SpinBudget) Timed() bool {
	b.turn++
	return b.mean < 0 || b.turn%8 == 0
}

// Got: what was waited for came after that much polling; below 0: nobody looked
// at a clock.
func (b *SpinBudget) Got(took time.Duration) {
	b.end()
	b.got.Add(1)
	switch {
	case took < 0:
		took = max(b.mean, 0)
	case b.mean < 0:
		b.mean = took
	default:
		b.mean += (took - b.mean) / 8
	}
	b.spun.Add(uint64(took))
	b.score = min(b.score+1, spinScore)
	b.rest = spinRest
}

// Vain: nothing came in all that time.
func (b *SpinBudget) Vain(spun time.Duration) {
	b.end()
	b.vain.Add(1)
	b.spun.Add(uint64(spun))
	if b.mean >= 0 && 2*b.mean < b.max {
		b.mean += b.mean/4 + spinSlack // perhaps it was too short
	}
	if b.score > 1 {
		b.score--
		return
	}
	b.score = 0
	b.skip = b.rest
	b.rest = min(2*b.rest, spinMaxRest)
}

// Quit: the wait ended before its time, and says nothing.
func (b *SpinBudget) Quit() { b.end() }

// Slept: a wait that slept took that long from its begin, wake-up included.
func (b *SpinBudget) Slept(took time.Duration) {
	if b.skip > 0 && took <= b.max {
		b.skip = 0
	}
}

func (b *SpinBudget) end() {
	if b.slot {
		b.slot = false
		spinners.Add(-1)
	}
}

// SpinStats are counts since the start.
type SpinStats struct {
	Got  uint64        // spins that found what they waited for
	Vain uint64        // spins that did not
	Time time.Duration // spent spinning
}

// Stats reads the counters, each by itself.
func (b *SpinBudget) Stats() SpinStats {
	return SpinStats{Got: b.got.Load(), Vain: b.vain.Load(), Time: time.Duration(b.spun.Load())}
}

// Add sums up.
func (s *SpinStats) Add(o SpinStats) {
	s.Got += o.Got
	s.Vain += o.Vain
	s.Time += o.Time
}
