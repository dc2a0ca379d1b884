package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
)

// checkWrite refuses what can be refused without looking at any state that
// orders writes.
func (s *Store) checkWrite(w *Write) error {
	if w.Kind >= base.NumKinds || w.If >= base.NumConds {
		return fmt.Errorf("%w: %v if %v", ErrUnsupported, w.Kind, w.If)
	}
	frees := w.Kind == OpDelete
	if w.Kind == OpBatch {
		if err := s.checkBatch(w); err != nil {
			return err
		}
		frees = onlyDeletes(&w.Op)
	} else {
		if err := s.checkKey(w.Shard, w.Key); err != nil {
			return err
		}
		if err := checkPut(putValue(&w.Op), w.TTL); err != nil {
			return err
		}
		if w.TTL != 0 && w.Kind != OpPut && w.Kind != OpTouch {
			return fmt.Errorf("%w: %s has no TTL: an increment keeps the one of its key, a delete leaves none", ErrUnsupported, w.Kind)
		}
	}
	if err := s.fence.Failed(); err != nil {
		return err
	}
	return s.disk.Admits(frees)
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
		if !p.Delete {
			if err := checkPut(p.Value, p.TTL); err != nil {
				return fmt.Errorf("part %d: %w", i, err)
			}
		}
		if p.If >= base.NumConds {
			return fmt.Errorf("part %d: %w: if %v", i, ErrUnsupported, p.If)
		}
		if _, twice := seen[string(p.Key)]; twice {
			return fmt.Errorf("%w: part %d has a key that an earlier one has", ErrBatch, i)
		}
		seen[string(p.Key)] = struct{}{}
	}
	if n := cost(&w.Op); n > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrBatch, n, MaxBatchBytes)
	}
	return nil
}

// onlyDeletes says whether nothing is put by a batch.
func onlyDeletes(op *Op) bool {
	for i := range op.Parts {
		if !op.Parts[i].Delete {
			return false
		}
	}
	return true
}

// putValue is the value that an operation brings along: others than puts bring none.
func putValue(op *Op) []byte {
	if op.Kind != OpPut {
		return nil
	}
	return op.Value
}

// cost is the number of bytes with which an operation is admitted.
func cost(op *Op) int64 {
	n := len(op.Key) + len(putValue(op))
	for i := range op.Parts {
		n += len(op.Parts[i].Key)
		if !op.Parts[i].Delete {
			n += len(op.Parts[i].Value)
		}
	}
	return int64(n)
}
