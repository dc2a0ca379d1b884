package store

import (
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
)

// Records of requests on the disk: read at a start, removed when nobody can
// ask for them any more.

const (
	forgetChunk = 512   // records per ordered removal
	forgetLook  = 32768 // records looked at per tick
)

// loadDedup reads the records of all shards into the table. They all begin
// their time anew: how long the store was closed says nothing about how long
// the clients have been silent, or how old their retries are.
func (s *Store) loadDedup() error {
	for _, sh := range s.shards {
		if err := s.disk.EachResult(sh.ID, nil, func(_ []byte, k base.SlotKey, r dedup.Result) bool {
			s.dedup.Load(sh.ID, k, r)
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
	s.dedup = dedup.New(s.cfg.dedupEntries)
	if !s.disk.Durable() {
		return nil
	}
	s.clock.Keep(s.disk.BoundClock)
	if s.disk.ClockBound() != 0 {
		if err := s.clock.Renew(); err != nil {
			return err
		}
		for _, sh := range s.shards {
			sh.DueAt(0)
		}
	}
	if s.disk.Short() {
		s.dedup.WasShort()
	}
	return s.loadDedup()
}

// runForget lets the table age, and removes records from the disk whose
// entries are gone or were replaced by one in another shard.
func (s *Store) runForget() {
	var at forgetCursor
	s.life.Every(dedup.TickEvery, func() {
		s.dedup.Tick()
		if !s.disk.Durable() || !s.dedup.Used() {
			return
		}
		if err := s.forgetSome(&at); err != nil && !s.life.Over() {
			s.cfg.Logger.Warn("removal of old request records", "err", err)
		}
	})
}

// A forgetCursor is how far the removal has come.
type forgetCursor struct {
	shard int
	key   []byte // the next Pebble key; nil: the shard's first
}

// forgetSome looks at some records and has those removed that are obsolete.
func (s *Store) forgetSome(at *forgetCursor) error {
	if err := s.disk.NoteShort(s.dedup.Short()); err != nil {
		return err
	}
	for looked := 0; looked < forgetLook; {
		sh := s.shards[at.shard]
		var obsolete []base.SlotKey
		n, from := 0, at.key
		at.key = nil
		err := s.disk.EachResult(sh.ID, from, func(pkey []byte, k base.SlotKey, r dedup.Result) bool {
			if n++; n > forgetLook || len(obsolete) == forgetChunk {
				at.key = append([]byte(nil), pkey...)
				return false
			}
			if !s.dedup.Current(sh.ID, k) {
				obsolete = append(obsolete, k)
			}
			return true
		})
		if err != nil {
			return err
		}
		if len(obsolete) > 0 {
			if err := s.removeRecords(sh.ID, obsolete); err != nil {
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
func (s *Store) removeRecords(shard uint16, keys []base.SlotKey) error {
	w := &Write{Op: Op{Shard: shard, Kind: base.OpForget}}
	w.flight.Forget = keys
	return s.runInternal([]*Write{w})
}

// ResultUse returns how many results of requests are remembered for retries, how many
// may be, and how many had to go before their time since the store was opened.
func (s *Store) ResultUse() (n, limit int, evicted uint64) {
	return s.dedup.Count(), s.cfg.dedupEntries, s.dedup.Evicted()
}
