package session

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The server cannot see what is read one-sidedly, and yet it has to keep in
// memory what is read most. So a client tells it of a sample of its hits, with
// a Ping every now and then.
//
// The hot path pays for it with one load and a few instructions: which hits are
// in the sample follows from the counter of hits, which is raised anyway, through
// a hash, so that a program that reads in a pattern is sampled fairly. The rate
// adapts to about maxTouchRate samples a second: a slow client reports each of
// its gets, a fast one every 2^k-th, which then counts 2^k.
const (
	maxTouchRate  = wire.MaxTouches // samples a second: one message
	maxTouchShift = 20              // never fewer than one in a million
	touchSlots    = 2 * wire.MaxTouches
	// touchEvery is how long a few touches may wait for more, in nanoseconds.
	touchEvery = 1e9
)

// A server whose memory is far from full does not want to know. Then the sample
// goes with one Ping each keepalive, for that is how the client learns that it
// does now; see wire.PingReply.

// Touches is the sample of a session. Safe for concurrent use.
type Touches struct {
	shift  atomic.Uint32 // 64 - k: see hit
	wanted atomic.Bool   // by the server

	mu      sync.Mutex
	n       int // keys in slots
	sampled int // since the last look
	looked  int64
	sent    int64 // coarse time of the last report
	slots   [touchSlots]touch
}

// A touch is a key and how often it was in the sample; 0: the slot is free.
type touch struct {
	hash  uint64
	count uint32
}

func (t *Touches) start() { t.shift.Store(64) }

// Want says whether the server wants to be told.
func (t *Touches) Want(yes bool) { t.wanted.Store(yes) }

// Hit takes hit number n into the sample if it is its turn.
func (t *Touches) Hit(n uint64, hash layout.Hash) {
	x := n * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	if x>>t.shift.Load() == 0 { // a shift by 64 leaves nothing: all of them
		t.add(hash.Hi)
	}
}

func (t *Touches) add(hash uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sampled++
	for i := hash % touchSlots; ; i = (i + 1) % touchSlots {
		switch e := &t.slots[i]; {
		case e.count != 0 && e.hash == hash:
			e.count++
			return
		case e.count != 0:
		case t.n == wire.MaxTouches:
			return // the next look makes the sample smaller
		default:
			*e = touch{hash, 1}
			t.n++
			return
		}
	}
}

// look adapts the rate to what has been sampled since the last look, and says
// whether there is something to report. now is coarse time; keepalive is how long
// a server that does not want it is left alone.
func (t *Touches) look(now int64, keepalive time.Duration) (due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if past := now - t.looked; past > 0 {
		rate := float64(t.sampled) / (float64(past) / 1e9)
		k := 64 - int(t.shift.Load())
		switch {
		case rate > maxTouchRate:
			k = min(k+bits.Len(uint(rate/maxTouchRate)), maxTouchShift)
		case rate < maxTouchRate/4 && k > 0:
			k--
		}
		if k != 64-int(t.shift.Load()) && t.n > 0 {
			due = true // a report is of one rate
		}
		defer t.shift.Store(uint32(64 - k))
		t.sampled, t.looked = 0, now
	}
	if !t.wanted.Load() {
		return t.n > 0 && now-t.sent >= int64(keepalive)
	}
	return due || t.n >= wire.MaxTouches/2 || t.n > 0 && now-t.sent >= touchEvery
}

// take empties the sample into a list for a message; count is scaled by the rate
// k at which it was taken.
func (t *Touches) take(now int64, k int) (list wire.Touches) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.slots {
		if e := &t.slots[i]; e.count != 0 {
			list = list.Append(wire.Touch{Hash: e.hash, Count: uint32(min(uint64(e.count)<<k, math.MaxUint32))})
			*e = touch{}
		}
	}
	t.n, t.sent = 0, now
	return list
}

// reportTouches reports the sample if there is one, with a Ping: it needs no
// credit, so a server that answers nothing for a while loses nothing by it, and
// there is one at a time. It does not wait: what is not reported now may be
// later.
func (m *memory) reportTouches() {
	s, now := m.s, m.s.Clock.Coarse()
	k := 64 - int(s.Touches.shift.Load())
	if due := s.Touches.look(now, s.Welcome.Keepalive); !due || !s.pingTurnFree() {
		return
	}
	s.Counts.Reports.Add(1)
	m.ping(s.Touches.take(now, k))
}
