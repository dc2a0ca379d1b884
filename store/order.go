package store

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A patience says for what an ordering may wait.
type patience struct {
	disk   bool // else ErrMustAsk
	memory bool // for memory to be registered; else ErrGrowing
}

// order gives a write its place in the shard's order and hands it to the
// committer. From here on it cannot fail: the memory it needs is reserved
// first, and where there is none the key will go without a slot (F32).
func (s *Store) order(w *Write, wait patience) error {
	sh := s.shards[w.Shard]
	w.begin(s.seed)
	for _, e := range w.effects {
		s.touch(e.hash)
	}
	if w.mayExpire() {
		if err := s.needClock(wait.disk); err != nil {
			return err
		}
	}
	for rounds := 0; ; rounds++ {
		if rounds == maxRounds && !teeth.Off(teeth.D5OrderEnds) {
			s.unreserve(w)
			s.counts.unsettled.Add(1)
			return errUnsettled
		}
		// Memory is asked for outside the shard's lock: it may have to be taken
		// from keys of other shards. What an increment or a touch needs is known
		// only once it was judged, so these come by twice.
		if err := s.reserveAll(w, wait.memory); err != nil {
			s.unreserve(w)
			return err
		}
		if err := s.lockEffects(sh, w.effects, wait.disk); err != nil {
			s.unreserve(w)
			return err
		}
		ready, err := s.decide(sh, w)
		if err != nil {
			sh.mu.Unlock()
			s.unreserve(w)
			return err
		}
		if ready {
			break
		}
		sh.mu.Unlock()
		if teeth.Enabled {
			teeth.At("order.unsettled", uint64(rounds))
		}
	}
	if w.noop {
		s.unreserve(w) // from the queue on it is somebody else's
	}
	if w.Err != nil && teeth.Off(teeth.F5RefusalInOrder) {
		// It changes nothing, so why wait?
		sh.mu.Unlock()
		s.gate.leave(w.charge, 1)
		w.Done(w)
		return nil
	}
	err := s.queue.push(w)
	if err == nil {
		sh.ordered = w.Version
		for _, e := range w.effects {
			if !e.noop {
				sh.overlayPut(e)
				if !teeth.Off(teeth.F6BatchTold) || e.batch == nil {
					sh.tellProbes(e)
				}
			}
			e.state = keyState{} // it refers to others
		}
		s.dedup.ordered(w)
	}
	sh.mu.Unlock()
	if err != nil {
		s.unreserve(w)
	}
	return err
}

// decide judges a write whose effects' states are known. ready: it may be
// queued as it is; else it needs memory of another size, or a key expired just
// now, and it is to be judged again. Caller holds mu.
func (s *Store) decide(sh *shard, w *Write) (ready bool, err error) {
	if w.Op == opForget {
		s.stillObsolete(w)
		return true, nil
	}
	again, err := s.dedup.look(w)
	if err != nil {
		s.counts.tooLate.Add(1)
		return false, err
	}
	if again {
		w.repeat()
		return true, nil
	}
	for _, e := range w.effects {
		if e.TTL > 0 && !e.judged() {
			e.state, _ = sh.judge(s, e.hash, e.Key, false) // for unlist alone
		}
	}
	w.evaluate(s.clock)
	if w.noop {
		return true, nil
	}
	for _, e := range w.effects {
		if e.puts() && e.size != e.itemSize() {
			if e.Op == OpTouch && int64(len(e.Key)+len(e.Value)) > w.charge {
				w.charge = int64(len(e.Key) + len(e.Value))
				return false, errCharge
			}
			return false, nil
		}
	}
	if !s.hide(sh, w) {
		return false, nil
	}
	if w.Op == OpTouch && !w.state.owned {
		w.Value = bytes.Clone(w.Value) // it is an item's or another write's
	}
	return true, nil
}

// maxRounds bounds how often a write is judged before it is ordered. Two are
// usual for increments and touches; each further one means that somebody else
// changed the key's value to another length, or that the key expired, between
// the reservation and the lock.
const maxRounds = 100

// errUnsettled: nothing was ordered, and to try again later is right.
var errUnsettled = fmt.Errorf("%w: the key was another one each time that its memory was ready, %d times", ErrOverloaded, maxRounds)

