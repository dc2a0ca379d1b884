package admit

import (
	"math"
	"sync"
	"time"
)

// When less than a quarter of the log's bound is left, puts are slowed down to what
// checkpoints take in, and further the less there is. So the room lasts until the checkpoint
// under way gives some back. If puts went on at their own pace, all of them would meet a full
// log, and wait as long as a checkpoint takes.
//
//	rate of puts
//	      |                                      |
//	      |                                     .   as they come
//	      |                                   .
//	  R   |                           .  '            R: what checkpoints take in
//	      |              .   '
//	      |   .   '
//	      +-------------------------------------+----> left of the bound
//	      0                                  a quarter

const (
	// mostPause is how long one put waits at most. Writers that are so many, or whose values
	// are so large, that they fill the log all the same wait for room.
	mostPause = 10 * time.Millisecond
	// mostDebt bounds what one very large put lays upon those behind it.
	mostDebt = 10 * mostPause
	// share of the bound that is left when puts are slowed down.
	share = 4
)

// allowed is how many bytes of puts a second are right when so much of a bound is left; rate is
// what checkpoints take in, in bytes a second. slow: puts are slowed down to that.
func allowed(left, bound, rate int64) (bytes float64, slow bool) {
	f := max(0, float64(left)/(float64(bound)/share))
	if f >= 1 {
		return 0, false
	}
	return float64(max(rate, 1)) * f / (1 - f*f*f*f), true
}

// timeOf is how long a body takes at the rate that is allowed.
func timeOf(body, left, bound, rate int64) time.Duration {
	bytes, slow := allowed(left, bound, rate)
	if !slow {
		return 0
	}
	seconds := float64(body) / bytes
	if math.IsNaN(seconds) || seconds > mostDebt.Seconds() {
		return mostDebt
	}
	return time.Duration(seconds * float64(time.Second))
}

// A brake slows puts down. It looks at the log once for many puts while there is plenty.
type brake struct {
	log *Log

	mu     sync.Mutex
	left   int64     // of the bound, when it looked
	rate   int64     // of checkpoints, when it looked
	unseen int64     // bytes that may pass until it looks again
	looked time.Time // only while it slows down
	due    time.Time // when the puts that it has let pass have had their time
}

// pause counts a put, and returns how long it has to wait.
func (b *brake) pause(body int64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, slow := b.lookLocked(body)
	if !slow {
		return 0
	}
	return min(b.countLocked(now, body), mostPause)
}

// lets counts a put that cannot wait, and lets it pass; or it returns how long it would have to
// wait, if those before it were more than a pause makes up for, and does not count it.
func (b *brake) lets(body int64) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, slow := b.lookLocked(body)
	if !slow {
		return 0
	}
	if ahead := b.due.Sub(now); ahead > mostPause {
		return ahead - mostPause
	}
	b.countLocked(now, body)
	return 0
}

// countLocked lays a put upon those behind it, and returns when its own time is over.
func (b *brake) countLocked(now time.Time, body int64) time.Duration {
	if b.due.Before(now) {
		b.due = now
	}
	b.due = b.due.Add(timeOf(body, b.left, b.log.Bytes, b.rate))
	if most := now.Add(mostDebt); b.due.After(most) {
		b.due = most
	}
	return b.due.Sub(now)
}

// lookLocked looks at the log when it is time to, and says whether puts are slowed down.
// The clock is only asked then.
func (b *brake) lookLocked(body int64) (now time.Time, slow bool) {
	if b.log.Left == nil {
		return now, false
	}
	b.unseen -= body
	plenty := b.left >= b.log.Bytes/share
	if plenty && b.unseen > 0 {
		return now, false
	}
	now = b.log.Now()
	if b.unseen <= 0 || now.Sub(b.looked) >= mostPause {
		b.left, b.rate = b.log.Left(), b.log.Rate()
		b.unseen, b.looked = max(1, b.log.Bytes/1024), now
	}
	return now, b.left < b.log.Bytes/share
}
