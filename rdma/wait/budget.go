package wait

import (
	"runtime"
	"sync/atomic"
	"time"
)

// A SpinBudget says for each wait for how long it may poll before it sleeps, and
// learns from the outcome. A Dispatcher has one for work requests and one for
// replies: a READ takes microseconds, the reply to a durable put milliseconds.
//
//	Next ──0──────────────────────▶ sleep ─▶ Slept
//	  └──d──▶ poll for up to d ─┬─▶ Got   (found)
//	                            ├─▶ Vain  (nothing came) ─▶ sleep ─▶ Slept
//	                            └─▶ Quit  (the wait was given up)
//
// In mode Adaptive a wait spins for twice what the last successful spins took on
// average. After several spins in vain waits sleep at once, and only one in 16, in
// 32, … in 1,024 spins again. A successful spin ends that, and so does a sleep that
// was shorter than the longest spin.
//
// Stats is safe for concurrent use. The other methods are for one goroutine at a
// time.
type SpinBudget struct {
	mode Mode
	max  time.Duration

	mean  time.Duration // of successful spins, moving; below 0: none yet
	score int           // 0: spinning does not help
	skip  int           // waits to come that sleep at once
	rest  int           // how many that will be the next time
	slot  bool          // this one counts among spinners
	turn  uint8
	asked uint32
	room  int32 // for spinners, when it was last asked

	got, vain, spun atomic.Uint64
}

const (
	// MaxSpin is the longest time to spin that configuration may ask for: a wait that
	// is longer is not worth a processor.
	MaxSpin = time.Millisecond
	// DefaultSpin is the longest spin unless configuration says otherwise: to sleep
	// and be woken takes about that long.
	DefaultSpin = 50 * time.Microsecond

	spinScore    = 8 // trust in spinning, at most
	spinNewScore = 4 // at the start
	spinRest     = 16
	spinMaxRest  = 1024
	spinSlack    = 2 * time.Microsecond
)

// spinners is how many adaptive waits of this process spin now.
var spinners atomic.Int32

// NewSpinBudget makes a budget. max is for how long one wait may spin at most; with
// 0 no wait spins.
func NewSpinBudget(mode Mode, max time.Duration) *SpinBudget {
	return &SpinBudget{mode: mode, max: max, mean: -1, score: spinNewScore, rest: spinRest}
}

// Next begins a wait, and returns for how long it may spin; 0 is not at all. If it
// is more than 0, one of Got, Vain and Quit must follow.
func (b *SpinBudget) Next() time.Duration {
	switch {
	case b.max <= 0 || b.mode == Event:
		return 0
	case b.mode == Poll:
		return b.max
	case b.skip > 0:
		b.skip--
		return 0
	}
	// At least one processor must be left to the goroutine that does the work that is
	// waited for. The number of processors is asked for now and then only: the
	// answer takes a lock of the scheduler.
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

// Adaptive reports whether the budget learns from Slept.
func (b *SpinBudget) Adaptive() bool { return b.mode == Adaptive && b.max > 0 }

// Timed reports whether Got should be told how long this wait takes: each time
// before the first success, then one time in 8. Otherwise the caller need not read
// the clock.
func (b *SpinBudget) Timed() bool {
	b.turn++
	return b.mean < 0 || b.turn%8 == 0
}

// Got says that the spin succeeded after took; if took is below 0 the time was not
// measured.
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

// Vain says that nothing came while the wait spun for that long.
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

// Quit says that the wait was given up while it spun: the budget learns nothing.
func (b *SpinBudget) Quit() { b.end() }

// Slept says how long a wait took that slept, from Next until it was awake.
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

// SpinStats are counts since NewSpinBudget.
type SpinStats struct {
	Got  uint64        // spins that found what they waited for
	Vain uint64        // spins that did not
	Time time.Duration // spent spinning
}

// Stats reads the counters one by one.
func (b *SpinBudget) Stats() SpinStats {
	return SpinStats{Got: b.got.Load(), Vain: b.vain.Load(), Time: time.Duration(b.spun.Load())}
}

// Add adds o to s.
func (s *SpinStats) Add(o SpinStats) {
	s.Got += o.Got
	s.Vain += o.Vain
	s.Time += o.Time
}
