package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Held is an item that stays as it is in registered memory, for a caller whose
// answer is too large for a reply: he READs it, and verifies it like any item
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
// is; else a copy is made out of Pebble, in state Held. The time between Hold
// and the first Beat after it does not count for the lease.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held, or there is
// no memory for the copy.
func (s *Store) Hold(ctx context.Context, shardID uint16, key []byte) (*Held, error) {
	return s.hold(ctx, shardID, key, false)
}

// HoldAside is Hold that needs no room in registered memory: where there is none
// the copy stands beside it, Nowhere, and is read by ReadHeld alone. So whoever
// has a key can be answered, however full memory is of other things.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held.
func (s *Store) HoldAside(ctx context.Context, shardID uint16, key []byte) (*Held, error) {
	return s.hold(ctx, shardID, key, true)
}

func (s *Store) hold(ctx context.Context, shardID uint16, key []byte, aside bool) (*Held, error) {
	leave, err := s.enterRead(ctx, shardID, key)
	if err != nil {
		return nil, err
	}
	defer leave()
	sh, h := s.shards[shardID], layout.HashKey(s.mem.Seed, key)
	s.mem.Used(h)

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	if where == shard.InMemory {
		held, err := s.holdLive(sh, it)
		sh.Mu.Unlock()
		return held, err
	}
	if where == shard.Nowhere {
		sh.Mu.Unlock()
		return nil, ErrNotFound
	}
	back := sh.BeginPromotion(h, key)
	sh.Mu.Unlock()
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		sh.EndPromotion(back)
		return nil, err
	}
	defer closer.Close()
	if s.evictor.Promote(sh, back, rec) {
		sh.Mu.Lock()
		if it, where := sh.Locate(h, key); where == shard.InMemory && it.Version == rec.Version {
			held, err := s.holdLive(sh, it)
			sh.Mu.Unlock()
			return held, err
		}
		sh.Mu.Unlock()
	}
	return s.holdCopy(key, rec, aside)
}

// holdLive pins a live item. Caller holds the shard's lock.
func (s *Store) holdLive(sh *shard.Shard, it shard.Item) (*Held, error) {
	size := len(it.Mem)
	if err := s.budgetHold(size); err != nil {
		return nil, err
	}
	place, version := it.Slot.Place(), it.Version
	p := sh.Pin(place)
	held := &Held{Place: place, Size: it.Size, Version: version, KeyLen: len(it.Key()), ValLen: it.ValLen, Expiry: it.Expiry}
	held.release = func() {
		leave, err := s.door.Enter()
		if err != nil {
			return // the memory is gone, or going
		}
		defer leave()
		sh.Unpin(p, place, version)
		s.heldBytes.Add(int64(-size))
	}
	s.leaseOut(held)
	return held, nil
}

// holdCopy writes a record into memory for one reader; aside says that other
// memory will do.
func (s *Store) holdCopy(key []byte, rec disk.Record, aside bool) (*Held, error) {
	size := layout.ItemSize(len(key), len(rec.Value), rec.Expiry != 0)
	if err := s.budgetHold(size); err != nil {
		return nil, err
	}
	place, class, err := s.mem.Slabs.AllocWithin(size, holdPatience)
	if err != nil && !errors.Is(err, ErrGrowing) {
		var ok bool
		if place, class, ok = s.evictor.MakeRoom(size); ok {
			err = nil
		} else if class, ok := s.mem.Slabs.Class(size); ok {
			s.evictor.Need(class) // he will come again
		}
	}
	if err != nil && aside {
		return s.holdAside(size, key, rec), nil
	}
	if err != nil {
		s.heldBytes.Add(int64(-size))
		return nil, fmt.Errorf("%w: no memory to hold %d bytes for a reader: %w", ErrOverloaded, size, err)
	}
	mem := s.mem.Table.Bytes(place, layout.ClassSize(class))
	layout.WriteItem(mem, s.mem.Incarnation, place,
		layout.Item{Version: rec.Version, Key: key, Value: rec.Value, Expiry: rec.Expiry}, layout.Held)
	held := &Held{Place: place, Size: size, Version: rec.Version, KeyLen: len(key), ValLen: len(rec.Value), Expiry: rec.Expiry}
	held.release = func() {
		leave, err := s.door.Enter()
		if err != nil {
			return
		}
		defer leave()
		layout.SetState(mem, rec.Version, layout.Dead)
		s.mem.Slabs.Free(place, class)
		s.heldBytes.Add(int64(-size))
	}
	s.leaseOut(held)
	return held, nil
}

// holdAside writes a record into memory that nobody can READ. Its size has been
// counted.
func (s *Store) holdAside(size int, key []byte, rec disk.Record) *Held {
	held := &Held{
		Place: layout.Nowhere, Size: size, Version: rec.Version, KeyLen: len(key), ValLen: len(rec.Value), Expiry: rec.Expiry,
		aside: make([]byte, size),
	}
	layout.WriteItem(held.aside, s.mem.Incarnation, held.Place,
		layout.Item{Version: rec.Version, Key: key, Value: rec.Value, Expiry: rec.Expiry}, layout.Held)
	held.release = func() { s.heldBytes.Add(int64(-size)) }
	s.counts.Aside.Add(1)
	s.leaseOut(held)
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
	smallHoldExtra = 8  // and all of them together may exceed it by this part
)

// budgetHold takes size bytes of the budget. One answer alone may exceed it.
func (s *Store) budgetHold(size int) error {
	limit := s.cfg.HoldBytes
	if int64(size) <= limit/smallHolds {
		limit += limit / smallHoldExtra
	}
	if now := s.heldBytes.Add(int64(size)); now > limit && now > int64(size) {
		s.heldBytes.Add(int64(-size))
		return fmt.Errorf("%w: %d bytes are held for readers", ErrOverloaded, s.cfg.HoldBytes)
	}
	return nil
}

// HoldUse returns how many bytes are held for readers, and Config.HoldBytes.
func (s *Store) HoldUse() (bytes, limit int64) { return s.heldBytes.Load(), s.cfg.HoldBytes }

// leaseOut makes a hold end by itself a lease from now, by the clock of Beat.
func (s *Store) leaseOut(held *Held) {
	s.counts.Holds.Add(1)
	s.mem.Reclaim.After(held.Release)
}

// ReadHeld copies bytes of a held item from offset off on, for a caller who may
// not READ it himself: what stood in memory, word by word. off and len(dst) are
// multiples of 8 within the item. The caller sees to it that less than a lease
// has passed since Hold: later the memory may be anybody's.
//
// It fails with ErrClosed.
func (s *Store) ReadHeld(h *Held, off int, dst []byte) error {
	leave, err := s.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if h.aside != nil {
		copy(dst, h.aside[off:h.Size])
		return nil
	}
	mem := s.mem.Table.Bytes(h.Place, h.Size)
	for i := 0; i < len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], layout.LoadWord(mem, off+i))
	}
	return nil
}