// errCharge: the value that a touch found is larger than what it was admitted
// with; it is to be admitted again with what is in charge now.
var errCharge = errors.New("store: admitted with less than it takes")

// expires says whether the item that a put stores carries an expiry, as far as
// that is known: an increment keeps the one of what it finds, so only its
// evaluation tells. The one place that decides it: memory that was reserved by
// another answer would never fit.
func (w *Write) expires() bool {
	return w.expiry != 0 || w.TTL > 0 && w.Op != OpIncrement
}

// itemSize is the size of the item that a put stores.
func (w *Write) itemSize() int {
	return layout.ItemSize(len(w.Key), len(w.Value), w.expires())
}

// reserveAll takes memory for the items of a write as far as their size is
// known. It may be called again when they have changed.
func (s *Store) reserveAll(w *Write, wait bool) error {
	for _, e := range w.effects {
		switch {
		case e.Op == OpDelete, e.size == 0 && e.needsValue() && e.Value == nil:
			continue
		case e.size == e.itemSize():
			continue
		}
		s.unreserveKey(e)
		size := e.itemSize()
		place, class, err := s.reserve(size, !wait)
		if err != nil {
			return err
		}
		e.place, e.class, e.size = place, class, size
	}
	return nil
}

// reserve takes memory for an item of size bytes; class 0 if there is none. Where memory has
// to be registered first it waits for that, or fails with ErrGrowing.
func (s *Store) reserve(size int, noWait bool) (place layout.Place, class uint8, err error) {
	if noWait {
		place, class, err = s.slabs.AllocWithin(size, 0)
	} else {
		place, class, err = s.slabs.Alloc(size)
	}
	switch {
	case err == nil:
		return place, class, nil
	case noWait && errors.Is(err, ErrGrowing):
		return 0, 0, ErrGrowing
	}
	if place, class, ok := s.makeRoom(size); ok {
		return place, class, nil
	}
	s.counts.noMemory.Add(1)
	return 0, 0, nil
}

// Growing returns a channel that is closed when no memory is being registered
// for items: the moment to Submit again what was answered with ErrGrowing.
func (s *Store) Growing() <-chan struct{} { return s.slabs.Growing() }

// unreserve gives back what reserveAll took.
func (s *Store) unreserve(w *Write) {
	for _, e := range w.effects {
		s.unreserveKey(e)
	}
}

func (s *Store) unreserveKey(e *Write) {
	if e.class != 0 {
		s.slabs.Free(e.place, e.class)
	}
	e.class, e.size = 0, 0
}

// A queue takes ordered writes to the committer and numbers them. One lock for
// both makes version order and commit order the same, over all shards: places
// are shared by the shards, so a version must be unique in the whole store for
// an item's checksum to mean anything (F2).
type queue struct {
	mu     sync.Mutex
	writes []*Write
	next   layout.Version // the next version to give out
	limit  layout.Version // versions below it may be given out
	closed bool
	wake   chan struct{} // capacity 1: there is something
}

func newQueue(first, limit layout.Version) *queue {
	return &queue{next: first, limit: limit, wake: make(chan struct{}, 1)}
}

// push numbers a write and queues it. Caller holds the shard's lock, so that
// a shard's writes are queued in the order of its versions.
func (q *queue) push(w *Write) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case q.next+layout.Version(max(1, len(w.effects))) > q.limit:
		return ErrEpochs
	}
	// A version for each part of a batch, so that none is used twice; the
	// batch has the last. One that has no effect needs one.
	if !w.noop {
		for i, e := range w.effects {
			e.Version = q.next
			if !teeth.Off(teeth.F2PartVersions) || i == len(w.effects)-1 {
				q.next++
			}
		}
		w.Version = q.next - 1
	} else {
		w.Version = q.next
		q.next++
	}
	q.writes = append(q.writes, w)
	if len(q.writes) == 1 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// take returns everything queued, in order, and leaves spare as the empty
// queue. done: the queue is closed and this was the last.
func (q *queue) take(spare []*Write) (writes []*Write, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	writes, q.writes = q.writes, spare[:0]
	return writes, q.closed
}

// idle says whether nothing is queued.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.writes) == 0
}

// close refuses further writes and wakes the committer.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
