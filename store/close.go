package store

import (
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
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
	idle := s.gate.Close()
	s.groups.drain(idle, s.fence.Down)
	var left error
	ended := make(chan struct{})
	go func() {
		left = s.groups.close()
		close(ended)
	}()
	if !s.life.Unfenced(ended) || !s.life.Unfenced(idle) {
		return s.giveUp(ended)
	}
	s.pipe.Close()
	s.life.End()
	if !s.life.Unfenced(s.life.Done()) || !s.life.Unfenced(s.door.Close()) {
		return s.giveUp(ended)
	}
	if !s.disk.Durable() {
		leaveKept(s)
		return s.mem.Table.Close() // but for what is kept, nothing of this life is left
	}
	keys := s.filler.Keys()
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
	clean, failed := s.logSide.close(s, end)
	if !clean {
		end = nil
	}
	return errors.Join(err, left, failed, s.disk.Close(end))
}

// giveUp ends what can be ended of a store that was fenced, and returns why it was. Somebody
// may hang in Pebble for ever, and be waited for in vain: then the log stays open. groups is closed when the replicas have ended.
func (s *Store) giveUp(groups <-chan struct{}) error {
	s.life.End()
	if s.journal == nil {
		return s.fence.Failed()
	}
	over := time.NewTimer(fencedPatience)
	defer over.Stop()
	for _, ended := range []<-chan struct{}{s.life.Done(), groups} {
		select {
		case <-ended:
		case <-over.C:
			return s.fence.Failed()
		}
	}
	_ = s.journal.Close(false) // the fence says more
	return s.fence.Failed()
}

// fencedPatience is how long the end of a store that was fenced waits for its goroutines.
const fencedPatience = time.Second

// end is what is to be kept of this life with its clean-stop mark.
func (s *Store) end(keys []uint64) *disk.End {
	next, limit := s.pipe.Versions()
	e := &disk.End{Version: next, Keys: keys, Incarnation: s.mem.Incarnation}
	if s.clock.Bounded() {
		// Nobody is shown a later time any more.
		e.Clock = s.clock.Now()
		s.clock.SetBound(e.Clock)
	}
	e.Unused = s.refused.Load() && span{next, limit} == epochSpan(s.disk.Epoch())
	if s.Events.log != nil {
		e.Watched, e.Newest = true, s.Events.log.Newest()
	}
	return e
}
