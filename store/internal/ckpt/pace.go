package ckpt

import (
	"time"

	"github.com/rdmakv/rdmakv/store/log"
)

const (
	// leastRate is what a checkpoint may write in a second at least.
	leastRate = 20 << 20
	// nearlyFull: when so much of the log's bound is used, checkpoints are not paced.
	nearlyFull = 0.75
	// window is how long the growth of the log is looked at.
	window = 500 * time.Millisecond
)

// A meter is how fast a number grows.
type meter struct {
	rate int64 // a second
	last int64
	at   time.Time
}

// note is told the number at a moment. What is closer to the last one than window counts with
// the next.
func (m *meter) note(now time.Time, n int64) {
	d := now.Sub(m.at)
	switch {
	case m.at.IsZero() || d < 0 || n < m.last:
		m.last, m.at = n, now
	case d >= window:
		m.rate = int64(float64(n-m.last) / d.Seconds())
		m.last, m.at = n, now
	}
}

// pace is how many bytes of tables are written in a second; 0: as many as can be. A checkpoint
// is kept slow because it shares the disk with the log, and faster than the log grows, or it
// would never be through. When the log is nearly full everybody waits for it.
func (k *Keeper) pace(paced bool) int64 {
	s := k.c.Log.Stats()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.growth.note(k.c.Now(), int64(s.Written+s.Padding))
	if !paced || float64(s.Bytes) > nearlyFull*float64(k.c.LogBytes) {
		return 0
	}
	return max(leastRate, k.growth.rate+k.growth.rate/2)
}

// behind bounds the bytes of the log behind a position, up to what has passed. Segments that
// were left early count as whole ones, so what they have in force bounds it, too.
func behind(s *log.Stats, from log.Position, segment int64) int64 {
	if s.Passed <= from {
		return 0
	}
	n := int64(s.Passed.Segment()-from.Segment())*segment + s.Passed.Offset() - from.Offset()
	return max(0, min(n, s.Bytes))
}
