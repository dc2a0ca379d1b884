package store

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// A start that knows how many keys will come makes the index large enough for
// them at once: a fill is faster than leases end, and an index that grows under
// it has to wait for those of what it outgrew. A clean stop leaves the counts
// behind; for the start after a crash the keeper notes them now and then. They
// are a guess: too low, and the index grows as ever; too high, and it is larger
// than it need be.

const (
	// indexBytesPerKey is roughly what a key costs in the index.
	indexBytesPerKey = 12
	// noteStep is the part of the keys that have to be new for another note, and
	// noteLeast how many at least: an index of fewer grows in no time.
	noteStep  = 16
	noteLeast = 1 << 14
)

// presize makes room in all indexes for the keys of the last life, several
// shards at a time. The limit may be lower this time: they take an eighth of it
// at most.
func (s *Store) presize() {
	for _, n := range s.facts.keys {
		s.noted += n
	}
	if s.facts.clean != nil && len(s.facts.clean.keys) == len(s.shards) {
		s.facts.keys = s.facts.clean.keys
	}
	if len(s.facts.keys) != len(s.shards) {
		s.facts.keys = nil // what a cache has, and a store of an earlier version
		return
	}
	most := s.cfg.MemoryLimit / 8 / indexBytesPerKey / uint64(len(s.shards))
	var next atomic.Int32
	var wg sync.WaitGroup
	for range min(s.cfg.FillWorkers, len(s.shards)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(s.shards); i = int(next.Add(1)) - 1 {
				s.shards[i].ix.Reserve(int(min(s.facts.keys[i], most)))
			}
		})
	}
	wg.Wait()
	for _, n := range s.facts.keys {
		s.filler.expected += n
	}
}

// noteKeys writes down how many keys there are, if that is news. Nobody waits
// for the note to be durable: it goes with the next write that is.
func (s *Store) noteKeys() {
	keys := s.keyCounts()
	total := uint64(0)
	for _, n := range keys {
		total += n
	}
	if news := max(total, s.noted) - min(total, s.noted); news < noteLeast || news < s.noted/noteStep {
		return
	}
	value := make([]byte, 0, 8*len(keys))
	for _, n := range keys {
		value = binary.LittleEndian.AppendUint64(value, n)
	}
	b := s.db.NewBatch()
	defer b.Close()
	err := setMeta(b, metaKeys, value)
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err != nil {
		s.fence.fail(fmt.Errorf("write of %s: %w", metaKeys, err))
		return
	}
	s.noted = total
}
