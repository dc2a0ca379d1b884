package store

import (
	"bytes"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// Keys that have expired are absent at once, for everybody. The expirer takes
// them away for good, through the order like everybody who deletes: on the
// condition that the key is still the one that expired.
//
// It finds them in Pebble, where every key that expires is listed under the
// second in which it will have:
//
//	shard | kind expiry | second, u64 BE | key    ->  an empty record
//
// The entry is written in the batch that writes the key, so there is none
// missing. It costs no memory however many keys expire, needs no walk over the
// others, and is there after a restart. A write that knows the old expiry
// removes its entry; one that does not, a put of a key out of memory, leaves it
// and the expirer removes it when its second has come. A key that is written
// each second has one entry per second at most.

const (
	expireEvery = 250 * time.Millisecond
	expireChunk = 256 // keys deleted at a time, over all shards
	expireRetry = 2   // seconds until the next try, where one has failed
)

// runExpirer removes expired keys until the store ends.
func (s *Store) runExpirer() {
	s.life.Every(expireEvery, func() {
		for more := true; more && !s.life.Over(); {
			var err error
			if more, err = s.expireSome(expireChunk); err != nil {
				more = false
				if !s.life.Over() && !errors.Is(err, ErrOverloaded) {
					s.fence.Report(levelError, "removal of expired keys", "err", err)
				}
			}
		}
	})
}

// expireSome removes up to n expired keys. more: there may be others by now.
func (s *Store) expireSome(n int) (more bool, err error) {
	now := s.clock.Now() / 1_000_000
	var found []*Write
	for _, sh := range s.shards {
		if len(found) == n {
			return true, s.removeExpired(found)
		}
		if !sh.TakeDue(now) {
			continue
		}
		next := uint64(0)
		found, next, err = s.findDue(sh, now, found, n)
		sh.DueAt(next)
		if err != nil {
			break
		}
	}
	return len(found) == n, errors.Join(err, s.removeExpired(found))
}

// removeExpired runs the deletes of the expirer. After an error it will look at
// their shards again, but not at once.
func (s *Store) removeExpired(found []*Write) error {
	err := s.runInternal(found)
	if err != nil {
		again := s.clock.Now()/1_000_000 + expireRetry
		for _, w := range found {
			s.shards[w.Shard].DueAt(again)
		}
	}
	return err
}

// findDue appends deletes for the keys of a shard whose second has come, up to
// n in all, and returns the second of the first that is left.
func (s *Store) findDue(sh *shard.Shard, now uint64, found []*Write, n int) (_ []*Write, next uint64, err error) {
	next = clock.NeverDue
	err = s.disk.EachDue(sh.ID, func(due uint64, key []byte) bool {
		if due > now || len(found) == n {
			next = due
			return false
		}
		found = append(found, dueWrite(sh.ID, key, due))
		return true
	})
	switch {
	case errors.Is(err, ErrCorrupt): // an entry that stays as it is
		next = now + 60
	case err != nil:
		next = now
	}
	return found, next, err
}

// dueWrite is the removal of a key that is listed under a second that is over.
func dueWrite(shard uint16, key []byte, due uint64) *Write {
	w := &Write{Op: Op{Shard: shard, Kind: OpDelete, Key: bytes.Clone(key)}}
	w.flight.Due = due
	return w
}

// runInternal orders writes of the store's own and waits until all that were
// ordered are published, or the store ends. They pass the same gate as others;
// when that is closed to them the rest is left out. One that fails does not
// keep the others from being tried.
func (s *Store) runInternal(writes []*Write) (err error) {
	done := make(chan struct{}, len(writes))
	n := 0
	for _, w := range writes {
		w.Done = func(*Write) { done <- struct{}{} }
		f := w.begin()
		f.Charge = int64(len(w.Key) + len(f.Forget)*base.SlotKeyLen)
		if full := s.gate.TryEnter(f.Charge); full != nil {
			err = errors.Join(err, full)
			break
		}
		if fault := s.order.Order(s.shards[w.Shard], f, pipeline.Wait{Disk: true, Memory: true}); fault != nil {
			s.gate.Leave(f.Charge, 1)
			err = errors.Join(err, fault)
			continue
		}
		n++
	}
	for range n {
		select {
		case <-done:
		case <-s.fence.Down:
			return s.fence.Failed()
		}
	}
	return err
}
