package store

import (
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// order gives a write its place in the shard's order and hands it to the
// committer. From here on it cannot fail: the memory it needs is reserved
// first, and where there is none the key will go without a slot (F32).
func (s *Store) order(w *Write) error {
	sh := s.shards[w.Shard]
	w.hash = layout.HashKey(s.seed, w.Key)
	w.noop, w.Existed, w.Err, w.class, w.older = false, false, nil, 0, nil
	if w.removes() {
		state, err := s.lockJudged(sh, w.hash, w.Key)
		if err != nil {
			return err
		}
		w.Existed = state.exists
		// Nothing to take away: no tombstone. It still travels in order, so
		// that its answer waits for the writes it was judged against.
		w.noop = !w.Existed
	} else {
		var err error
		if w.place, w.class, err = s.reserve(len(w.Key), len(w.Value), w.NoWait); err != nil {
			return err
		}
		sh.mu.Lock()
	}
	err := s.queue.push(w)
	if err == nil {
		sh.ordered = w.Version
		sh.overlayPut(w)
		sh.tellProbes(w)
	}
	sh.mu.Unlock()
	if err != nil {
		s.unreserve(w)
	}
	return err
}

// reserve takes memory for an item; class 0 if there is none. Where memory has
// to be registered first it waits for that, or fails with ErrGrowing.
func (s *Store) reserve(keyLen, valLen int, noWait bool) (place layout.Place, class uint8, err error) {
	size := layout.ItemSize(keyLen, valLen, false)
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
	s.counts.noMemory.Add(1)
	return 0, 0, nil
}

// Growing returns a channel that is closed when no memory is being registered
// for items: the moment to Submit again what was answered with ErrGrowing.
func (s *Store) Growing() <-chan struct{} { return s.slabs.Growing() }

// unreserve gives back what reserve took.
func (s *Store) unreserve(w *Write) {
	if w.class != 0 {
		s.slabs.Free(w.place, w.class)
		w.class = 0
	}
}

// A keyState is what conditions are judged on: a key in the ordered state,
// which is what is published and the writes in flight on top.
type keyState struct {
	exists  bool
	version layout.Version // 0: does not exist, or not known
}

// stateAfter is the state of a key once w has taken effect.
func stateAfter(w *Write) keyState {
	return keyState{exists: !w.removes(), version: w.Version}
}

// lockJudged returns the ordered state of a key, with the shard locked, so
// that a write ordered before unlocking is judged against exactly it. After
// an error the shard is not locked.
//
// Writes in flight and memory are asked first. Where memory does not hold the
// key and cannot prove its absence, Pebble decides; it is read outside the
// lock, under a probe that learns of the writes ordered meanwhile.
func (s *Store) lockJudged(sh *shard, h layout.Hash, key []byte) (keyState, error) {
	sh.mu.Lock()
	if state, sure := sh.judge(s, h, key); sure {
		return state, nil
	}
	p := &probe{hash: h, key: key}
	sh.probes = append(sh.probes, p)
	sh.mu.Unlock()

	s.counts.probes.Add(1)
	rec, closer, err := s.readRecord(sh, key)
	if err == nil {
		closer.Close()
	}
	sh.mu.Lock()
	sh.dropProbe(p)
	switch {
	case p.told:
		// Whatever Pebble said is older.
		return p.state, nil
	case err == nil:
		return keyState{exists: true, version: rec.version}, nil
	case errors.Is(err, ErrNotFound):
		return keyState{}, nil
	}
	sh.mu.Unlock()
	return keyState{}, err
}

// judge returns the ordered state of a key if the writes in flight or memory
// know it. Caller holds mu.
func (sh *shard) judge(s *Store, h layout.Hash, key []byte) (state keyState, sure bool) {
	if w := sh.inflight(h, key); w != nil {
		if w.noop {
			return keyState{}, true // judged absent, and still is
		}
		return stateAfter(w), true
	}
	sh.damaged = false
	if it, ok := sh.resident(s, h, key); ok {
		return keyState{exists: true, version: it.Version}, true
	}
	return keyState{}, !sh.damaged && !sh.pebbled && !sh.ix.Slotless(h)
}

// A probe is a look into Pebble on behalf of an operation to be ordered.
// When it begins there is no write of the key in flight, so Pebble holds all
// that were ordered; those ordered while it looks are told to it.
type probe struct {
	hash  layout.Hash
	key   []byte
	told  bool
	state keyState // with told: after the newest write ordered since
}

// tellProbes tells those who look at w's key of w. Caller holds mu.
func (sh *shard) tellProbes(w *Write) {
	for _, p := range sh.probes {
		if p.hash == w.hash && string(p.key) == string(w.Key) {
			p.told, p.state = true, stateAfter(w)
		}
	}
}

// dropProbe ends a probe. Caller holds mu.
func (sh *shard) dropProbe(p *probe) {
	for i := range sh.probes {
		if sh.probes[i] == p {
			last := len(sh.probes) - 1
			sh.probes[i] = sh.probes[last]
			sh.probes[last] = nil
			sh.probes = sh.probes[:last]
			return
		}
	}
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
	case q.next >= q.limit:
		return ErrEpochs
	}
	w.Version = q.next
	q.next++
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
