package disk

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Change is what goes into Pebble together: after a crash it is there whole, or not
// at all. One goroutine fills it, and hands it to Append, Wait and Close in this order.
type Change pebble.Batch

func (c *Change) batch() *pebble.Batch { return (*pebble.Batch)(c) }

// NewChange returns an empty change with room for so many bytes, by EffectSize,
// ResultSize and ForgetSize.
func (d *Disk) NewChange(size int) *Change {
	return (*Change)(d.db.NewBatchWithSize(size + batchOverhead))
}

// Append applies a change to Pebble: to its log and its memtable. It does not wait
// for the disk.
//
// Should Pebble fail to write its log it does not return: its Logger.Fatalf,
// which is ours (events.go), fences the store and parks this goroutine.
func (d *Disk) Append(c *Change) (err error) {
	if d.c.Sync == Always {
		err = d.db.ApplyNoSyncWait(c.batch(), pebble.Sync)
	} else {
		err = d.db.Apply(c.batch(), pebble.NoSync)
	}
	if err == nil {
		d.unbeaten.Store(true)
	}
	return err
}

// Wait returns when a change that was appended is durable, as far as the sync policy
// goes.
func (d *Disk) Wait(c *Change) error {
	if d.c.Sync == Always {
		return c.batch().SyncWait()
	}
	return nil
}

// Close gives the memory of a change back.
func (c *Change) Close() {
	c.batch().Close() // ours again after SyncWait; always nil
}

// batchOverhead bounds what Pebble adds per entry: kind and two varints.
const batchOverhead = 16

const (
	// ResultSize bounds the bytes of AddResult.
	ResultSize = keyPrefixLen + base.SlotKeyLen + RecordHeader + dedup.ValueLen + batchOverhead
	// ForgetSize bounds the bytes of Forget.
	ForgetSize = keyPrefixLen + base.SlotKeyLen + batchOverhead
)

// EffectSize bounds the bytes of Add; 0: nothing.
func EffectSize(e *base.Effect) (n int) {
	key := keyPrefixLen + len(e.Key)
	if e.Due != 0 {
		n += key + 8 + batchOverhead
	}
	if e.Noop {
		return n
	}
	n += key + RecordHeader + len(e.Value) + batchOverhead
	if e.Expiry != 0 {
		n += 8 + key + 8 + RecordHeader + batchOverhead
	}
	if e.Unlist != 0 {
		n += key + 8 + batchOverhead
	}
	return n
}

// Add adds what becomes of one key. The value is copied.
func (c *Change) Add(e *base.Effect) {
	b := c.batch()
	if e.Due != 0 {
		unlistKey(b, e, e.Due)
	}
	if !e.Noop {
		encodeKey(b, e)
	}
}

// AddResult adds the result of a request that has an id, whose write has this version.
func (c *Change) AddResult(shard uint16, v layout.Version, id *base.RequestID, result *base.Result) {
	op := c.batch().SetDeferred(keyPrefixLen+base.SlotKeyLen, RecordSize(dedup.ValueLen, false))
	k := id.SlotKey()
	k.Append(AppendKey(op.Key[:0], shard, KindDedup, nil))
	r := dedup.ResultOf(id, result)
	var value [dedup.ValueLen]byte
	r.Encode(value[:])
	PutRecord(op.Value, op.Key, Record{Version: v, Value: value[:]})
	mustFinish(op)
}

// Forget removes the result of the request in a slot.
func (c *Change) Forget(shard uint16, k *base.SlotKey) {
	op := c.batch().DeleteDeferred(keyPrefixLen + base.SlotKeyLen)
	k.Append(AppendKey(op.Key[:0], shard, KindDedup, nil))
	mustFinish(op)
}

// encodeKey adds what becomes of one key.
func encodeKey(b *pebble.Batch, e *base.Effect) {
	if e.Kind == base.OpDelete {
		op := b.DeleteDeferred(keyPrefixLen + len(e.Key))
		AppendKey(op.Key[:0], e.Shard, KindData, e.Key)
		mustFinish(op)
	} else {
		// Encoded in place: the value is copied once, into the batch.
		op := b.SetDeferred(keyPrefixLen+len(e.Key), RecordSize(len(e.Value), e.Expiry != 0))
		AppendKey(op.Key[:0], e.Shard, KindData, e.Key)
		PutRecord(op.Value, op.Key, Record{Version: e.Version, Value: e.Value, Expiry: e.Expiry})
		mustFinish(op)
	}
	listed := uint64(0)
	if e.Expiry != 0 {
		listed = clock.Second(e.Expiry)
		op := b.SetDeferred(keyPrefixLen+8+len(e.Key), RecordSize(0, false))
		appendExpiryKey(op.Key[:0], e.Shard, listed, e.Key)
		PutRecord(op.Value, op.Key, Record{Version: e.Version})
		mustFinish(op)
	}
	if e.Unlist != 0 && e.Unlist != listed && e.Unlist != e.Due {
		unlistKey(b, e, e.Unlist)
	}
}

// unlistKey removes the entry of an expiry.
func unlistKey(b *pebble.Batch, e *base.Effect, second uint64) {
	op := b.DeleteDeferred(keyPrefixLen + 8 + len(e.Key))
	appendExpiryKey(op.Key[:0], e.Shard, second, e.Key)
	mustFinish(op)
}

// mustFinish ends a deferred operation. It fails only in indexed batches.
func mustFinish(op *pebble.DeferredBatchOp) {
	if err := op.Finish(); err != nil {
		panic(fmt.Sprintf("store: batch: %v", err))
	}
}
