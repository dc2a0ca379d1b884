package store

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// Close ends the store: writes that were accepted are finished and answered,
// new ones and reads are refused with ErrClosed; the registered memory is
// released, which ends remote access to it (region.Memory.Free); only then
// does a durable mark say that this incarnation ended cleanly and its
// successor need not wait for its leases. Idempotent; later calls return what
// the first did, and wait for it.
//
// A store that was fenced cannot be drained, and Pebble may hang: Close then
// stops what it can and returns ErrFatal. The process must end.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	if !s.awaitUnfenced(s.gate.close()) {
		s.endWork()
		return s.fence.failed()
	}
	s.queue.close()
	s.endWork()
	ended := make(chan struct{})
	go func() {
		s.workers.Wait() // for ever, if one of them is parked in Fatalf
		close(ended)
	}()
	if !s.awaitUnfenced(ended) || !s.awaitUnfenced(s.active.close()) {
		return s.fence.failed()
	}
	if s.db == nil {
		return s.closeCache()
	}
	keys := s.keyCounts()
	err := s.table.Close()
	// The mark speaks for whoever came before, too: one that was killed a moment
	// ago may have readers still.
	if !teeth.Off(teeth.F14MarkWaits) && !s.waitPredecessor() {
		return s.fence.failed()
	}
	if err == nil {
		err = s.fenceable(func() error { return s.markClean(keys) })
	}
	err = errors.Join(err, s.fenceable(s.closePebble))
	if err == nil {
		err = writeWhole(s.cfg, s.facts.beats)
	}
	return errors.Join(err, s.unlock())
}

// endWork tells the background goroutines to end.
func (s *Store) endWork() {
	close(s.stop)
	s.stopNow()
}

// awaitUnfenced waits for c; false: the store is fenced.
func (s *Store) awaitUnfenced(c <-chan struct{}) bool {
	select {
	case <-c:
	case <-s.fence.down:
	}
	return s.fence.failed() == nil
}

// closePebble closes the database. After a panic of Pebble's (see guard) some
// iterator is left open in it, over which Close panics.
func (s *Store) closePebble() (err error) {
	defer guard(&err)
	return s.db.Close()
}

// keyCounts returns the keys with a slot, per shard. A shard that was not
// filled has at least what was counted before this start.
func (s *Store) keyCounts() []uint64 {
	keys := make([]uint64, len(s.shards))
	for i, sh := range s.shards {
		sh.mu.Lock()
		keys[i] = uint64(sh.ix.Keys())
		if !sh.ix.Filled() && s.facts.keys != nil {
			keys[i] = max(keys[i], s.facts.keys[i])
		}
		sh.mu.Unlock()
	}
	return keys
}

// markClean writes the clean-stop mark, durably whatever the sync policy.
func (s *Store) markClean(keys []uint64) error {
	b := s.db.NewBatch()
	defer b.Close()
	if err := setMeta(b, metaClean, cleanMark{version: uint64(s.queue.next), keys: keys}.encode()); err != nil {
		return err
	}
	if s.clock.bounded() {
		// Nobody is shown a later time any more.
		now := s.clock.now()
		s.clock.setBound(now)
		if err := setMeta(b, metaClock, binary.LittleEndian.AppendUint64(nil, now)); err != nil {
			return err
		}
	}
	back, err := s.putBackEpoch(b)
	if err == nil && !back {
		err = s.markWatch(b)
	}
	if err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}

// stopping says whether background work is to end.
func (s *Store) stopping() bool {
	select {
	case <-s.stop:
		return true
	case <-s.fence.down:
		return true
	default:
		return false
	}
}

// enter lets a call in that uses memory and Pebble, until leave. It refuses
// with ErrClosed, or what fenced the store: after that nothing may be said.
func (s *Store) enter() (leave func(), err error) {
	if err := s.fence.failed(); err != nil {
		return nil, err
	}
	if !s.active.enter() {
		return nil, ErrClosed
	}
	return s.leave, nil
}

// activity counts calls inside, so that Close can wait for them.
type activity struct {
	n    atomic.Int64 // calls inside; plus closing once close was called
	once sync.Once
	idle chan struct{} // closed when closing and nobody is inside
}

const closing = math.MinInt64 / 2

func (a *activity) enter() bool {
	if a.n.Add(1) > 0 {
		return true
	}
	a.leave()
	return false
}

func (a *activity) leave() {
	if a.n.Add(-1) == closing {
		a.once.Do(func() { close(a.idle) })
	}
}

// close refuses newcomers and returns a channel that is closed when the last
// call has left. Called once.
func (a *activity) close() <-chan struct{} {
	if a.n.Add(closing) == closing {
		a.once.Do(func() { close(a.idle) })
	}
	return a.idle
}
