package store

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/internal/teeth"
)

// encode returns the Pebble batch of a group, or nil if it would be empty. A
// group is whole or not there after a crash, and so is all that a write puts
// into it: keys, entries of expiries, the record of its result.
func (s *Store) encode(g *group) *pebble.Batch {
	size := 0
	for _, w := range g.writes {
		size += w.encodedSize()
	}
	if size == 0 || s.db == nil {
		return nil
	}
	b := s.db.NewBatchWithSize(size + batchOverhead)
	for _, w := range g.writes {
		s.encodeWrite(b, w)
	}
	return b
}

// batchOverhead bounds what Pebble adds per entry: kind and two varints.
const batchOverhead = 16

// encodedSize bounds the bytes of a write in a batch; 0: nothing.
func (w *Write) encodedSize() (n int) {
	for _, e := range w.effects {
		key := keyPrefixLen + len(e.Key)
		if e.due != 0 {
			n += key + 8 + batchOverhead
		}
		if e.noop {
			continue
		}
		n += key + recordHeader + len(e.Value) + batchOverhead
		if e.expiry != 0 {
			n += 8 + key + 8 + recordHeader + batchOverhead
		}
		if e.unlist != 0 {
			n += key + 8 + batchOverhead
		}
	}
	if w.recorded() {
		n += keyPrefixLen + dedupKeyLen + recordHeader + dedupValueLen + batchOverhead
	}
	return n + len(w.forget)*(keyPrefixLen+dedupKeyLen+batchOverhead)
}

// encodeWrite adds a write to a batch.
func (s *Store) encodeWrite(b *pebble.Batch, w *Write) {
	for _, e := range w.effects {
		if e.due != 0 {
			s.unlistKey(b, e, e.due)
		}
		if !e.noop {
			s.encodeKey(b, e)
		}
	}
	if w.recorded() && !teeth.Off(teeth.F31RecordInBatch) {
		op := b.SetDeferred(keyPrefixLen+dedupKeyLen, recordSize(dedupValueLen, false))
		k := w.ID.key()
		k.append(appendKey(op.Key[:0], w.Shard, kindDedup, nil))
		r := resultOf(w)
		var value [dedupValueLen]byte
		r.encode(value[:])
		putRecord(op.Value, op.Key, record{version: w.Version, value: value[:]})
		s.mustFinish(op)
	}
	for i := range w.forget {
		op := b.DeleteDeferred(keyPrefixLen + dedupKeyLen)
		w.forget[i].append(appendKey(op.Key[:0], w.Shard, kindDedup, nil))
		s.mustFinish(op)
	}
}

// encodeKey adds what becomes of one key.
func (s *Store) encodeKey(b *pebble.Batch, e *Write) {
	if e.removes() {
		op := b.DeleteDeferred(keyPrefixLen + len(e.Key))
		appendKey(op.Key[:0], e.Shard, kindData, e.Key)
		s.mustFinish(op)
	} else {
		// Encoded in place: the value is copied once, into the batch.
		op := b.SetDeferred(keyPrefixLen+len(e.Key), recordSize(len(e.Value), e.expiry != 0))
		appendKey(op.Key[:0], e.Shard, kindData, e.Key)
		putRecord(op.Value, op.Key, record{version: e.Version, value: e.Value, expiry: e.expiry})
		s.mustFinish(op)
	}
	listed := uint64(0)
	if e.expiry != 0 {
		listed = second(e.expiry)
		op := b.SetDeferred(keyPrefixLen+8+len(e.Key), recordSize(0, false))
		appendExpiryKey(op.Key[:0], e.Shard, listed, e.Key)
		putRecord(op.Value, op.Key, record{version: e.Version})
		s.mustFinish(op)
	}
	if e.unlist != 0 && e.unlist != listed && e.unlist != e.due {
		s.unlistKey(b, e, e.unlist)
	}
}

// unlistKey removes the entry of an expiry.
func (s *Store) unlistKey(b *pebble.Batch, e *Write, second uint64) {
	op := b.DeleteDeferred(keyPrefixLen + 8 + len(e.Key))
	appendExpiryKey(op.Key[:0], e.Shard, second, e.Key)
	s.mustFinish(op)
}

// mustFinish ends a deferred operation. It fails only in indexed batches.
func (s *Store) mustFinish(op *pebble.DeferredBatchOp) {
	if err := op.Finish(); err != nil {
		panic(fmt.Sprintf("store: batch: %v", err))
	}
}
