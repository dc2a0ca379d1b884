package session

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma/boottime"
)

// Only the server decides when a key has expired, by its own time, which
// never goes back. A client that READs an item with an expiry E must therefore
// know what the server's time S is, or rather two bounds that are certain; its
// own wall clock is not asked at all.
//
//	       low ≤ S          S ≤ high
//	────────┼───────────────────┼──────────▶ server time
//	E ≤ low │    in between     │ high < E
//	absent  │    ask by SEND    │ accept
//
// So no client sees a key as expired that another one sees alive later.
//
// # The lower bound
//
// Every time that the server has ever shown. It is not advanced by our own
// clock: a server whose machine sleeps has a clock that stands still. What
// counts is the bound that was known before the first READ was posted: from
// then on the item was expired wherever it was found. A bound learned later
// would not do. The item may have been sampled while it was good, given a later
// expiry by a write, and only then have passed the old one: the key was there
// all the time.
//
// # The upper bound
//
// It holds for one instant p of the lease clock and is carried forward 2 % fast:
// the rates of two clocks may differ by 1 %, and the server draws its time
// towards its wall clock by up to 0.5 % more; and by boottime.Slack, which the lease
// clock may miss of the time between. There are two sources:
//
//	Ping     posted at p, answered with time s:  s was read after p, S(p) ≤ s
//	beats    a READ posted at p showed T0; others showed T1 > T0 and T2 > T1:
//	         S(p) ≤ T2
//
// Why two later times, and not one: the server reads its clock and then writes
// the beat, and it may be stopped in between for as long as you like. So T1 may
// have been read before p although it was written after. T2 may not: the server
// beats in one goroutine, so it read T2 after it had written T1 or something
// later, and at p the beat was still T0. Only the time word is looked at, never
// the counter beside it: the words of a READ may be of different moments.
//
// The bound from beats alone lags by two beats that were READ, over a second.
// So while items that expire are being READ, the watch sends a Ping each second.
//
// Safe for concurrent use. Of one session, like everything else that is READ.
type ServerTime struct {
	low  atomic.Uint64             // microseconds since 1970
	high atomic.Pointer[timeBound] // nil: none yet

	wanted atomic.Bool // an item that expires was READ since the last Ping
	asked  int64       // coarse time of the last Ping sent for that reason; of the watch alone

	mu    sync.Mutex
	beats [maxBeats]seenBeat // T0 == 0: free
}

// maxBeats is how many beats wait for their two successors. Beats that are READ
// in order need three.
const maxBeats = 4

// A timeBound says that the server's time was at most micros when the lease
// clock showed at. Immutable.
type timeBound struct {
	at     int64 // nanoseconds
	micros uint64
}

// A seenBeat is a time that a READ has shown, and the first one seen after it.
type seenBeat struct {
	posted int64 // latest post of a READ that showed t0
	t0, t1 uint64
}

// carry is the bound at a later instant of the lease clock. Before its own it
// is the bound itself: time does not go back.
func (b *timeBound) carry(now int64) uint64 {
	if b == nil {
		return math.MaxUint64
	}
	micros := uint64((max(now-b.at, 0)+int64(boottime.Slack))/1000) + 1
	return b.micros + micros + micros/50 + 1
}

// Low is the lower bound now. A get loads it once, before its first READ.
func (t *ServerTime) Low() uint64 { return t.low.Load() }

// beat notes the time in a beat that a READ posted at the given time has shown.
func (t *ServerTime) beat(micros uint64, posted int64) {
	if micros == 0 {
		return
	}
	t.raise(micros)
	t.mu.Lock()
	defer t.mu.Unlock()
	lowest, known := 0, false
	for i := range t.beats {
		b := &t.beats[i]
		switch {
		case b.t0 == 0: // free
		case b.t0 == micros:
			b.posted, known = max(b.posted, posted), true
		case b.t0 > micros: // READs overtake one another
		case b.t1 == 0 || b.t1 == micros:
			b.t1 = micros
		default:
			t.tightenLocked(timeBound{b.posted, max(b.t1, micros)})
			*b = seenBeat{}
		}
		if b.t0 < t.beats[lowest].t0 {
			lowest = i
		}
	}
	if !known {
		t.beats[lowest] = seenBeat{posted: posted, t0: micros}
	}
}

// Pong notes the time in the reply to a Ping that was posted at the given time.
func (t *ServerTime) Pong(micros uint64, posted int64) {
	if micros == 0 {
		return // no time
	}
	t.raise(micros)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tightenLocked(timeBound{posted, micros})
}

func (t *ServerTime) raise(micros uint64) {
	for {
		low := t.low.Load()
		if micros <= low || t.low.CompareAndSwap(low, micros) {
			return
		}
	}
}

// tightenLocked takes a bound into use unless the one in force is as good.
func (t *ServerTime) tightenLocked(b timeBound) {
	old := t.high.Load()
	if old != nil {
		// Both grow at the same rate, so the one that is lower at the later of
		// the two instants stays so.
		if at := max(old.at, b.at); old.carry(at) <= b.carry(at) {
			return
		}
	}
	t.high.Store(&b)
}

// A Verdict is what a client may say of an item that expires.
type Verdict uint8

const (
	ExpiryAsk    Verdict = iota // only the server knows
	ExpiryAlive                 // it had not expired when it was READ
	ExpiryPassed                // it had expired before it was READ
)

// judge decides about an item with an expiry, in microseconds since 1970: low is
// what t.low was before its first READ was posted, now the lease clock after
// the last completion.
func (t *ServerTime) judge(expiry, low uint64, now int64) Verdict {
	if !t.wanted.Load() {
		t.wanted.Store(true)
	}
	switch {
	case low >= expiry:
		return ExpiryPassed
	case t.high.Load().carry(now) < expiry:
		return ExpiryAlive
	}
	return ExpiryAsk
}

// JudgeExpiry is judge for what a get has found under its grant.
func (s *Session) JudgeExpiry(expiry, low uint64, now int64) Verdict {
	if expiry == 0 {
		return ExpiryAlive
	}
	v := s.ExpiryOf(expiry, low, now)
	switch v {
	case ExpiryAsk:
		s.Counts.FallbackExpiry.Add(1)
	case ExpiryPassed:
		s.Counts.ExpiredItems.Add(1)
	}
	return v
}

// ExpiryOf is what can be said of an item that expires.
func (l *life) ExpiryOf(expiry, low uint64, now int64) Verdict {
	return l.Time.judge(expiry, low, now)
}
