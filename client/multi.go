package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/read"
	"github.com/rdmakv/rdmakv/client/internal/write"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Bounds of a Batch. The bytes count 24 for each key besides key and value.
const (
	MaxBatchKeys  = wire.MaxBatchParts
	MaxBatchBytes = wire.MaxBatchBytes
)

// A Batch is a list of writes that take effect together or not at all, for
// readers too: a reader that sees one of them sees no state from before of any other. Its
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
	w, err := putOf(key, value, opts)
	b.add(&w, err)
}

// Delete removes key; that it does not exist is no error.
func (b *Batch) Delete(key []byte) {
	w, err := write.NewDelete(key, 0)
	b.add(&w, err)
}

// DeleteIf removes key if it has the given version.
func (b *Batch) DeleteIf(key []byte, version uint64) {
	w, err := write.NewDelete(key, version)
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

func (b *Batch) add(w *write.Write, err error) {
	size := len(b.parts) + wire.BatchPartSize(len(w.Key), len(w.Data))
	_, twice := b.keys[string(w.Key)]
	switch {
	case b.err != nil:
		return
	case err != nil:
		b.err = fmt.Errorf("write %d: %w", len(b.keys), err)
	case twice:
		b.err = fmt.Errorf("%w: key %s is in it twice", ErrBatch, base.QuoteKey(w.Key))
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
	b.keys[string(w.Key)] = struct{}{}
	b.parts = wire.AppendBatchPart(b.parts, wire.BatchPart{
		Key: w.Key, Value: w.Data, Delete: w.Type == wire.TypeDelete,
		If: w.Terms.If, IfVersion: w.Terms.IfVersion, TTLMicros: w.Terms.TTLMicros,
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
	w := write.NewBatch(b.parts, b.Len())
	err = c.writeKey(ctx, "batch", &w)
	return w.Reply.Version, err
}

// MultiGet gets many keys. Result i is that of keys[i]: a value, ErrNotFound, or
// why that key was not answered. The error is nil if every key was answered, if
// only with ErrNotFound, and otherwise a *PartialError that names the keys which were not;
// the other results count. The keys are not of one moment; each one is as Get would have
// answered during the call. The nodes of a cluster are asked side by side, each once for
// all of its keys.
//
// With ReadBounded(d), d > 0, each key may be answered with what was true up to d before the call began, as Get answers with it: the keys are READ at one replica
// of each group, those of one node together, without READs at leaders. A d of 0 or less is ErrRange, of the call, and no key is answered.
//
// Values of up to 512 bytes share memory, 8 KiB at most: a program that keeps one of many for long copies it. The
// results of an earlier call may be handed in again: ReadInto.
func (c *Client) MultiGet(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Result, error) {
	bound, err := boundOf(opts)
	if err != nil {
		return nil, c.fail("get", nil, err)
	}
	var results []Result
	for i := range opts {
		if into := opts[i].into; into != nil {
			n := min(len(into), len(keys))
			results = into[:n:n]
		}
	}
	if len(results) < len(keys) {
		results = append(results, make([]Result, len(keys)-len(results))...)
	}
	err = read.ManyBounded(ctx, c.rt(), keys, results, bound)
	for i := range results {
		if layout.IsHead(results[i].Value) { // in parts, one after the other: they are large
			w := read.Query{N: -1, Dst: []byte{}}
			results[i].Err = c.get(ctx, "get", keys[i], &w)
			if bound > 0 { // they were got without one
				read.Showed(c.rt(), keys[i])
			}
			if results[i].Value = w.Dst; results[i].Err != nil {
				results[i].Value = nil
				err = base.Partial(func(i int) error { return results[i].Err }, len(results),
					func(err error) bool { return !errors.Is(err, ErrNotFound) })
			}
		}
	}
	return results, err
}

// MultiPut stores many pairs. It returns nil if all were stored, and otherwise a
// *PartialError that names the pairs which failed, each with the error that Put would
// have reported. The pairs are independent writes in no particular order: of two pairs
// with the same key either may be the one that stays. For pairs that belong together
// there is WriteBatch.
//
// As many are under way as there are credits, from one goroutine for each node.
// Without a deadline in ctx, Config.Timeout is for each pair.
func (c *Client) MultiPut(ctx context.Context, pairs []Pair) error {
	return write.Many(ctx, c.rt(), pairs)
}
