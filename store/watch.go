package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Watching: the published writes of the store, in the order of their versions,
// which is the one order of all shards (one queue numbers the writes, one
// goroutine publishes them). A bounded ring keeps the newest; who comes too
// late for some is told that he may have missed them.
//
// An event is noted after its write was published, so nobody is told of what a
// reader could still not see, or a crash undo (rule F5). The parts of a batch
// are noted together, with versions in a row; an answer may end between them,
// but says so in every event but the last, and goes on there.

// EventOp is what happened to a key.
type EventOp uint8

const (
	EventPut    EventOp = 1 // put, or incremented
	EventDelete EventOp = 2
	EventExpire EventOp = 3 // its time was over
	EventTouch  EventOp = 4 // another expiry and version, the value as it was
)

// String names the operation.
func (o EventOp) String() string {
	switch o {
	case EventPut:
		return "put"
	case EventDelete:
		return "delete"
	case EventExpire:
		return "expire"
	case EventTouch:
		return "touch"
	}
	return fmt.Sprintf("EventOp(%d)", uint8(o))
}

// An Event is one published change of one key.
type Event struct {
	Version layout.Version
	Op      EventOp
	// More says that the next event of this watch is of the same batch: a batch
	// is whole with the first event without More.
	More   bool
	Key    []byte
	ValLen int    // bytes of the value of a put
	Value  []byte // if HasValue
	// HasValue is false where no values were asked for, and for values that are
	// too large for the ring or for an answer: get them by their key.
	HasValue bool
}

// A WatchCursor is a place in the order: behind the write of Version. The zero
// cursor is "from now". It outlives the store's life that gave it out.
type WatchCursor struct {
	Incarnation uint64
	Version     layout.Version
}

// A WatchRequest asks for events behind a cursor.
type WatchRequest struct {
	From   WatchCursor
	Prefix []byte // of keys; empty: all
	Values bool
	// MaxBytes bounds the events, each counted with its key, its value and
	// Overhead; it must have room for one with the longest key. An event that
	// alone is too large comes without its value.
	MaxBytes, Overhead int
}

// A WatchPage is the answer.
type WatchPage struct {
	Events []Event
	Next   WatchCursor // to ask from next
	// Skipped says that writes between From and the first event here may be
	// missing: the ring has lost them, or a life of the store has ended in a
	// way that leaves open what came after From.
	Skipped bool
	// More says that there is more to look at behind Next already.
	More bool
}

// watch is the store's events. The zero value of everything but the fields
// that newWatch sets is ready.
type watch struct {
	incarnation uint64
	now         func() time.Time

	mu     sync.Mutex
	ring   *ring
	off    bool           // nobody has asked for so long that nothing is kept
	asked  time.Time      // when somebody last did
	last   layout.Version // newest published write that was noted
	birth  layout.Version // no write of this life has a version up to it
	before WatchCursor    // the end of the last life, if it ended cleanly

	waiters map[string]map[*EventWaiter]struct{} // by prefix
	lengths []int                                // of the prefixes there are
	counts  watchCounts
}

type watchCounts struct{ noted, told, skips uint64 }

// WatchStats is the watching in numbers. Counters run from Open.
type WatchStats struct {
	Bytes   int    `json:"bytes"`   // memory of the events that are kept
	Events  int    `json:"events"`  // that are kept
	Waiting int    `json:"waiting"` // prefixes that somebody waits for
	Noted   uint64 `json:"noted"`   // events kept since Open
	Told    uint64 `json:"told"`    // events given out, once for each who asked
	Skipped uint64 `json:"skipped"` // answers that had to say "skipped"
}

