package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// Bounds of a Batch. The bytes count 24 for each key besides key and value.
const (
	MaxBatchKeys  = wire.MaxBatchParts
	MaxBatchBytes = wire.MaxBatchBytes
)

// A Batch is a list of writes that take effect together or not at all, for
// readers too: who sees one of them sees no state from before of any other. Its
// keys must be of one shard, which keys with a common {tag} are:
//
//	var b client.Batch
//	b.Put([]byte("{alice}:balance"), []byte("90"))
//	b.Put([]byte("{alice}:log:17"), []byte("paid 10"))
//	version, err := c.WriteBatch(ctx, &b)
//
// The zero Batch is empty and ready. Keys and values are copied. What is wrong
// with one (a key twice, too many bytes) is told by WriteBatch. Not safe for
// concurrent use; it may be written more than once.
type Batch struct {
	parts []byte // as they travel
	keys  map[string]struct{}
	err   error // the first fault
}

// Put stores value under key.
func (b *Batch) Put(key, value []byte) { b.PutWith(key, value, PutOptions{}) }

// PutWith stores value under key, with a time to live or a condition. If one
// condition in a batch does not hold, nothing of it is written.
func (b *Batch) PutWith(key, value []byte, opts PutOptions) {
	w, err := newPut(key, value, opts)
	b.add(&w, err)
}

// Delete removes key; that it does not exist is no error.
func (b *Batch) Delete(key []byte) {
	w, err := newDelete(key, 0)
	b.add(&w, err)
}

// DeleteIf removes key if it has the given version.
func (b *Batch) DeleteIf(key []byte, version uint64) {
	w, err := newDelete(key, version)
	if err == nil {
		err = checkVersion(version)
	}
	b.add(&w, err)
}

// Len returns the number of writes in the batch.
func (b *Batch) Len() int { return len(b.keys) }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.parts, b.err = b.parts[:0], nil
	clear(b.keys)
}

func (b *Batch) add(w *write, err error) {
	size := len(b.parts) + wire.BatchPartSize(len(w.key), len(w.data))
	_, twice := b.keys[string(w.key)]
	switch {
	case b.err != nil:
		return
	case err != nil:
		b.err = fmt.Errorf("write %d: %w", len(b.keys), err)
	case twice:
		b.err = fmt.Errorf("%w: key %s is in it twice", ErrBatch, quoteKey(w.key))
	case len(b.keys) == MaxBatchKeys:
		b.err = fmt.Errorf("%w: more than %d keys", ErrBatch, MaxBatchKeys)
	case size > MaxBatchBytes:
		b.err = fmt.Errorf("%w: more than %d bytes", ErrBatch, MaxBatchBytes)
	}
	if b.err != nil {
		return
	}
	if b.keys == nil {
		b.keys = make(map[string]struct{})
	}
	b.keys[string(w.key)] = struct{}{}
	b.parts = wire.AppendBatchPart(b.parts, wire.BatchPart{
		Key: w.key, Value: w.data, Delete: w.typ == wire.TypeDelete,
		If: w.terms.If, IfVersion: w.terms.IfVersion, TTLMicros: w.terms.TTLMicros,
	})
}

// WriteBatch writes all of b, or nothing. It returns the version of its last
// write. It is durable and visible as a Put is, and is sent again as a Put is,
// and fails as one; also with ErrBatch, ErrOptions, ErrCrossShard, or, if a
// condition did not hold, with a *VersionError whose Part says which: then
// nothing was changed.
func (c *Client) WriteBatch(ctx context.Context, b *Batch) (version uint64, err error) {
	switch {
	case b.err != nil:
		return 0, c.fail("batch", nil, b.err)
	case b.Len() == 0:
		return 0, c.fail("batch", nil, fmt.Errorf("%w: it is empty", ErrBatch))
	}
	w := write{typ: wire.TypeBatch, data: b.parts, count: b.Len()}
	err = c.writeKey(ctx, "batch", &w)
	return w.reply.Version, err
}

// parts walks the parts of a batch, which this package has encoded.
func (w *write) parts() iter.Seq[wire.BatchPart] {
	parts, err := wire.ParseBatchParts(w.data, uint16(w.count))
	if err != nil {
		panic(fmt.Sprintf("client: a batch does not parse: %v", err))
	}
	return parts.All
}

// batchRefusal is the error of a batch one of whose conditions did not hold.
func (w *write) batchRefusal() error {
	i := 0
	for part := range w.parts() {
		if int64(i) == w.reply.Number {
			return fmt.Errorf("write %d, of %s: %w", i, quoteKey(part.Key), conditionError(part.If, w.reply.Version, i))
		}
		i++
	}
	return fmt.Errorf("%w: part %d of a batch of %d was refused", ErrProtocol, w.reply.Number, i)
}
