package session

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/rdma/boottime"
)

// A clockModel is a server's clock and its beats, in microseconds of a real time
// that only the test knows. The client's clock is that real time: of the two
// rates only the ratio matters.
type clockModel struct {
	turns []int64 // real times at which the rate changes
	rates []int64 // percent of a percent: 10,000 is right; 10,150: its clock and how it draws it; 0: the machine sleeps
	beats []beatWritten
}

// A beatWritten is a beat whose time was read at one moment and which was
// written at another.
type beatWritten struct{ time, written int64 }

// at is the server's time.
func (m *clockModel) at(x int64) int64 {
	s := int64(1_000_000)
	for i, from := range m.turns {
		to := x
		if i+1 < len(m.turns) {
			to = min(x, m.turns[i+1])
		}
		if to > from {
			s += (to - from) * m.rates[i] / 10_000
		}
	}
	return s
}

// shown is the time word that a READ sampled at x shows.
func (m *clockModel) shown(x int64) int64 {
	shown := int64(0)
	for _, b := range m.beats {
		if b.written <= x {
			shown = b.time
		}
	}
	return shown
}

func drawClock(t *rapid.T, until int64) *clockModel {
	m := &clockModel{}
	for x := int64(0); x < until; {
		m.turns = append(m.turns, x)
		m.rates = append(m.rates, rapid.SampledFrom([]int64{10_000, 9_950, 10_050, 10_150, 0}).Draw(t, "rate"))
		x += rapid.Int64Range(100_000, 3_000_000).Draw(t, "for")
	}
	for x := int64(0); x < until; {
		read := x
		if rapid.IntRange(0, 3).Draw(t, "stopped") == 0 { // between reading the clock and writing
			x += rapid.Int64Range(1, 2_000_000).Draw(t, "for")
		}
		m.beats = append(m.beats, beatWritten{m.at(read), x})
		x += rapid.Int64Range(1, 300_000).Draw(t, "next") // a late tick is followed by another soon
	}
	return m
}

// Whatever a server's clock does within its bounds, wherever the server stops,
// and in whatever order READs are sampled and handled: both bounds hold.
func TestServerTimeBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const until = 20_000_000
		m := drawClock(t, until)
		type read struct{ posted, sampled, handled int64 }
		var reads []read
		for range rapid.IntRange(1, 25).Draw(t, "reads") {
			r := read{posted: rapid.Int64Range(0, until).Draw(t, "posted")}
			r.sampled = r.posted + rapid.Int64Range(0, 700_000).Draw(t, "way")
			r.handled = r.sampled + rapid.Int64Range(0, 700_000).Draw(t, "back")
			reads = append(reads, r)
		}
		slices.SortFunc(reads, func(a, b read) int { return int(a.handled - b.handled) })
		var st ServerTime
		for _, r := range reads {
			if rapid.IntRange(0, 5).Draw(t, "ping") == 0 {
				st.Pong(uint64(m.at(r.sampled)), r.posted*1000)
			} else if shown := m.shown(r.sampled); shown != 0 {
				st.beat(uint64(shown), r.posted*1000)
			}
			if low := st.low.Load(); low > uint64(m.at(r.handled)) {
				t.Fatalf("at %d the server's time is %d, the lower bound %d", r.handled, m.at(r.handled), low)
			}
			for _, later := range []int64{0, 1, 1000, 5_000_000} {
				x := r.handled + later
				if high := st.high.Load().carry(x * 1000); high < uint64(m.at(x)) {
					t.Fatalf("at %d the server's time is %d, the upper bound %d", x, m.at(x), high)
				}
			}
		}
	})
}

// The trace behind the rule of the two later times: the server has read its
// clock for a beat and is stopped before it writes it.
func TestBeatReadLongBeforeItIsWritten(t *testing.T) {
	var st ServerTime
	st.beat(1_000_000, 0)
	// Clock read at 1.2 s, stopped until 9 s. We READ at 8.9 s.
	st.beat(1_000_000, 8_900*1e6)
	st.beat(1_200_000, 9_000*1e6)
	if high := st.high.Load().carry(9_000 * 1e6); high < 9_000_000 {
		t.Fatalf("upper bound %d µs at 9 s", high)
	}
	st.beat(9_200_000, 9_200*1e6)
	if high := st.high.Load().carry(9_200 * 1e6); high < 9_200_000 || high > 9_700_000 {
		t.Fatalf("upper bound %d µs at 9.2 s", high)
	}
}

// An item with an expiry is believed while it certainly is good, absent when it
// certainly is not, and asked for in between.
func TestExpiryVerdicts(t *testing.T) {
	var st ServerTime
	const ms = 1_000_000
	if v := st.judge(1<<60, 0, 0); v != ExpiryAsk {
		t.Errorf("nothing is known, and yet: %v", v)
	}
	st.Pong(5_000_000, 100*ms) // at 100 ms it was 5 s at most
	if low := st.low.Load(); low != 5_000_000 {
		t.Fatal(low)
	}
	for _, tc := range []struct {
		expiry uint64
		now    int64
		want   Verdict
	}{
		{5_000_000, 100 * ms, ExpiryPassed},
		{5_000_001, 100 * ms, ExpiryAsk},
		{5_100_000, 190 * ms, ExpiryAlive},
		{5_100_000, 200 * ms, ExpiryAsk}, // 2 % of 100 ms
		{6_000_000, 200 * ms, ExpiryAlive},
		{4_000_000, 50 * ms, ExpiryPassed},
	} {
		if v := st.judge(tc.expiry, st.low.Load(), tc.now); v != tc.want {
			t.Errorf("expiry %d at %d ms: %v, want %v", tc.expiry, tc.now/ms, v, tc.want)
		}
	}
	if v := st.judge(4_000_000, 3_000_000, 200*ms); v != ExpiryAsk {
		t.Errorf("expired, but that was not known before the READ: %v", v)
	}
}

// TestClockSlack: what the lease clock may miss of the time that has passed is taken off the lease, and
// added to the server's time.
func TestClockSlack(t *testing.T) {
	const posted, promised = int64(5e9), 2 * time.Second
	var l Lease
	l.start(promised, posted, 0)
	over := posted + int64(promised-promised/100-boottime.Slack)
	if g := l.Grant(); l.Holds(g, over) || !l.Holds(g, over-1) {
		t.Errorf("the lease ends at %d, want %d", g.deadline, over)
	}
	b := timeBound{at: posted, micros: 1000}
	for _, now := range []int64{posted - 1, posted, posted + 999, posted + 1e6} {
		passed := max(now-posted, 0) + int64(boottime.Slack)
		if got := b.carry(now); got < 1000+uint64(passed+999)/1000 {
			t.Errorf("%d ns later the server's time is at most %d us", passed, got)
		}
	}
}
