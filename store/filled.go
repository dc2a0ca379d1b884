package store

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// How the fill of a shard ends: its misses are believed, or it is told why not.

// fillAfter declares a shard filled once published has reached what was
// ordered when its last chunk was read. What was in flight then is in Pebble
// and not in memory: a value that was dropped, or a delete, whose key the
// snapshot did not have any more. Until it is published, the index has neither
// it nor what it replaces, and a miss would say what a crash can take back.
func (s *Store) fillAfter(sh *shard, ordered layout.Version) {
	defer s.workers.Done()
	if teeth.Off(teeth.F6FillFlight) || s.waitPublished(s.stopCtx, sh, ordered) == nil {
		s.filled(sh)
	}
}

// filled says that every key of a shard has a slot or is counted. The headers
// show their true counts only a lease later, unless nothing was ever linked:
// the words of one READ come in any order, and a reader may have fetched a
// slot before its key was filled in, and fetch the header after. Until no such
// READ counts any more, the header must say 255.
//
// A shard that is withheld goes on saying 255; it counts as filled, because
// nothing more is to come.
func (s *Store) filled(sh *shard) {
	sh.mu.Lock()
	sh.full = true
	withheld := sh.withheld && !teeth.Off(teeth.D8Withheld)
	if !withheld {
		sh.ix.SetFilled()
	}
	shown := withheld || sh.ix.Stats().Shown
	sh.mu.Unlock()
	if shown {
		s.believed()
		return
	}
	// Behind the index's own wait, in the same queue.
	s.reclaim.After(func() {
		sh.mu.Lock()
		sh.ix.Slotless(layout.Hash{}) // any look makes the index show them
		sh.mu.Unlock()
		s.believed()
	})
}

// believed counts a shard whose misses are believed by readers.
func (s *Store) believed() {
	if int(s.filler.shards.Add(1)) == len(s.shards) {
		s.filler.done.Store(true)
		s.progress(true)
	}
}

// fillFailed takes note of a shard that could not be read to its end. It stays
// as it is: its headers say "ask", and Pebble says what can be read and what
// cannot, key by key.
func (s *Store) fillFailed(sh *shard, err error) {
	if pebble.IsCorruptionError(err) {
		err = pebbleCorrupt(err)
	}
	err = fmt.Errorf("fill of shard %d stopped, its misses stay unanswered by memory: %w", sh.id, err)
	s.cfg.Logger.Error("fill", "err", err)
	s.counts.corrupt.Add(1)
	s.filler.mu.Lock()
	if s.filler.err == nil {
		s.filler.err = err
	}
	s.filler.mu.Unlock()
	s.progress(true)
}

// progress reports, unless it did a moment ago; always if must.
func (s *Store) progress(must bool) {
	f := &s.filler
	f.telling.Lock()
	defer f.telling.Unlock() // reports do not overtake each other
	now := time.Now()
	if !must && now.Sub(f.reported) < progressEvery {
		return
	}
	f.reported = now
	f.mu.Lock()
	fault := f.err
	f.mu.Unlock()
	// Whoever is told may ask for Stats, which take mu.
	s.cfg.Progress(Progress{
		Shards: len(s.shards), ShardsFilled: int(f.shards.Load()),
		Keys: f.keys.Load(), Bytes: f.bytes.Load(), Expected: f.expected,
		Elapsed: now.Sub(f.started), Done: f.done.Load(), Err: fault,
	})
}
