package store

import "github.com/rdmakv/rdmakv/internal/teeth"

// noteGroup takes in the writes of a group that was just published. It is
// called by the publisher alone, with every group in order, before the writers
// are answered: who has his answer finds the event.
func (w *watch) noteGroup(g *group) {
	if w == nil || teeth.Off(teeth.F5WatchPublished) {
		return
	}
	for _, wr := range g.writes {
		w.note(wr)
	}
}

// noteCommitted is where a watch would be told too early.
func (w *watch) noteCommitted(g *group) {
	if w != nil && teeth.Off(teeth.F5WatchPublished) {
		for _, wr := range g.writes {
			w.note(wr)
		}
	}
}

// note takes in one write with all its effects, and copies what it keeps.
// Whoever looks meanwhile sees none of them or all.
func (w *watch) note(wr *Write) {
	last := -1 // the last effect that is one
	for i, e := range wr.effects {
		if !e.noop {
			last = i
		}
	}
	if last < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range wr.effects {
		if !e.noop {
			more := i < last && !teeth.Off(teeth.D5WatchBatch)
			w.record(e.Version, e.event(), e.Key, e.Value, more)
		}
	}
	w.rest()
}

// event is what a write is called to those who watch.
func (e *Write) event() EventOp {
	switch {
	case e.due != 0:
		return EventExpire
	case e.removes():
		return EventDelete
	case e.Op == OpTouch:
		return EventTouch
	}
	return EventPut
}
