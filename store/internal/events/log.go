// Package events keeps the published writes of the store, in the order of their
// versions, which is the one order of all shards (one queue numbers the writes, one
// goroutine publishes them), for those who watch. Each group of replicas numbers and
// publishes for itself, so it has a Log of its own (NewOfGroup). A bounded ring keeps the newest;
// whoever comes too late for some is told that some may be missing.
//
// An event is noted after its write was published, so nobody is told of what a
// reader could still not see, or a crash undo (events-wait-for-published). The parts of a batch
// are noted together, with versions in a row; an answer may end between them,
// but says so in every event but the last, and goes on there.
package events

import (
	"bytes"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// A Log is the store's events. Safe for concurrent use; it is written by one
// goroutine (Begin).
type Log struct {
	incarnation uint64
	now         func() time.Time
	numbered    bool // the events are a group's: versions are in the order of their numbers (layout.NumberedVersion)

	mu     sync.Mutex
	ring   *ring
	off    bool           // nobody has asked for so long that nothing is kept
	asked  time.Time      // when somebody last did
	last   layout.Version // newest published write that was noted
	birth  layout.Version // no write of this life has a version up to it
	before Cursor         // the end of the last life, if it ended cleanly

	waiters map[string]map[*Waiter]struct{} // by prefix
	lengths []int                           // of the prefixes there are
	counts  counts
}

type counts struct{ noted, told, skips, asked uint64 }

// idle is after how long without anybody asking the events are dropped
// and not kept any more: what is not watched costs nothing. It also bounds for
// how long a cursor is good that nobody comes back with.
const idle = 10 * time.Minute

// MinBytes and MaxBytes bound the memory of a log.
const (
	MinBytes = ringSegments * minRingSegment
	MaxBytes = 1 << 30
)

// look bounds the events looked at under the lock, which the publisher
// wants: about a hundred microseconds. A batch is looked at to its end.
const look = 1024

// New returns the events of a life that begins behind birth, in at most limit bytes.
// limit 0: none are kept, and the Log is nil.
func New(limit int, incarnation uint64, birth layout.Version, before Cursor) *Log {
	if limit == 0 {
		return nil
	}
	l := &Log{
		incarnation: incarnation, now: time.Now, ring: newRing(limit),
		last: birth, birth: birth, before: before, waiters: make(map[string]map[*Waiter]struct{}),
	}
	l.ring.dropped = birth
	l.asked = l.now()
	return l
}

// NewOfGroup returns the events of a group of replicas, of which newest is published. All replicas have the same
// events, so a cursor that one gave out is good at the others: it names the group in place of an incarnation, and
// numbers tell what is behind it. limit 0: none are kept, and the Log is nil.
func NewOfGroup(limit int, group uint64, newest layout.Version) *Log {
	l := New(limit, group, newest, Cursor{})
	if l != nil {
		l.numbered = true
	}
	return l
}

// end is the last version that is not behind v. Those of a group's shards with one number are one write, and of most
// numbers it is not known in which shard they are.
func (l *Log) end(v layout.Version) layout.Version {
	if l.numbered {
		return v | (layout.MaxShards - 1) // v may be what a client has made up
	}
	return v
}

// Restart forgets all events, because the state that newest is the last write of has taken the place of what there
// was. Whoever waits is woken: what is behind its cursor may never come.
func (l *Log) Restart(newest layout.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring.clear(newest)
	l.last, l.birth = newest, newest
	for _, set := range l.waiters {
		for e := range set {
			e.wake()
		}
	}
	clear(l.waiters)
	l.countLengths()
}

// Keep says that somebody will ask, perhaps not soon: events are kept for as long as after a Page.
func (l *Log) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep()
}

// keep notes that somebody asks. Caller holds mu.
func (l *Log) keep() {
	l.counts.asked++
	l.asked = l.now()
	if l.off {
		l.off = false
		l.ring.clear(l.last)
	}
}

