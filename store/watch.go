package store

import (
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/events"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An EventOp is what happened to a key.
type EventOp = events.Op

const (
	EventPut    = events.Put    // put, or incremented
	EventDelete = events.Delete // deleted
	EventExpire = events.Expire // its time was over
	EventTouch  = events.Touch  // another expiry and version, the value as it was
)

// An Event is one published change of one key.
type Event = events.Event

// A WatchCursor is a place in the order: behind the write of Version. The zero
// cursor is "from now". It outlives the store's life that gave it out.
type WatchCursor = events.Cursor

// A WatchRequest asks for events behind a cursor, a WatchPage is the answer.
type (
	WatchRequest = events.Request
	WatchPage    = events.Page
)

// An EventWaiter is somebody who waits for an event.
type EventWaiter = events.Waiter

// MinWatchBytes and MaxWatchBytes bound Config.WatchBytes, unless it is 0.
const (
	MinWatchBytes = events.MinBytes
	MaxWatchBytes = events.MaxBytes
)

// WatchStats is the watching in numbers. Counters run from Open.
type WatchStats = events.Stats

// Events is what a store tells of published changes to those who watch. Safe for
// concurrent use.
type Events struct {
	log   *events.Log // nil: no events are kept
	bytes int         // Config.WatchBytes
	door  *base.Door
	parts *Parts // is told of what is published, too
	// Each group of replicas has events of its own, because its versions are in no order with others. of has them by
	// shard; nil: the shard is in no group. If any is (grouped), nobody is told of the events of such shards.
	of      []atomic.Pointer[events.Log]
	grouped atomic.Bool
	past    atomic.Pointer[WatchStats] // of groups that are here no more; nil: none
}

// WatchStats reads the numbers; all zero if no events are kept.
func (e *Events) WatchStats() WatchStats {
	if e.log == nil {
		return WatchStats{}
	}
	sum := e.log.Stats()
	if past := e.past.Load(); past != nil {
		sum.Add(*past)
	}
	seen := make(map[*events.Log]bool)
	for i := range e.of {
		if log := e.of[i].Load(); log != nil && !seen[log] {
			seen[log] = true
			sum.Add(log.Stats())
		}
	}
	return sum
}

// shows reports whether a put of a value of n bytes is kept with its value: it is copied from the
// write when that is published.
func (e *Events) shows(n int) bool { return e.log != nil && n <= e.log.MaxValue() }

// Watch returns what has been published behind a cursor. It never waits: if
// there is nothing, AwaitEvents tells when to ask again.
//
// Errors: ErrUnsupported if the store keeps no events or has replicas, ErrKeyTooLarge for the
// prefix, ErrClosed, ErrFatal.
func (e *Events) Watch(req WatchRequest) (WatchPage, error) {
	if e.grouped.Load() {
		return WatchPage{}, ErrUnsupported
	}
	return e.page(e.log, req)
}

// WatchGroup is Watch of the group that a shard is in. Its cursors are good at every replica of the group. One that
// stands behind what this replica has published is answered as one that is too old; a replica that leads, and
// has been confirmed since the cursor was given out (Confirm), has published that.
//
// Errors as of Watch; ErrShard for a shard of no group.
func WatchGroup(s *Store, shard uint16, req WatchRequest) (WatchPage, error) {
	if int(shard) >= len(s.Events.of) || s.groups.of[shard].Load() == nil {
		return WatchPage{}, ErrShard
	}
	return s.Events.page(s.Events.of[shard].Load(), req)
}

// AwaitGroup is AwaitEvents of the group that a shard is in.
func AwaitGroup(s *Store, shard uint16, prefix []byte, from WatchCursor, wake func()) *EventWaiter {
	if log := s.Events.of[shard].Load(); log != nil {
		return log.Await(prefix, from, wake)
	}
	return nil
}

// KeepEvents says that somebody watches the group that a shard is in, at another replica: this one keeps its events, too,
// so that the watch can go on here.
func KeepEvents(s *Store, shard uint16) {
	if log := s.Events.of[shard].Load(); log != nil {
		log.Keep()
	}
}

// begin has a group keep events of its own, behind the newest write that is published here.
func (e *Events) begin(group consensus.GroupID, shards []uint16, newest layout.Version) {
	e.grouped.Store(true)
	if e.log == nil {
		return
	}
	log := events.NewOfGroup(max(e.bytes*len(shards)/len(e.of), MinWatchBytes), uint64(group), newest)
	for _, id := range shards {
		e.of[id].Store(log)
	}
}

// pass is told of the newest write of a group that is published, when all events up to it are noted.
func (e *Events) pass(shards []uint16, newest layout.Version) {
	if log := e.of[shards[0]].Load(); log != nil {
		log.Pass(newest)
	}
}

// restart is told that another state has taken the place of a group's.
func (e *Events) restart(shards []uint16, newest layout.Version) {
	if log := e.of[shards[0]].Load(); log != nil {
		log.Restart(newest)
	}
}

// end is told that the store has given up its replica of a group. Who waits for an event is woken, and is told that the group is not here when he asks. A group that gets a
// replica here later begins anew, and the store's own events go on to be told to nobody. One goroutine at a time calls it, and begin.
func (e *Events) end(shards []uint16) {
	log := e.of[shards[0]].Load()
	for _, id := range shards {
		e.of[id].Store(nil)
	}
	if log == nil {
		return
	}
	sum := WatchStats{}
	if past := e.past.Load(); past != nil {
		sum = *past
	}
	its := log.Stats()
	its.Bytes, its.Events, its.Waiting = 0, 0, 0
	sum.Add(its)
	e.past.Store(&sum)
	log.Restart(log.Newest())
}

func (e *Events) page(log *events.Log, req WatchRequest) (WatchPage, error) {
	leave, err := e.door.Enter()
	if err != nil {
		return WatchPage{}, err
	}
	defer leave()
	switch {
	case log == nil:
		return WatchPage{}, ErrUnsupported
	case len(req.Prefix) > layout.MaxKeyLen:
		return WatchPage{}, ErrKeyTooLarge
	}
	return log.Page(req), nil
}

// note takes in writes that were just published. It is called with the writes of each shard in their
// order, before the writers are answered: who has his answer finds the event.
func (e *Events) note(writes []*flight.Flight) {
	for _, f := range writes {
		for _, of := range f.Effects {
			if !of.Noop {
				e.parts.Note(of.Shard, of.Key, of.Value, of.Removes(), of.Version, f.Op == nil)
			}
		}
		log := e.of[f.Shard].Load()
		if log == nil && !e.grouped.Load() {
			log = e.log
		}
		if log != nil {
			noteEvents(log, f)
		}
	}
}

// noteEvents takes in one write with all its effects.
func noteEvents(log *events.Log, f *flight.Flight) {
	last := -1 // the last effect that is one
	for i := range f.Effects {
		if told(f.Effects[i]) {
			last = i
		}
	}
	if last < 0 {
		return
	}
	log.Begin()
	for i, of := range f.Effects {
		switch {
		case !told(of):
		case layout.IsHead(of.Value) && !of.Removes():
			// As of any value that is too large for an event: its length, and none of it.
			log.AddLarge(of.Version, eventOf(&of.Effect), of.Key, int(layout.WholeLen(of.Value)), i < last)
		default:
			log.Add(of.Version, eventOf(&of.Effect), of.Key, of.Value, i < last)
		}
	}
	log.End()
}

// told says whether those who watch are told of an effect. Of the parts of a value nobody is: the
// event is that of its head.
func told(e *flight.Effect) bool { return !e.Noop && !layout.IsPartKey(e.Key) }

// eventOf is what an effect is called to those who watch.
func eventOf(e *base.Effect) EventOp {
	switch {
	case e.Due != 0:
		return EventExpire
	case e.Kind == OpDelete:
		return EventDelete
	case e.Kind == OpTouch:
		return EventTouch
	}
	return EventPut
}

// AwaitEvents has wake called, once, when an event of a key with this prefix
// is noted. It must not block and must not call the store: it is called on the
// publishing goroutine. nil: there may be such an event behind this cursor
// already, so ask again; and if the store keeps no events. Whoever stops
// waiting calls ForgetEvents.
func (e *Events) AwaitEvents(prefix []byte, from WatchCursor, wake func()) *EventWaiter {
	if e.log == nil {
		return nil
	}
	return e.log.Await(prefix, from, wake)
}

// ForgetEvents ends a wait. wake may be being called just now.
func (e *Events) ForgetEvents(w *EventWaiter) {
	if w != nil {
		w.Forget()
	}
}

// openWatch begins to keep events. Nothing has been ordered yet.
func (s *Store) openWatch() error {
	incarnation, version, err := s.disk.Watched()
	if err != nil {
		return err
	}
	before := WatchCursor{Incarnation: incarnation, Version: version}
	log := events.New(s.cfg.WatchBytes, s.mem.Incarnation, layout.MakeVersion(s.disk.Epoch(), 0), before)
	s.Events = &Events{log: log, bytes: s.cfg.WatchBytes, door: s.door, parts: s.parts, of: make([]atomic.Pointer[events.Log], s.cfg.Shards)}
	return nil
}
