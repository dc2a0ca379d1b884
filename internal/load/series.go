package load

import "time"

// A series is what happened in each interval of a run. Intervals have a second
// at first; when there are too many, each two become one of twice the length, so
// memory is bounded however long the run is.
type series struct {
	width    int64 // nanoseconds of an interval
	slots    []slot
	cur      int   // the slot in use …
	from, to int64 // … and its bounds
}

type slot struct {
	ops, errors int64
	sum         float64 // nanoseconds
	longest     int64   // nanoseconds
}

const (
	seriesWidth = int64(time.Second)
	maxSlots    = 1024
)

// add notes n operations of a call that ended at a moment and took so many
// nanoseconds.
func (s *series) add(at, took, n int64, failed bool) {
	if at < s.from || at >= s.to {
		s.seek(at)
	}
	p := &s.slots[s.cur]
	if failed {
		p.errors += n
		return
	}
	p.ops += n
	p.sum += float64(took) * float64(n)
	p.longest = max(p.longest, took)
}

// seek goes to the slot of a moment.
func (s *series) seek(at int64) {
	if s.width == 0 {
		s.width = seriesWidth
	}
	at = max(at, 0)
	for at/s.width >= maxSlots {
		s.widen()
	}
	s.cur = int(at / s.width)
	s.from = int64(s.cur) * s.width
	s.to = s.from + s.width
	for len(s.slots) <= s.cur {
		s.slots = append(s.slots, slot{})
	}
}

func (p *slot) merge(q *slot) {
	p.ops, p.errors, p.sum, p.longest = p.ops+q.ops, p.errors+q.errors, p.sum+q.sum, max(p.longest, q.longest)
}

// widen makes the intervals twice as long.
func (s *series) widen() {
	for i := range s.slots {
		if i%2 == 0 {
			s.slots[i/2] = s.slots[i]
		} else {
			s.slots[i/2].merge(&s.slots[i])
		}
	}
	s.slots = s.slots[:(len(s.slots)+1)/2]
	s.width *= 2
	s.from, s.to = 0, 0 // none is in use
}

// merge adds the intervals of another series. The finer of the two is widened first.
func (s *series) merge(other *series) {
	if other.width == 0 {
		return
	}
	if s.width == 0 {
		s.width = seriesWidth
	}
	for s.width < other.width {
		s.widen()
	}
	for s.width > other.width {
		other.widen()
	}
	for i := range other.slots {
		for len(s.slots) <= i {
			s.slots = append(s.slots, slot{})
		}
		s.slots[i].merge(&other.slots[i])
	}
}

// points are the intervals of a run that took so long.
func (s *series) points(elapsed time.Duration) (list []Point) {
	for i := range s.slots {
		p, begin := &s.slots[i], time.Duration(int64(i)*s.width)
		width := min(time.Duration(s.width), elapsed-begin)
		if width <= 0 {
			width = 1 // a call that ended as the clock was read for the last time
		}
		pt := Point{Second: begin.Seconds(), Seconds: width.Seconds(), Ops: p.ops, Errors: p.errors,
			OpsPerSecond: float64(p.ops) / width.Seconds(), Max: micros(p.longest)}
		if p.ops > 0 {
			pt.Mean = p.sum / float64(p.ops) / 1e3
		}
		list = append(list, pt)
	}
	return list
}
