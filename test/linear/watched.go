package linear

import (
	"fmt"
	"sync"
)

// A WatchEvent is what a watch told of one write, or that it had to leave some
// out.
type WatchEvent struct {
	Key     int // in the object
	Gone    bool
	Val     Value  // where HasVal
	HasVal  bool   // a touch has none
	Version uint64 // of the write
	Skipped bool   // a gap: the other fields say nothing
}

// Watched is what a watch of all keys showed, object by object. A watch that
// ends and is resumed goes on in the same Watched: there must be no gap that was
// not announced. It is safe for concurrent use.
type Watched struct {
	mu     sync.Mutex
	since  int64
	by     map[int][]WatchEvent
	gone   map[int]bool
	gaps   int
	events int
}

// NewWatched begins with a watch that is established: every write that is called
// after the stamp must be shown.
func NewWatched(since int64) *Watched {
	return &Watched{since: since, by: map[int][]WatchEvent{}, gone: map[int]bool{}}
}

// Add records an event of an object.
func (w *Watched) Add(object int, e WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if !w.gone[object] {
		w.by[object] = append(w.by[object], e)
	}
}

// Gap records that the watch left something out, of any object.
func (w *Watched) Gap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gaps++
	for id, events := range w.by {
		w.by[id] = append(events, WatchEvent{Skipped: true})
	}
	w.since = Infinity // what comes first after it is not known
}

// Count is how many events and gaps there were.
func (w *Watched) Count() (events, gaps int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events, w.gaps
}

// Check compares what the watch told of an object with its history, in which
// nothing is added any more, and forgets it. Events may still be missing at the
// end, where the watch lags behind.
func (w *Watched) Check(o *Object) error {
	w.mu.Lock()
	events, since := w.by[o.ID], w.since
	delete(w.by, o.ID)
	w.gone[o.ID] = true
	w.mu.Unlock()
	return checkWatch(o, events, since)
}

// checkWatch: versions rise, nothing is invented, and between the first and the
// last event of a stretch without a gap nothing is missing.
func checkWatch(o *Object, events []WatchEvent, since int64) error {
	last := uint64(0)
	h := newWritten(o)
	for from := 0; from < len(events); {
		to := from
		for to < len(events) && !events[to].Skipped {
			e := &events[to]
			if e.Version <= last {
				return fmt.Errorf("object %d: the watch tells of version %d after %d", o.ID, e.Version, last)
			}
			last = e.Version
			if err := h.explains(o, e); err != nil {
				return err
			}
			to++
		}
		if from < to {
			first := events[from].Version
			if from == 0 && since != Infinity {
				first = 0 // what came before is judged by its call
			}
			if err := h.complete(o, events[from:to], first, last, since); err != nil {
				return err
			}
		}
		from = to + 1
	}
	return nil
}

// written is what the history says about writes.
type written struct {
	records  map[keyVersion]bool // key and number of every record that was written or tried
	versions map[uint64]*Op      // acknowledged writes of one key by version
	numbers  bool                // some increment or number may have been written without a version
}

type keyVersion struct {
	key int
	n   int64
}

func newWritten(o *Object) *written {
	h := &written{records: map[keyVersion]bool{}, versions: map[uint64]*Op{}}
	for _, op := range o.Ops {
		if !op.In.Op.Writes() || op.Out.Refused || op.Out.NotNumber {
			continue
		}
		for _, p := range op.written() {
			if p.Val.Num {
				h.numbers = h.numbers || op.Out.Version == 0 || op.In.Op == OpBatch
			} else if !p.Delete {
				h.records[keyVersion{p.Key, p.Val.N}] = true
			}
		}
		if op.In.Op == OpIncrement && op.Out.Version == 0 {
			h.numbers = true
		}
		if v := op.Out.Version; v != 0 && op.In.Op != OpBatch {
			h.versions[v] = op
		}
	}
	return h
}

// explains: an event tells of a write that some client made.
func (h *written) explains(o *Object, e *WatchEvent) error {
	if op := h.versions[e.Version]; op != nil {
		switch {
		case op.In.Key != e.Key:
		case e.Gone:
			if op.In.Op == OpDelete {
				return nil
			}
		case op.In.Op == OpPut && (!e.HasVal || e.Val == op.In.Val),
			op.In.Op == OpIncrement && (!e.HasVal || e.Val == op.Out.Val),
			op.In.Op == OpTouch && !e.HasVal:
			return nil
		}
		return fmt.Errorf("object %d: the watch tells of %+v, which was %v", o.ID, *e, op)
	}
	if e.Gone || !e.HasVal {
		return nil // a deadline, or a write whose version was not told
	}
	if e.Val.Num && h.numbers || !e.Val.Num && h.records[keyVersion{e.Key, e.Val.N}] {
		return nil
	}
	return fmt.Errorf("object %d: the watch tells of %+v, which nobody wrote", o.ID, *e)
}

// complete: every acknowledged write of a version above first (or that was
// called after the watch began) and up to last is among the events.
func (h *written) complete(o *Object, events []WatchEvent, first, last uint64, since int64) error {
	versions := map[uint64]bool{}
	records := map[keyVersion]bool{}
	for _, e := range events {
		versions[e.Version] = true
		if e.HasVal && !e.Val.Num {
			records[keyVersion{e.Key, e.Val.N}] = true
		}
	}
	for _, op := range o.Ops {
		v := op.Out.Version
		if !op.In.Op.Writes() || v == 0 || v > last || op.Out.Refused || op.Out.Unknown {
			continue
		}
		parts := uint64(max(1, len(op.In.Parts)))
		if first == 0 && op.Call <= since || first > 0 && v < first+parts-1 {
			continue
		}
		if op.In.Op != OpBatch {
			if !versions[v] {
				return fmt.Errorf("object %d: the watch left out version %d: %v", o.ID, v, op)
			}
			continue
		}
		for _, p := range op.In.Parts {
			if !p.Delete && !p.Val.Num && !records[keyVersion{p.Key, p.Val.N}] && !bare(events, p.Key, v-parts+1, v) {
				return fmt.Errorf("object %d: the watch left out %v of the batch %v; it told %+v", o.ID, p.Val, op, near(events, v))
			}
		}
	}
	return nil
}

// bare reports whether there is an event without a value, which is too large for
// it, of a key and with one of the versions of a batch.
func bare(events []WatchEvent, key int, first, last uint64) bool {
	for _, e := range events {
		if e.Key == key && !e.Gone && !e.HasVal && e.Version >= first && e.Version <= last {
			return true
		}
	}
	return false
}

// near is the events about a version.
func near(events []WatchEvent, v uint64) (out []WatchEvent) {
	for _, e := range events {
		if e.Version+4 > v && e.Version < v+4 {
			out = append(out, e)
		}
	}
	return out
}
