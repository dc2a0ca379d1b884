package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// admits refuses what can be refused without looking at any state that orders writes.
func (s *Store) admits(op *Op) error {
	if err := checkOp(op, len(s.shards)); err != nil {
		return err
	}
	if err := s.fence.Failed(); err != nil {
		return err
	}
	return s.disk.Admits(frees(op))
}

// checkOp refuses operations that could have no meaning in a store of so many shards.
func checkOp(op *Op, shards int) error {
	switch {
	case op.Kind >= base.NumKinds || op.If >= base.NumConds:
		return fmt.Errorf("%w: %v if %v", ErrUnsupported, op.Kind, op.If)
	case op.Kind == OpBatch:
		return checkBatch(op, shards)
	}
	if err := base.CheckKey(op.Shard, op.Key, shards); err != nil {
		return err
	}
	if err := checkPut(putValue(op), op.TTL); err != nil {
		return err
	}
	if op.TTL != 0 && op.Kind != OpPut && op.Kind != OpTouch {
		return fmt.Errorf("%w: %s has no TTL: an increment keeps the one of its key, a delete leaves none", ErrUnsupported, op.Kind)
	}
	return nil
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

// checkBatch refuses batches that could have no meaning. That the keys are of
// one shard is for the caller to see to: the store is told the shard.
func checkBatch(op *Op, shards int) error {
	switch {
	case len(op.Parts) == 0:
		return fmt.Errorf("%w: no parts", ErrBatch)
	case len(op.Parts) > MaxParts:
		return fmt.Errorf("%w: %d parts, at most %d", ErrBatch, len(op.Parts), MaxParts)
	case op.If != CondNone || op.TTL != 0 || len(op.Key) != 0:
		return fmt.Errorf("%w: key, condition and TTL belong to the parts", ErrBatch)
	}
	seen := make(map[string]struct{}, len(op.Parts))
	for i := range op.Parts {
		p := &op.Parts[i]
		if err := base.CheckKey(op.Shard, p.Key, shards); err != nil {
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
	if n := cost(op); n > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrBatch, n, MaxBatchBytes)
	}
	return nil
}

// frees says whether nothing is put by an operation: the disk has fewer keys behind it.
func frees(op *Op) bool {
	if op.Kind != OpBatch {
		return op.Kind == OpDelete
	}
	for i := range op.Parts {
		if !op.Parts[i].Delete {
			return false
		}
	}
	return true
}

// use is what an operation needs room in the log for.
func use(op *Op) log.Use {
	if frees(op) {
		return log.Deletes
	}
	return log.Puts
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