// WatchStats reads the numbers; all zero if no events are kept.
func (s *Store) WatchStats() WatchStats {
	w := s.watch
	if w == nil {
		return WatchStats{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return WatchStats{
		Bytes: w.ring.bytes(), Events: w.ring.events, Waiting: len(w.waiters),
		Noted: w.counts.noted, Told: w.counts.told, Skipped: w.counts.skips,
	}
}

// watchIdle is after how long without anybody asking the events are dropped
// and not kept any more: what is not watched costs nothing. It also bounds for
// how long a cursor is good that nobody comes back with.
const watchIdle = 10 * time.Minute

// MinWatchBytes and MaxWatchBytes bound Config.WatchBytes, unless it is 0.
const (
	MinWatchBytes = ringSegments * minRingSegment
	MaxWatchBytes = 1 << 30
)

// watchLook bounds the events looked at under the lock, which the publisher
// wants: about a hundred microseconds. A batch is looked at to its end.
const watchLook = 1024

// newWatch returns the events of a life that begins behind birth. limit 0: none.
func newWatch(limit int, incarnation uint64, birth layout.Version, before WatchCursor) *watch {
	if limit == 0 {
		return nil
	}
	w := &watch{
		incarnation: incarnation, now: time.Now, ring: newRing(limit),
		last: birth, birth: birth, before: before, waiters: make(map[string]map[*EventWaiter]struct{}),
	}
	w.ring.dropped = birth
	w.asked = w.now()
	return w
}

// Watch returns what has been published behind a cursor. It never waits: if
// there is nothing, AwaitEvents tells when to ask again.
//
// Errors: ErrUnsupported if the store keeps no events, ErrKeyTooLarge for the
// prefix, ErrClosed, ErrFatal.
func (s *Store) Watch(req WatchRequest) (WatchPage, error) {
	leave, err := s.enter()
	if err != nil {
		return WatchPage{}, err
	}
	defer leave()
	switch {
	case s.watch == nil:
		return WatchPage{}, ErrUnsupported
	case len(req.Prefix) > layout.MaxKeyLen:
		return WatchPage{}, ErrKeyTooLarge
	}
	return s.watch.page(req), nil
}

func (w *watch) page(req WatchRequest) (p WatchPage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = w.now()
	if w.off {
		w.off = false
		w.ring.clear(w.last)
	}
	from, skipped := w.resume(req.From)
	p.Skipped = skipped
	if skipped {
		w.counts.skips++
	}
	next, left, looked := from, req.MaxBytes, 0
	var open bool // the newest event of p has further ones in its batch, under this prefix or not
	w.ring.after(from, func(e ringEvent) bool {
		looked++
		if looked > watchLook && !open {
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
		next = w.last
	}
	p.Next = WatchCursor{Incarnation: w.incarnation, Version: next}
	w.counts.told += uint64(len(p.Events))
	return p
}

// event copies an event for an answer and says what it takes there.
func (e *ringEvent) event(req WatchRequest) (Event, int) {
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
func (w *watch) resume(c WatchCursor) (from layout.Version, skipped bool) {
	switch {
	case c == WatchCursor{}:
		return w.last, false
	case c.Incarnation == w.incarnation && c.Version <= w.last:
		from = max(c.Version, w.birth)
	case c.Incarnation == w.before.Incarnation && c.Version == w.before.Version && c.Version != 0:
		// Whoever saw the last write before a clean stop has missed nothing.
		from = w.birth
	default:
		return w.ring.dropped, true
	}
	if from < w.ring.dropped {
		return w.ring.dropped, !teeth.Off(teeth.D5WatchSkipped)
	}
	return from, false
}

// record takes one event in. Caller holds mu.
func (w *watch) record(v layout.Version, op EventOp, key, value []byte, more bool) {
	w.last = v
	if w.off {
		return
	}
	w.counts.noted++
	w.ring.add(v, op, key, value, more)
	if !more || !teeth.Off(teeth.D5WatchWakes) {
		w.wake(key)
	}
}

// rest stops keeping events that nobody wants. Caller holds mu.
func (w *watch) rest() {
	if !w.off && len(w.waiters) == 0 && w.now().Sub(w.asked) > watchIdle {
		w.off = true
		w.ring.clear(w.last)
	}
}

// An EventWaiter is somebody who waits for an event.
type EventWaiter struct {
	prefix string
	wake   func()
}

// AwaitEvents has wake called, once, when an event of a key with this prefix
// is noted. It must not block and must not call the store: it is called on the
// publishing goroutine. nil: there may be such an event behind this cursor
// already, so ask again; and if the store keeps no events. Whoever stops
// waiting calls ForgetEvents.
func (s *Store) AwaitEvents(prefix []byte, from WatchCursor, wake func()) *EventWaiter {
	if s.watch == nil {
		return nil
	}
	return s.watch.await(prefix, from, wake)
}

func (w *watch) await(prefix []byte, from WatchCursor, wake func()) *EventWaiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	missed := from.Version < w.last && !teeth.Off(teeth.D5WatchNoGap)
	if w.off || from.Incarnation != w.incarnation || missed {
		return nil
	}
	e := &EventWaiter{prefix: string(prefix), wake: wake}
	set := w.waiters[e.prefix]
	if set == nil {
		set = make(map[*EventWaiter]struct{})
		w.waiters[e.prefix] = set
		w.countLengths()
	}
	set[e] = struct{}{}
	return e
}

// ForgetEvents ends a wait. wake may be being called just now.
func (s *Store) ForgetEvents(e *EventWaiter) {
	if e == nil {
		return
	}
	w := s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	set := w.waiters[e.prefix]
	delete(set, e)
	if set != nil && len(set) == 0 {
		delete(w.waiters, e.prefix)
		w.countLengths()
	}
	w.asked = w.now()
}

// wake calls those who wait for a key. Caller holds mu.
func (w *watch) wake(key []byte) {
	gone := false
	for _, n := range w.lengths {
		if n > len(key) {
			break
		}
		set := w.waiters[string(key[:n])]
		if set == nil {
			continue
		}
		for e := range set {
			e.wake()
		}
		delete(w.waiters, string(key[:n]))
		gone = true
	}
	if gone {
		w.countLengths()
	}
}

// countLengths notes how long the prefixes are that are waited for: an event
// costs one look for each. Caller holds mu.
func (w *watch) countLengths() {
	var seen [layout.MaxKeyLen + 1]bool
	for p := range w.waiters {
		seen[len(p)] = true
	}
	w.lengths = w.lengths[:0]
	for n, ok := range seen {
		if ok {
			w.lengths = append(w.lengths, n)
		}
	}
}

// metaWatch is written with the clean-stop mark, which says whether it counts:
// u64 incarnation, u64 version of the newest write, u64 epoch of that life. The
// epoch must be the one before this life's: in a restored copy it is not.
const metaWatch = "watch"

// markWatch adds to the batch of the clean-stop mark where this life ends.
func (s *Store) markWatch(b *pebble.Batch) error {
	if s.watch == nil {
		return nil
	}
	s.watch.mu.Lock()
	last := s.watch.last
	s.watch.mu.Unlock()
	v := binary.LittleEndian.AppendUint64(nil, s.incarnation)
	v = binary.LittleEndian.AppendUint64(v, uint64(last))
	return setMeta(b, metaWatch, binary.LittleEndian.AppendUint64(v, uint64(s.facts.epoch)))
}

// openWatch begins to keep events. Nothing has been ordered yet.
func (s *Store) openWatch() error {
	var before WatchCursor
	if s.db != nil && s.facts.clean != nil {
		b, err := getMeta(s.db, metaWatch)
		if err != nil {
			return err
		}
		if len(b) == 24 && binary.LittleEndian.Uint64(b[16:])+1 == uint64(s.facts.epoch) {
			before.Incarnation = binary.LittleEndian.Uint64(b)
			before.Version = layout.Version(binary.LittleEndian.Uint64(b[8:]))
		}
	}
	s.watch = newWatch(s.cfg.WatchBytes, s.incarnation, layout.MakeVersion(s.facts.epoch, 0), before)
	return nil
}
