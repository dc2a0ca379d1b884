package store

import "github.com/rdmakv/rdmakv/store/layout"

// A shard may be withheld: its index says "ask" for every key that it has not,
// whatever the fill found, because this store is not the one that knows of the
// shard's keys. In a cluster that is so for every shard of another node, so that
// a reader who came to the wrong node never takes a miss for an answer; his
// question by SEND is then told where to go.
//
// Ownership itself is none of the store's business.

// Release ends the withholding of a shard (Config.Withheld): once it is filled
// its misses are believed. A shard that is not withheld stays as it is.
// ErrShard, ErrClosed, ErrFatal.
func (s *Store) Release(shard uint16) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if int(shard) >= len(s.shards) {
		return ErrShard
	}
	sh := s.shards[shard]
	sh.mu.Lock()
	show := sh.withheld && sh.full
	sh.withheld = false
	if show {
		sh.ix.SetFilled()
	}
	shown := sh.ix.Stats().Shown
	sh.mu.Unlock()
	if show && !shown {
		s.showLater(sh)
	}
	return nil
}

// showLater has the headers of a shard tell their counts, behind the index's own
// wait, in the same queue.
func (s *Store) showLater(sh *shard) {
	s.reclaim.After(func() {
		sh.mu.Lock()
		sh.ix.Slotless(layout.Hash{}) // any look makes the index show them
		sh.mu.Unlock()
	})
}

// Withheld reports whether a shard is withheld. ErrShard.
func (s *Store) Withheld(shard uint16) (bool, error) {
	if int(shard) >= len(s.shards) {
		return false, ErrShard
	}
	sh := s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.withheld, nil
}
