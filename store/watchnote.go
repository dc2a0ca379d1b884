package store

// note takes in a write that was just published. It is called by the publisher
// alone, for every write in order, and copies what it keeps. A nil watch keeps
// nothing.
func (w *watch) note(wr *Write) {
	if w == nil || wr.noop {
		return
	}
	if wr.Op == OpBatch {
		for _, e := range wr.effects {
			w.note(e)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	op := EventPut
	if wr.removes() {
		op = EventDelete
	}
	w.record(wr.Version, op, wr.Key, wr.Value, false)
	w.rest()
}
