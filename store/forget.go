package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Records of requests on the disk: read at a start, removed when nobody can
// ask for them any more.

// metaShort: u8 1: records were removed before their time.
const metaShort = "short"

const (
	forgetChunk = 512   // records per ordered removal
	forgetLook  = 32768 // records looked at per tick
)

// loadDedup reads the records of all shards into the table. They all begin
// their time anew: how long the store was closed says nothing about how long
// the clients have been silent, or how old their retries are.
func (s *Store) loadDedup() error {
	for _, sh := range s.shards {
		lower, upper := kindBounds(sh.id, kindDedup)
		if err := s.eachDedup(sh, lower, upper, func(_ []byte, k dedupKey, r result) bool {
			s.dedup.load(sh.id, k, r)
			return true
		}); err != nil {
			return err
		}
	}
	return nil
}

// openRequests brings back what the last incarnation has to hand on: results of
// requests, and keys that expire.
func (s *Store) openRequests() error {
	if s.clock == nil {
		s.clock = newClock(s.cfg.clock, 0)
	}
	s.dedup = newDedup(s.cfg.dedupEntries)
	if s.db == nil {
		return nil
	}
	if s.facts.clock != 0 {
		if bound, ok := s.clock.raise(); ok && !s.boundClock(bound) {
			return s.fence.failed()
		}
		for _, sh := range s.shards {
			sh.nextDue = 0
		}
	}
	if s.facts.short {
		s.dedup.wasShort()
	}
	return s.loadDedup()
}

// load takes in a record, unless a newer one of its slot is there.
func (d *dedup) load(shard uint16, k dedupKey, r result) {
	d.used.Store(true)
	st := d.stripe(&k)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.entries[k]
	switch {
	case e == nil:
		e = st.add(k, r.owner)
	case e.result.seq >= r.seq:
		return
	}
	e.result, e.shard, e.anyones = r, shard, r.owner == 0
	d.evicted.Add(st.shrink(e.owner))
}

// eachDedup calls f for the records between two Pebble keys until it returns
// false. A damaged record is an error: without it a write could be applied
// twice.
func (s *Store) eachDedup(sh *shard, lower, upper []byte, f func(pkey []byte, k dedupKey, r result) bool) (err error) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}()
	for iter.First(); iter.Valid(); iter.Next() {
		value, err := iterValue(iter)
		if err != nil {
			return err
		}
		_, _, name, _ := parseKey(iter.Key())
		k, ok := parseDedupKey(name)
		rec, err := parseRecord(value, iter.Key())
		if err == nil && !ok {
			err = fmt.Errorf("request id of %d bytes", len(name))
		}
		r, ok := parseResult(rec.version, rec.value)
		if err == nil && !ok {
			err = fmt.Errorf("result of %d bytes", len(rec.value))
		}
		if err != nil {
			s.counts.corrupt.Add(1)
			return &CorruptError{Shard: sh.id, Key: append([]byte("request "), name...), Detail: err.Error()}
		}
		if !f(iter.Key(), k, r) {
			return nil
		}
	}
	return iter.Error()
}

// runForget lets the table age, and removes records from the disk whose
// entries are gone or were replaced by one in another shard.
func (s *Store) runForget() {
	defer s.workers.Done()
	tick := time.NewTicker(dedupTick)
	defer tick.Stop()
	var at forgetCursor
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-tick.C:
			s.dedup.tick()
			if s.db == nil || !s.dedup.used.Load() {
				continue
			}
			if err := s.forgetSome(&at); err != nil && !s.stopping() {
				s.cfg.Logger.Warn("removal of old request records", "err", err)
			}
		}
	}
}

// A forgetCursor is how far the removal has come.
type forgetCursor struct {
	shard int
	key   []byte // the next Pebble key; nil: the shard's first
}

// noteShort keeps a mark on the disk while records may be removed before their
// time: the next incarnation must not take what it does not know for new.
func (s *Store) noteShort() error {
	short := s.dedup.short()
	if short == s.facts.short {
		return nil
	}
	b := s.db.NewBatch()
	defer b.Close()
	var err error
	if short {
		err = setMeta(b, metaShort, []byte{1})
	} else {
		err = b.Delete(metaKey(metaShort), nil)
	}
	if err == nil {
		err = b.Commit(pebble.Sync)
	}
	if err == nil {
		s.facts.short = short
	}
	return err
}

// forgetSome looks at some records and has those removed that are obsolete.
func (s *Store) forgetSome(at *forgetCursor) error {
	if err := s.noteShort(); err != nil {
		return err
	}
	for looked := 0; looked < forgetLook; {
		sh := s.shards[at.shard]
		lower, upper := kindBounds(sh.id, kindDedup)
		if at.key != nil {
			lower = at.key
		}
		var obsolete []dedupKey
		n := 0
		at.key = nil
		err := s.eachDedup(sh, lower, upper, func(pkey []byte, k dedupKey, r result) bool {
			if n++; n > forgetLook || len(obsolete) == forgetChunk {
				at.key = append([]byte(nil), pkey...)
				return false
			}
			if !s.dedup.current(sh.id, k) {
				obsolete = append(obsolete, k)
			}
			return true
		})
		if err != nil {
			return err
		}
		if len(obsolete) > 0 {
			if err := s.removeRecords(sh.id, obsolete); err != nil {
				return err
			}
		}
		looked += n
		if at.key == nil {
			if at.shard++; at.shard == len(s.shards) {
				at.shard = 0
				return nil
			}
		}
	}
	return nil
}

// removeRecords orders the removal of records, and waits for it.
func (s *Store) removeRecords(shard uint16, keys []dedupKey) error {
	w := &Write{Shard: shard, Op: opForget, forget: keys}
	return s.runInternal([]*Write{w})
}

// stillObsolete leaves only those keys to be removed whose slot has not come
// (back) to this shard: a record that is ordered later is committed later.
// Caller holds the shard's lock.
func (s *Store) stillObsolete(w *Write) {
	kept := w.forget[:0]
	for _, k := range w.forget {
		if !s.dedup.current(w.Shard, k) {
			kept = append(kept, k)
		}
	}
	w.forget = kept
}
