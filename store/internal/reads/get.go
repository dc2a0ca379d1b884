package reads

import (
	"context"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Value is an answer of Get.
type Value struct {
	Version layout.Version
	Data    []byte // dst with the value appended
	Expiry  uint64 // server time in microseconds since 1970; 0: never
}

// Info is an answer of Stat.
type Info struct {
	Version layout.Version
	ValLen  int    // bytes
	Expiry  uint64 // as in Value
}

// Get appends the value of key to dst. It works for every key at any time,
// whatever memory holds. It may wait for the disk, and for a write of this key that is in
// flight; ctx bounds that.
//
// Errors: ErrNotFound, ErrKeyEmpty, ErrKeyTooLarge, ErrShard, ErrCorrupt (a
// *CorruptError), ErrClosed, ErrFatal, ctx's.
func (r *Reads) Get(ctx context.Context, shardID uint16, key, dst []byte) (Value, error) {
	leave, err := r.enterRead(ctx, shardID, key)
	if err != nil {
		return Value{}, err
	}
	defer leave()
	sh, h := r.env.Shards[shardID], layout.HashKey(r.env.Memory.Seed, key)
	r.env.Memory.Used(h)
	var back *shard.Probe // to bring the key back into memory

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	switch {
	case where == shard.InMemory:
		if data, ok := r.copyItem(sh, &it, dst); ok {
			return Value{Version: it.Version, Data: data, Expiry: it.Expiry}, nil
		} // else the disk has it right
	case where == shard.Nowhere:
		sh.Mu.Unlock()
		return Value{}, r.told(shardID, base.ErrNotFound)
	default:
		// The probe begins before the look at what is newer than the base, or under the same
		// hold of the lock. No write of the key is in flight now, so whatever is published
		// until that look, and behind it, was ordered after now: the probe is told. What is read
		// is no older than the look, whatever a checkpoint does: a key that is not in the set
		// then is in the base.
		back = sh.BeginPromotion(h, key)
		sh.Mu.Unlock()
	}
	rec, closer, err := r.readPublished(ctx, sh, h, key)
	if err != nil {
		sh.EndPromotion(back)
		return Value{}, r.told(shardID, err)
	}
	defer closer.Close()
	r.env.Evictor.Promote(sh, back, rec)
	return Value{Version: rec.Version, Data: append(dst, rec.Value...), Expiry: rec.Expiry}, nil
}

// copyItem appends the value of an item to dst, and unlocks the shard. A large one stays
// pinned meanwhile, and is copied and verified without the lock; false: it is damaged, and was
// counted.
func (r *Reads) copyItem(sh *shard.Shard, it *shard.Item, dst []byte) (data []byte, ok bool) {
	if it.ValLen <= shard.CopyLocked {
		data = append(dst, it.InPlace()...)
		sh.Mu.Unlock()
		return data, true
	}
	r.env.Memory.Slabs.Pin(it.Slot.Place())
	sh.Mu.Unlock()
	data = append(dst, it.InPlace()...)
	ok = it.Verified(data[len(dst):])
	r.env.Memory.Slabs.Unpin(it.Slot.Place())
	if !ok {
		r.counts.Damaged.Add(1)
	}
	return data, ok
}

// Stat returns version and length of key's value. Errors as Get.
func (r *Reads) Stat(ctx context.Context, shardID uint16, key []byte) (Info, error) {
	leave, err := r.enterRead(ctx, shardID, key)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	sh, h := r.env.Shards[shardID], layout.HashKey(r.env.Memory.Seed, key)

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	info := Info{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}
	sh.Mu.Unlock()
	switch where {
	case shard.InMemory:
		return info, nil
	case shard.Nowhere:
		return Info{}, r.told(shardID, base.ErrNotFound)
	}
	rec, closer, err := r.readPublished(ctx, sh, h, key)
	if err != nil {
		return Info{}, r.told(shardID, err)
	}
	defer closer.Close()
	return Info{Version: rec.Version, ValLen: len(rec.Value), Expiry: rec.Expiry}, nil
}
