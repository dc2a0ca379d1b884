package store

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Reading by SEND. A key that is in memory is answered from its item, which is
// published by being there. Everything else is in Pebble, which is ahead of
// what is published: a batch can be read before its fsync. So what Pebble says
// waits until the writes that it may reflect are published (rule F5).

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
// whatever memory holds. It may wait for Pebble, and for the fsync of a write
// of this key that is in flight; ctx bounds that.
//
// Errors: ErrNotFound, ErrKeyEmpty, ErrKeyTooLarge, ErrShard, ErrCorrupt (a
// *CorruptError), ErrClosed, ErrFatal, ctx's.
func (s *Store) Get(ctx context.Context, shardID uint16, key, dst []byte) (Value, error) {
	leave, err := s.enterRead(ctx, shardID, key)
	if err != nil {
		return Value{}, err
	}
	defer leave()
	sh, h := s.shards[shardID], layout.HashKey(s.mem.Seed, key)
	s.mem.Used(h)
	var back *shard.Probe // to bring the key back into memory

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	switch {
	case where == shard.InMemory && it.ValLen <= shard.CopyLocked:
		v := Value{Version: it.Version, Data: append(dst, it.InPlace()...), Expiry: it.Expiry}
		sh.Mu.Unlock()
		return v, nil
	case where == shard.InMemory:
		s.mem.Slabs.Pin(it.Slot.Place())
		sh.Mu.Unlock()
		v := Value{Version: it.Version, Data: append(dst, it.InPlace()...), Expiry: it.Expiry}
		ok := it.Verified(v.Data[len(dst):])
		s.mem.Slabs.Unpin(it.Slot.Place())
		if ok {
			return v, nil
		}
		s.counts.Damaged.Add(1) // Pebble has it right
	case where == shard.Nowhere:
		sh.Mu.Unlock()
		return Value{}, ErrNotFound
	default:
		back = sh.BeginPromotion(h, key)
		sh.Mu.Unlock()
	}
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		sh.EndPromotion(back)
		return Value{}, err
	}
	defer closer.Close()
	s.evictor.Promote(sh, back, rec)
	return Value{Version: rec.Version, Data: append(dst, rec.Value...), Expiry: rec.Expiry}, nil
}

// Stat returns version and length of key's value. Errors as Get.
func (s *Store) Stat(ctx context.Context, shardID uint16, key []byte) (Info, error) {
	leave, err := s.enterRead(ctx, shardID, key)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	sh, h := s.shards[shardID], layout.HashKey(s.mem.Seed, key)

	sh.Mu.Lock()
	it, where := sh.Locate(h, key)
	info := Info{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}
	sh.Mu.Unlock()
	switch where {
	case shard.InMemory:
		return info, nil
	case shard.Nowhere:
		return Info{}, ErrNotFound
	}
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		return Info{}, err
	}
	defer closer.Close()
	return Info{Version: rec.Version, ValLen: len(rec.Value), Expiry: rec.Expiry}, nil
}

// enterRead checks what can be checked without the shard, and keeps Close
// from pulling memory and Pebble away until leave is called.
func (s *Store) enterRead(ctx context.Context, shardID uint16, key []byte) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err // who asked may be gone since
	}
	if err := base.CheckKey(shardID, key, len(s.shards)); err != nil {
		return nil, err
	}
	return s.door.Enter()
}

// readPublished reads key from Pebble and returns once everything that the
// answer reflects is published. The record is good until closer is closed. A
// key that has expired is ErrNotFound.
func (s *Store) readPublished(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (disk.Record, io.Closer, error) {
	if !s.disk.Durable() {
		return s.readCached(ctx, sh, h, key)
	}
	for {
		s.counts.Pebble.Add(1)
		rec, closer, err := s.disk.Read(sh.ID, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return disk.Record{}, nil, err
		}
		// Ordered is noted after the read: what Pebble showed was ordered
		// before. Only this key's writes matter, so only the newest of those is
		// waited for; if none is in flight, all that Pebble can have shown is
		// published.
		sh.Mu.Lock()
		newest := sh.Newest(h, key)
		sh.Mu.Unlock()
		if waitErr := sh.WaitFlight(ctx, newest); waitErr != nil {
			if closer != nil {
				closer.Close()
			}
			return disk.Record{}, nil, waitErr
		}
		if err != nil || !s.clock.Expired(rec.Expiry) {
			return rec, closer, err
		}
		closer.Close()
		if gone, err := s.surelyExpired(ctx, sh, h, key); err != nil {
			return disk.Record{}, nil, err
		} else if gone {
			return disk.Record{}, nil, ErrNotFound
		}
	}
}

// readCached is readPublished where memory is all there is. It is asked for keys
// that are damaged, which are lost, and for those that a write in flight hides.
func (s *Store) readCached(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (disk.Record, io.Closer, error) {
	for {
		sh.Mu.Lock()
		if it, where := sh.Locate(h, key); where == shard.InMemory && it.Verified(it.InPlace()) {
			rec := disk.Record{Version: it.Version, Expiry: it.Expiry, Value: bytes.Clone(it.InPlace())}
			sh.Mu.Unlock()
			return rec, io.NopCloser(nil), nil
		}
		newest := sh.Newest(h, key)
		sh.Mu.Unlock()
		if newest == 0 {
			return disk.Record{}, nil, ErrNotFound
		}
		if err := sh.WaitFlight(ctx, newest); err != nil {
			return disk.Record{}, nil, err
		}
	}
}

// surelyExpired says whether a key whose record has expired is absent. It is
// not if a write was ordered before the expiry, while the key was there, and
// gave it a longer life: that write may be in flight, or have been published
// since the record was read. false: something has changed, look again.
func (s *Store) surelyExpired(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (gone bool, err error) {
	state, err := sh.LockJudged(h, key, s.ask)
	if err != nil {
		return false, err
	}
	newest := sh.Newest(h, key)
	gone = newest == 0 && !state.Alive(s.clock.Now())
	sh.Mu.Unlock()
	return gone, sh.WaitFlight(ctx, newest)
}

// look asks Pebble for the state of a key, without any lock; value: with its value.
func (s *Store) look(sh *shard.Shard, key []byte, value bool) (state flight.KeyState, err error) {
	s.counts.Probes.Add(1)
	rec, closer, err := s.disk.Read(sh.ID, key)
	if errors.Is(err, ErrNotFound) {
		return flight.KeyState{}, nil
	}
	if err != nil {
		return flight.KeyState{}, err
	}
	defer closer.Close()
	state = flight.KeyState{Exists: true, Version: rec.Version, Expiry: rec.Expiry}
	if value {
		state.Value, state.Owned = bytes.Clone(rec.Value), true
	}
	return state, nil
}

// A Touch says that a key was used: what clients tell of the gets that the
// server does not see.
type Touch = residents.Touch

// WantsTouches reports whether it matters by now what is read one-sidedly: memory
// is more than half full.
func (s *Store) WantsTouches() bool { return s.mem.Slabs.Busy() }

// Touched takes clients' reports of keys that they read one-sidedly. It costs
// little and never fails; what it says can only make memory hold other keys
// than it might.
func (s *Store) Touched(touches []Touch) { s.evictor.Touched(touches) }
