package reads

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Held is an item that stays as it is in registered memory, for a caller whose
// answer is too large for a reply: the caller READs it, and verifies it like any item
// of state Live or Held and of this Version. It stays until Release, or a
// lease after Hold if the caller is never heard of again.
type Held struct {
	Place   layout.Place // layout.Nowhere: it cannot be READ, ReadHeld has its bytes
	Size    int          // bytes of the item, a multiple of 8
	Version layout.Version
	KeyLen  int
	ValLen  int
	Expiry  uint64 // server time in microseconds since 1970; 0: never

	once    sync.Once
	release func()
	aside   []byte // the item, if it is Nowhere
}

// Release lets the item go. Idempotent, and safe after the lease took it.
func (h *Held) Release() { h.once.Do(h.release) }

// Hold keeps the item of key for a reader. An item in memory is kept where it
// is; else a copy of what log or base have is made, in state Held. The time between Hold
// and the first Beat after it does not count for the lease.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held, or there is
// no memory for the copy.
func (r *Reads) Hold(ctx context.Context, shardID uint16, key []byte) (*Held, error) {
	return r.hold(ctx, shardID, key, false)
}

// HoldAside is Hold that needs no room in registered memory: where there is none
// the copy stands beside it, Nowhere, and is read by ReadHeld alone. So whoever
// has a key can be answered, however full memory is of other things.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held.
func (r *Reads) HoldAside(ctx context.Context, shardID uint16, key []byte) (*Held, error) {
	return r.hold(ctx, shardID, key, true)
}

func (r *Reads) hold(ctx context.Context, shardID uint16, key []byte, aside bool) (*Held, error) {
	leave, err := r.enterRead(ctx, shardID, key)
	if err != nil {
		return nil, err
	}
	defer leave()
	sh, h := r.env.Shards[shardID], layout.HashKey(r.env.Memory.Seed, key)
	r.env.Memory.Used(h)

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	if where == shard.InMemory {
		held, err := r.holdLive(sh, it)
		sh.Mu.Unlock()
		return held, err
	}
	if where == shard.Nowhere {
		sh.Mu.Unlock()
		return nil, r.told(shardID, base.ErrNotFound)
	}
	back := sh.BeginPromotion(h, key)
	sh.Mu.Unlock()
	rec, closer, err := r.readPublished(ctx, sh, h, key)
	if err != nil {
		sh.EndPromotion(back)
		return nil, r.told(shardID, err)
	}
	defer closer.Close()
	if r.env.Evictor.Promote(sh, back, rec) {
		sh.Mu.Lock()
		if it, where := sh.Locate(h, key); where == shard.InMemory && it.Version == rec.Version {
			held, err := r.holdLive(sh, it)
			sh.Mu.Unlock()
			return held, err
		}
		sh.Mu.Unlock()
	}
	return r.holdCopy(key, rec, aside)
}

// holdLive pins a live item. Caller holds the shard's lock.
func (r *Reads) holdLive(sh *shard.Shard, it shard.Item) (*Held, error) {
	size := len(it.Mem)
	if err := r.budgetHold(size); err != nil {
		return nil, err
	}
	place, version := it.Slot.Place(), it.Version
	p := sh.Pin(place)
	held := &Held{Place: place, Size: it.Size, Version: version, KeyLen: len(it.Key()), ValLen: it.ValLen, Expiry: it.Expiry}
	held.release = func() {
		leave, err := r.env.Door.Enter()
		if err != nil {
			return // the memory is gone, or going
		}
		defer leave()
		sh.Unpin(p, place, version)
		r.held.Add(int64(-size))
	}
	r.leaseOut(held)
	return held, nil
}

