package client

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
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
		var st serverTime
		for _, r := range reads {
			if rapid.IntRange(0, 5).Draw(t, "ping") == 0 {
				st.pong(uint64(m.at(r.sampled)), r.posted*1000)
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
	var st serverTime
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
	var st serverTime
	const ms = 1_000_000
	if v := st.judge(1<<60, 0, 0); v != expiryAsk {
		t.Errorf("nothing is known, and yet: %v", v)
	}
	st.pong(5_000_000, 100*ms) // at 100 ms it was 5 s at most
	if low := st.low.Load(); low != 5_000_000 {
		t.Fatal(low)
	}
	for _, tc := range []struct {
		expiry uint64
		now    int64
		want   expiryVerdict
	}{
		{5_000_000, 100 * ms, expiryPassed},
		{5_000_001, 100 * ms, expiryAsk},
		{5_100_000, 190 * ms, expiryAlive},
		{5_100_000, 200 * ms, expiryAsk}, // 2 % of 100 ms
		{6_000_000, 200 * ms, expiryAlive},
		{4_000_000, 50 * ms, expiryPassed},
	} {
		if v := st.judge(tc.expiry, st.low.Load(), tc.now); v != tc.want {
			t.Errorf("expiry %d at %d ms: %v, want %v", tc.expiry, tc.now/ms, v, tc.want)
		}
	}
	if v := st.judge(4_000_000, 3_000_000, 200*ms); v != expiryAsk {
		t.Errorf("expired, but that was not known before the READ: %v", v)
	}
}

// expiring puts an item with an expiry into a fake server that answers gets by
// SEND itself, and whose time is what the test says.
func expiring(t *testing.T, expiry uint64) (*fakeServer, *fakeClock, *Client, *int) {
	f := newFakeServer(77)
	f.change(func(mem []byte) {
		f.buildIndex(mem, oldSeg)
		f.putExpiring(mem, placeA, fakeKey, []byte("one"), 1, expiry)
	})
	asked := 0
	f.onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypeGet {
			return nil, false
		}
		asked++
		out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 2, Value: []byte("asked")})
		wire.SetCredits(out, 1)
		return out, true
	}
	clock := newFakeClock()
	return f, clock, f.dial(t, clock, nil), &asked
}

// putExpiring is putItem with an expiry.
func (f *fakeServer) putExpiring(mem []byte, at layout.Place, key, value []byte, v layout.Version, expiry uint64) {
	f.putItem(mem, oldSeg, at, key, value, v)
	it := layout.Item{Version: v, Key: key, Value: value, Expiry: expiry}
	size := layout.ItemSize(len(key), len(value), true)
	layout.WriteItem(mem[at.Byte():at.Byte()+uint64(size)], f.incarnation, at, it, layout.Pending)
	layout.SetState(mem[at.Byte():], v, layout.Live)
	class, _ := layout.ClassFor(size)
	slot := layout.MakeSlot(layout.HashKey(42, key).Fingerprint(), class, at)
	binary.LittleEndian.PutUint64(mem[slotAt(oldSeg, key):], uint64(slot))
}

// The server's time decides: a client whose own clock is years off sees the same
// as any other.
func TestExpiryByTheServersTime(t *testing.T) {
	for _, own := range []int64{0, 1 << 60} {
		_, clock, c, asked := expiring(t, 5_000_000)
		c.solo.wall = func() int64 { return own }
		s := c.solo.current.Load()
		s.time.pong(4_000_000, clock.now())
		mustGet(t, c, "one")
		clock.advance(999 * time.Millisecond) // too close to tell
		mustGet(t, c, "asked")
		s.time.pong(5_000_000, clock.now())
		if _, err := c.Get(t.Context(), fakeKey); !errors.Is(err, ErrNotFound) {
			t.Errorf("own clock %d: expired, and yet %v", own, err)
		}
		res, err := c.MultiGet(t.Context(), [][]byte{fakeKey})
		if err != nil || !errors.Is(res[0].Err, ErrNotFound) {
			t.Errorf("own clock %d: %v %v", own, res, err)
		}
		if k := c.Counters(); *asked != 1 || k.Fallbacks.Expiry != 1 || k.ExpiredMisses != 2 {
			t.Errorf("asked %d times; %+v", *asked, k)
		}
	}
}

// While the item is READ somebody gives it more time, and then its old expiry
// passes: it was there all the time, and must not be called absent although the
// bytes that were READ have expired by now.
func TestExpiryPassesDuringTheGet(t *testing.T) {
	f, clock, c, asked := expiring(t, 5_000_000)
	s := c.solo.current.Load()
	s.time.pong(4_999_000, clock.now())
	f.change(func([]byte) {
		f.onRead = func(place uint64, dst []byte) {
			copy(dst, f.mem[place:])
			if place == placeA.Byte() { // touched, and then the time comes
				clock.advance(1100 * time.Millisecond)
				s.time.pong(6_000_000, clock.now())
			}
		}
	})
	mustGet(t, c, "asked")
	if *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
}

// While items that expire are READ the watch asks for the time.
func TestTimeIsAsked(t *testing.T) {
	f, clock, c, _ := expiring(t, 5_000_000)
	f.onRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		switch h.Type {
		case wire.TypePing:
			m, _ := wire.ParsePing(wire.Body(msg))
			return wire.AppendPingReply(nil, h.ID, wire.PingReply{Echo: m.Echo, TimeMicros: 3_000_000}), true
		case wire.TypeGet:
			out := wire.AppendGetReply(nil, h.ID, wire.GetReply{Kind: wire.GetInline, Version: 1, Value: []byte("one")})
			wire.SetCredits(out, 1)
			return out, true
		}
		return nil, false
	}
	mustGet(t, c, "one") // by SEND: no time is known
	eventually(t, "the time is known", func() bool {
		before := c.Counters().OneSidedHits
		mustGet(t, c, "one")
		return c.Counters().OneSidedHits > before
	})
	if high := c.solo.current.Load().time.high.Load().carry(clock.now()); high < 3_000_000 || high > 3_100_000 {
		t.Errorf("upper bound %d", high)
	}
}
