package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
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

// pinned counts the holders of a live item. Guarded by the shard's lock.
type pinned struct {
	holders int
	killed  bool // overwritten or deleted meanwhile: its state is Held
}

// Hold keeps the item of key for a reader. An item in memory is kept where it
// is; else a copy is made out of Pebble, in state Held. The time between Hold
// and the first Beat after it does not count for the lease.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held, or there is
// no memory for the copy.
func (s *Store) Hold(ctx context.Context, shard uint16, key []byte) (*Held, error) {
	return s.hold(ctx, shard, key, false)
}

// HoldAside is Hold that needs no room in registered memory: where there is none
// the copy stands beside it, Nowhere, and is read by ReadHeld alone. So whoever
// has a key can be answered, however full memory is of other things.
//
// Errors as Get, and ErrOverloaded when Config.HoldBytes are held.
func (s *Store) HoldAside(ctx context.Context, shard uint16, key []byte) (*Held, error) {
	return s.hold(ctx, shard, key, true)
}

func (s *Store) hold(ctx context.Context, shard uint16, key []byte, aside bool) (*Held, error) {
	leave, err := s.enterRead(ctx, shard, key)
	if err != nil {
		return nil, err
	}
	defer leave()
	sh, h := s.shards[shard], layout.HashKey(s.seed, key)
	s.touch(h)

	sh.mu.Lock()
	it, where := sh.locate(s, h, key)
	if where == inMemory {
		held, err := s.holdLive(sh, it)
		sh.mu.Unlock()
		return held, err
	}
	if where == nowhere {
		sh.mu.Unlock()
		return nil, ErrNotFound
	}
	back := s.beginPromotion(sh, h, key)
	sh.mu.Unlock()
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		s.endPromotion(sh, back)
		return nil, err
	}
	defer closer.Close()
	if s.promote(sh, back, rec) {
		sh.mu.Lock()
		if it, where := sh.locate(s, h, key); where == inMemory && it.Version == rec.version {
			held, err := s.holdLive(sh, it)
			sh.mu.Unlock()
			return held, err
		}
		sh.mu.Unlock()
	}
	return s.holdCopy(key, rec, aside)
}

// holdLive pins a live item. Caller holds the shard's lock.
func (s *Store) holdLive(sh *shard, it item) (*Held, error) {
	size := len(it.mem)
	if err := s.budgetHold(size); err != nil {
		return nil, err
	}
	place, version := it.slot.Place(), it.Version
	p := sh.held[place]
	if p == nil {
		p = &pinned{}
		sh.held[place] = p
	}
	p.holders++
	if !teeth.Off(teeth.F11HeldPlace) {
		s.slabs.Pin(place)
	}
	held := &Held{Place: place, Size: it.Size, Version: version, KeyLen: len(it.Key()), ValLen: it.ValLen, Expiry: it.Expiry}
	held.release = func() {
		leave, err := s.enter()
		if err != nil {
			return // the memory is gone, or going
		}
		defer leave()
		sh.mu.Lock()
		if p.holders--; p.holders == 0 {
			delete(sh.held, place)
			if p.killed {
				layout.SetState(s.table.Bytes(place, layout.ItemHeaderSize), version, layout.Dead)
			}
		}
		sh.mu.Unlock()
		s.slabs.Unpin(place)
		s.heldBytes.Add(int64(-size))
	}
	s.leaseOut(held)
	return held, nil
}

// holdCopy writes a record into memory for one reader; aside says that other
// memory will do.
func (s *Store) holdCopy(key []byte, rec record, aside bool) (*Held, error) {
	size := layout.ItemSize(len(key), len(rec.value), rec.expiry != 0)
	if err := s.budgetHold(size); err != nil {
		return nil, err
	}
	place, class, err := s.slabs.AllocWithin(size, holdPatience)
	if err != nil && !errors.Is(err, ErrGrowing) {
		var ok bool
		if place, class, ok = s.makeRoom(size); ok {
			err = nil
		} else if class, ok := s.slabs.Class(size); ok {
			s.evictor.need(class) // he will come again
		}
	}
	if err != nil && aside {
		return s.holdAside(size, key, rec), nil
	}
	if err != nil {
		s.heldBytes.Add(int64(-size))
		return nil, fmt.Errorf("%w: no memory to hold %d bytes for a reader: %w", ErrOverloaded, size, err)
	}
	mem := s.table.Bytes(place, layout.ClassSize(class))
	layout.WriteItem(mem, s.incarnation, place,
		layout.Item{Version: rec.version, Key: key, Value: rec.value, Expiry: rec.expiry}, layout.Held)
	held := &Held{Place: place, Size: size, Version: rec.version, KeyLen: len(key), ValLen: len(rec.value), Expiry: rec.expiry}
	held.release = func() {
		leave, err := s.enter()
		if err != nil {
			return
		}
		defer leave()
		layout.SetState(mem, rec.version, layout.Dead)
		s.slabs.Free(place, class)
		s.heldBytes.Add(int64(-size))
	}
	s.leaseOut(held)
	return held, nil
}

// holdAside writes a record into memory that nobody can READ. Its size has been
// counted.
func (s *Store) holdAside(size int, key []byte, rec record) *Held {
	held := &Held{
		Place: layout.Nowhere, Size: size, Version: rec.version, KeyLen: len(key), ValLen: len(rec.value), Expiry: rec.expiry,
		aside: make([]byte, size),
	}
	layout.WriteItem(held.aside, s.incarnation, held.Place,
		layout.Item{Version: rec.version, Key: key, Value: rec.value, Expiry: rec.expiry}, layout.Held)
	held.release = func() { s.heldBytes.Add(int64(-size)) }
	s.counts.aside.Add(1)
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
	s.counts.holds.Add(1)
	s.reclaim.After(held.Release)
}