// holdCopy writes a record into memory for one reader; aside says that other
// memory will do.
func (r *Reads) holdCopy(key []byte, rec disk.Record, aside bool) (*Held, error) {
	size := layout.ItemSize(len(key), len(rec.Value), rec.Expiry != 0)
	if err := r.budgetHold(size); err != nil {
		return nil, err
	}
	place, class, err := r.env.Memory.Slabs.AllocWithin(size, holdPatience)
	if err != nil && !errors.Is(err, base.ErrGrowing) {
		var ok bool
		if place, class, ok = r.env.Evictor.MakeRoom(size); ok {
			err = nil
		} else if class, ok := r.env.Memory.Slabs.Class(size); ok {
			r.env.Evictor.Need(class) // the caller will ask again
		}
	}
	if err != nil && aside {
		return r.holdAside(size, key, rec), nil
	}
	if err != nil {
		r.held.Add(int64(-size))
		return nil, fmt.Errorf("%w: no memory to hold %d bytes for a reader: %w", base.ErrOverloaded, size, err)
	}
	mem := r.env.Memory.Table.Bytes(place, layout.ClassSize(class))
	layout.WriteItem(mem, r.env.Memory.Incarnation, place,
		layout.Item{Version: rec.Version, Key: key, Value: rec.Value, Expiry: rec.Expiry}, layout.Held)
	held := &Held{Place: place, Size: size, Version: rec.Version, KeyLen: len(key), ValLen: len(rec.Value), Expiry: rec.Expiry}
	held.release = func() {
		leave, err := r.env.Door.Enter()
		if err != nil {
			return
		}
		defer leave()
		layout.SetState(mem, rec.Version, layout.Dead)
		r.env.Memory.Slabs.Free(place, class)
		r.held.Add(int64(-size))
	}
	r.leaseOut(held)
	return held, nil
}

// holdAside writes a record into memory that nobody can READ. Its size has been
// counted.
func (r *Reads) holdAside(size int, key []byte, rec disk.Record) *Held {
	held := &Held{
		Place: layout.Nowhere, Size: size, Version: rec.Version, KeyLen: len(key), ValLen: len(rec.Value), Expiry: rec.Expiry,
		aside: make([]byte, size),
	}
	layout.WriteItem(held.aside, r.env.Memory.Incarnation, held.Place,
		layout.Item{Version: rec.Version, Key: key, Value: rec.Value, Expiry: rec.Expiry}, layout.Held)
	held.release = func() { r.held.Add(int64(-size)) }
	r.counts.Aside.Add(1)
	r.leaseOut(held)
	return held
}

// holdPatience is how long a reader's copy waits for memory to be registered:
// enough for a region of the usual size. Other readers wait behind it, so then
// it is told to come again.
const holdPatience = 100 * time.Millisecond

// Small answers pass large ones: those of up to a part of the budget have a part of
// it more.
const (
	smallHolds     = 64 // a small answer takes at most this part of the budget
	SmallHoldExtra = 8  // and all of them together may exceed it by this part
)

// budgetHold takes size bytes of the budget. One answer alone may exceed it.
func (r *Reads) budgetHold(size int) error {
	limit := r.env.HoldBytes
	if int64(size) <= limit/smallHolds {
		limit += limit / SmallHoldExtra
	}
	if now := r.held.Add(int64(size)); now > limit && now > int64(size) {
		r.held.Add(int64(-size))
		return fmt.Errorf("%w: %d bytes are held for readers", base.ErrOverloaded, r.env.HoldBytes)
	}
	return nil
}

// HoldUse returns how many bytes are held for readers, and Config.HoldBytes.
func (r *Reads) HoldUse() (bytes, limit int64) { return r.held.Load(), r.env.HoldBytes }

// leaseOut makes a hold end by itself a lease from now, by the clock of Beat.
func (r *Reads) leaseOut(held *Held) {
	r.counts.Holds.Add(1)
	r.env.Memory.Reclaim.After(held.Release)
}

// ReadHeld copies bytes of a held item from offset off on, for a caller that may
// not READ it: what stood in memory, word by word. off and len(dst) are
// multiples of 8 within the item. The caller sees to it that less than a lease
// has passed since Hold: later the memory may be anybody's.
//
// It fails with ErrClosed.
func (r *Reads) ReadHeld(h *Held, off int, dst []byte) error {
	leave, err := r.env.Door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if h.aside != nil {
		copy(dst, h.aside[off:h.Size])
		return nil
	}
	mem := r.env.Memory.Table.Bytes(h.Place, h.Size)
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], layout.LoadWord(mem, off+i))
	}
	return nil
}
