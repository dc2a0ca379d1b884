package store

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
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
func (s *Store) Close() error { return s.closed() }

func (s *Store) close() error {
	if !s.awaitUnfenced(s.gate.Close()) {
		s.endWork()
		return s.fence.Failed()
	}
	s.pipe.Close()
	s.endWork()
	ended := make(chan struct{})
	go func() {
		s.workers.Wait() // for ever, if one of them is parked in Fatalf
		close(ended)
	}()
	if !s.awaitUnfenced(ended) || !s.awaitUnfenced(s.calls.close()) {
		return s.fence.Failed()
	}
	if !s.disk.Durable() {
		return s.closeCache()
	}
	keys := s.keyCounts()
	err := s.mem.Table.Close()
	// The mark speaks for whoever came before, too: one that was killed a moment
	// ago may have readers still.
	if err := s.before.wait(); err != nil {
		return err
	}
	var end *disk.End // nil: the memory may be read still
	if err == nil {
		end = s.end(keys)
	}
	return errors.Join(err, s.disk.Close(end))
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
	case <-s.fence.Down:
	}
	return s.fence.Failed() == nil
}

// keyCounts returns the keys with a slot, per shard. A shard that was not
// filled has at least what was counted before this start.
func (s *Store) keyCounts() []uint64 {
	keys := make([]uint64, len(s.shards))
	for i, sh := range s.shards {
		sh.Mu.Lock()
		keys[i] = uint64(sh.Index.Keys())
		if before := s.disk.Keys(); !sh.Index.Filled() && before != nil {
			keys[i] = max(keys[i], before[i])
		}
		sh.Mu.Unlock()
	}
	return keys
}

// end is what is to be kept of this life with its clean-stop mark.
func (s *Store) end(keys []uint64) *disk.End {
	next, limit := s.pipe.Versions()
	e := &disk.End{Version: next, Keys: keys, Incarnation: s.mem.Incarnation}
	if s.clock.Bounded() {
		// Nobody is shown a later time any more.
		e.Clock = s.clock.Now()
		s.clock.SetBound(e.Clock)
	}
	e.Unused = s.refused.Load() && next == s.firstVersion && limit == s.lastVersion &&
		s.firstVersion == layout.MakeVersion(s.disk.Epoch(), 1)
	if s.Events.log != nil {
		e.Watched, e.Newest = true, s.Events.log.Newest()
	}
	return e
}

// stopping says whether background work is to end.
func (s *Store) stopping() bool { return s.life.Over() }

// A door lets calls in that use memory and the disk, until Close. Safe for concurrent
// use.
type door struct {
	fence *base.Fence
	calls activity
	leave func() // calls.leave, bound once
}

func newDoor(fence *base.Fence) *door {
	d := &door{fence: fence}
	d.calls.idle = make(chan struct{})
	d.leave = d.calls.leave
	return d
}

// enter lets a call in that uses memory and Pebble, until leave. It refuses
// with ErrClosed, or what fenced the store: after that nothing may be said.
func (d *door) enter() (leave func(), err error) {
	if err := d.fence.Failed(); err != nil {
		return nil, err
	}
	if !d.calls.enter() {
		return nil, ErrClosed
	}
	return d.leave, nil
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
