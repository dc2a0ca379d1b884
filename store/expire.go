package store

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
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

// second is under which second an expiry is listed: by its end the key is gone.
func second(expiry uint64) uint64 {
	const micros = 1_000_000
	return expiry/micros + min(expiry%micros, 1)
}

// neverDue is later than every second.
const neverDue = math.MaxUint64

// appendExpiryKey appends the Pebble key of a listed key.
func appendExpiryKey(dst []byte, shard uint16, second uint64, key []byte) []byte {
	dst = appendKey(dst, shard, kindExpiry, nil)
	return append(binary.BigEndian.AppendUint64(dst, second), key...)
}

// parseExpiryKey splits the part behind the kind.
func parseExpiryKey(b []byte) (second uint64, key []byte, ok bool) {
	if len(b) <= 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b), b[8:], true
}

// listed lowers the mark from which the expirer has to look. At publishing the
// entry is in Pebble. Caller holds mu.
func (sh *shard) listed(w *Write) {
	if w.expiry != 0 && !w.noop {
		sh.nextDue = min(sh.nextDue, second(w.expiry))
	}
}

// evaluateDue judges a delete by the expirer: if what was found has expired
// and is still there. The entry is removed in any case.
func (w *Write) evaluateDue(now uint64) {
	expired := w.state.exists && w.state.expiry != 0 && w.state.expiry <= now
	w.noop = !expired || second(w.state.expiry) > w.due
	w.Existed = !w.noop
}

// Expired says whether the write is the removal of a key that expired by
// itself. To be asked about published writes only.
func (w *Write) Expired() bool { return w.due != 0 && !w.noop }

// runExpirer removes expired keys until the store ends.
func (s *Store) runExpirer() {
	defer s.workers.Done()
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-tick.C:
		}
		for more := true; more && !s.stopping(); {
			var err error
			if more, err = s.expireSome(expireChunk); err != nil {
				more = false
				if !s.stopping() && !errors.Is(err, ErrOverloaded) {
					s.fence.report(levelError, "removal of expired keys", "err", err)
				}
			}
		}
	}
}

// expireSome removes up to n expired keys. more: there may be others by now.
func (s *Store) expireSome(n int) (more bool, err error) {
	now := s.clock.now() / 1_000_000
	var found []*Write
	for _, sh := range s.shards {
		if len(found) == n {
			return true, s.removeExpired(found)
		}
		sh.mu.Lock()
		due := sh.nextDue <= now
		if due {
			sh.nextDue = neverDue // lowered again by what is published from here on
		}
		sh.mu.Unlock()
		if !due {
			continue
		}
		next := uint64(0)
		found, next, err = s.findDue(sh, now, found, n)
		sh.mu.Lock()
		sh.nextDue = min(sh.nextDue, next)
		sh.mu.Unlock()
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
		again := s.clock.now()/1_000_000 + expireRetry
		for _, w := range found {
			sh := s.shards[w.Shard]
			sh.mu.Lock()
			sh.nextDue = min(sh.nextDue, again)
			sh.mu.Unlock()
		}
	}
	return err
}

// findDue appends deletes for the keys of a shard whose second has come, up to
// n in all, and returns the second of the first that is left.
func (s *Store) findDue(sh *shard, now uint64, found []*Write, n int) (_ []*Write, next uint64, err error) {
	lower, upper := kindBounds(sh.id, kindExpiry)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return found, now, err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil && closeErr != nil {
			next, err = now, closeErr
		}
	}()
	for iter.First(); iter.Valid(); iter.Next() {
		_, _, name, _ := parseKey(iter.Key())
		due, key, ok := parseExpiryKey(name)
		if !ok {
			return found, now + 60, &CorruptError{Shard: sh.id, Key: append([]byte("expiry "), name...), Detail: "entry without a key"}
		}
		if due > now || len(found) == n {
			return found, due, nil
		}
		found = append(found, &Write{Shard: sh.id, Op: OpDelete, Key: append([]byte(nil), key...), due: due})
	}
	if err := iter.Error(); err != nil {
		return found, now, err
	}
	return found, neverDue, nil
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
		w.charge = int64(len(w.Key) + len(w.forget)*dedupKeyLen)
		if full := s.gate.tryEnter(w.charge); full != nil {
			err = errors.Join(err, full)
			break
		}
		if fault := s.order(w, patience{disk: true, memory: true}); fault != nil {
			s.gate.leave(w.charge, 1)
			err = errors.Join(err, fault)
			continue
		}
		n++
	}
	for range n {
		select {
		case <-done:
		case <-s.fence.down:
			return s.fence.failed()
		}
	}
	return err
}

// isExpired says whether a published key has expired, so that it is absent.
func (s *Store) isExpired(expiry uint64) bool {
	if teeth.Off(teeth.F12ExpiredAbsent) {
		return false
	}
	return s.clock.expired(expiry)
}