// Page returns what has been published behind a cursor. It never waits.
func (l *Log) Page(req Request) (p Page) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep()
	from, skipped := l.resume(req.From)
	p.Skipped = skipped
	if skipped {
		l.counts.skips++
	}
	next, left, looked := from, req.MaxBytes, 0
	var open bool // the newest event of p has further ones in its batch, under this prefix or not
	l.ring.after(from, func(e ringEvent) bool {
		looked++
		if looked > look && !open {
			p.More = true
			return false
		}
		if !bytes.HasPrefix(e.key, req.Prefix) {
			next, open = e.version, open && e.more
			return true
		}
		out, size := e.event(req)
		if size > left && len(p.Events) > 0 {
			p.Events[len(p.Events)-1].More = open
			p.More = true
			return false
		}
		if open {
			p.Events[len(p.Events)-1].More = true
		}
		left -= size
		p.Events = append(p.Events, out)
		next, open = e.version, e.more
		return true
	})
	if !p.More {
		next = l.last
	}
	p.Next = Cursor{Incarnation: l.incarnation, Version: next}
	l.counts.told += uint64(len(p.Events))
	return p
}

// event copies an event for an answer and says what it takes there.
func (e *ringEvent) event(req Request) (Event, int) {
	out := Event{Version: e.version, Op: e.op, Key: bytes.Clone(e.key), ValLen: e.valLen}
	size := req.Overhead + len(e.key)
	if req.Values && e.kept && size+e.valLen <= req.MaxBytes {
		out.Value, out.HasValue = append([]byte{}, e.value...), true
		size += e.valLen
	}
	return out, size
}

// resume returns the version behind which a cursor goes on, and whether
// something may have been missed. Caller holds mu.
func (l *Log) resume(c Cursor) (from layout.Version, skipped bool) {
	switch {
	case c == Cursor{}:
		return l.last, false
	case c.Incarnation == l.incarnation && l.end(c.Version) <= l.end(l.last):
		if from = l.end(c.Version); !l.numbered {
			from = max(from, l.birth)
		}
	case c.Incarnation == l.before.Incarnation && c.Version == l.before.Version && c.Version != 0:
		// Whoever saw the last write before a clean stop has missed nothing.
		from = l.birth
	default:
		return l.ring.dropped, true
	}
	if from < l.ring.dropped {
		return l.ring.dropped, true
	}
	return from, false
}

// Pass notes that the writes up to v are published, the newest of which are no events. In a group cursors go on behind them: a
// replica that begins anew knows how many writes its base has, and not which of them were events.
func (l *Log) Pass(v layout.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.numbered && l.end(v) > l.end(l.last) {
		l.last = v
	}
}

// Begin takes in the events of one write, by add for each, until end: whoever looks
// meanwhile sees none of them or all. There is one writer, which calls in the order
// of the versions; it holds the log's lock from begin to end.
func (l *Log) Begin() { l.mu.Lock() }

// End is the end of a write's events.
func (l *Log) End() {
	l.rest()
	l.mu.Unlock()
}

// Add takes one event in; more: the next one is of the same write. key and value are
// copied.
func (l *Log) Add(v layout.Version, op Op, key, value []byte, more bool) {
	l.add(v, op, key, value, len(value), more)
}

// AddLarge is Add of a value of which the length alone is told, in bytes.
func (l *Log) AddLarge(v layout.Version, op Op, key []byte, valLen int, more bool) {
	l.add(v, op, key, nil, max(valLen, l.ring.maxValue+1), more)
}

func (l *Log) add(v layout.Version, op Op, key, value []byte, valLen int, more bool) {
	l.last = v
	if l.off {
		return
	}
	l.counts.noted++
	l.ring.add(v, op, key, value, valLen, more)
	l.wake(key)
}

// rest stops keeping events that nobody wants. Caller holds mu.
func (l *Log) rest() {
	if !l.off && len(l.waiters) == 0 && l.now().Sub(l.asked) > idle {
		l.off = true
		l.ring.clear(l.last)
	}
}

// Stats reads the numbers.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{
		Bytes: l.ring.bytes(), Events: l.ring.events, Waiting: len(l.waiters),
		Noted: l.counts.noted, Told: l.counts.told, Skipped: l.counts.skips, Asked: l.counts.asked,
	}
}

// Newest is the version of the newest write that was noted.
func (l *Log) Newest() layout.Version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// MaxValue is the length of the longest value that is kept.
func (l *Log) MaxValue() int { return l.ring.maxValue }
