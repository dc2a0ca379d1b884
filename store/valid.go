package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// checkWrite refuses what can be refused without looking at any state that
// orders writes.
func (s *Store) checkWrite(w *Write) error {
	if w.Op >= numOps || w.If >= numConds {
		return fmt.Errorf("%w: %v if %v", ErrUnsupported, w.Op, w.If)
	}
	frees := w.removes()
	if w.Op == OpBatch {
		if err := s.checkBatch(w); err != nil {
			return err
		}
		frees = w.onlyDeletes()
	} else {
		if err := s.checkKey(w.Shard, w.Key); err != nil {
			return err
		}
		if w.Op != OpPut {
			w.Value = nil
		}
		if err := checkPut(w.Value, w.TTL); err != nil {
			return err
		}
		if w.TTL != 0 && w.Op != OpPut && w.Op != OpTouch {
			return fmt.Errorf("%w: %s has no TTL: an increment keeps the one of its key, a delete leaves none", ErrUnsupported, w.Op)
		}
	}
	if err := s.fence.failed(); err != nil {
		return err
	}
	return s.disk.admits(frees)
}

func checkPut(value []byte, ttl time.Duration) error {
	switch {
	case len(value) > layout.MaxValueLen:
		return ErrTooLarge
	case ttl < 0:
		return fmt.Errorf("%w: a TTL of %v", ErrUnsupported, ttl)
	}
	return nil
}

// checkKey refuses keys and shards that cannot exist.
func (s *Store) checkKey(shard uint16, key []byte) error {
	switch {
	case len(key) == 0:
		return ErrKeyEmpty
	case len(key) > layout.MaxKeyLen:
		return ErrKeyTooLarge
	case int(shard) >= len(s.shards):
		return ErrShard
	}
	return nil
}

// checkBatch refuses batches that could have no meaning. That the keys are of
// one shard is for the caller to see to: the store is told the shard.
func (s *Store) checkBatch(w *Write) error {
	switch {
	case len(w.Parts) == 0:
		return fmt.Errorf("%w: no parts", ErrBatch)
	case len(w.Parts) > MaxParts:
		return fmt.Errorf("%w: %d parts, at most %d", ErrBatch, len(w.Parts), MaxParts)
	case w.If != CondNone || w.TTL != 0 || len(w.Key) != 0:
		return fmt.Errorf("%w: key, condition and TTL belong to the parts", ErrBatch)
	}
	seen := make(map[string]struct{}, len(w.Parts))
	for i := range w.Parts {
		p := &w.Parts[i]
		if err := s.checkKey(w.Shard, p.Key); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		if p.Delete {
			p.Value, p.TTL = nil, 0
		}
		if err := checkPut(p.Value, p.TTL); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		if p.If >= numConds {
			return fmt.Errorf("part %d: %w: if %v", i, ErrUnsupported, p.If)
		}
		if _, twice := seen[string(p.Key)]; twice {
			return fmt.Errorf("%w: part %d has a key that an earlier one has", ErrBatch, i)
		}
		seen[string(p.Key)] = struct{}{}
	}
	if w.cost() > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrBatch, w.cost(), MaxBatchBytes)
	}
	return nil
}

// onlyDeletes says whether nothing is put by a batch.
func (w *Write) onlyDeletes() bool {
	for i := range w.Parts {
		if !w.Parts[i].Delete {
			return false
		}
	}
	return true
}

// cost is the number of bytes with which a write is admitted.
func (w *Write) cost() int64 {
	n := len(w.Key) + len(w.Value)
	for i := range w.Parts {
		n += len(w.Parts[i].Key) + len(w.Parts[i].Value)
	}
	return int64(n)
}
