package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

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

// copyLocked is the value size up to which a resident value is copied under
// the shard's lock: about 3 µs. Larger ones are pinned and copied outside.
const copyLocked = 64 << 10

// Get appends the value of key to dst. It works for every key at any time,
// whatever memory holds. It may wait for Pebble, and for the fsync of a write
// of this key that is in flight; ctx bounds that.
//
// Errors: ErrNotFound, ErrKeyEmpty, ErrKeyTooLarge, ErrShard, ErrCorrupt (a
// *CorruptError), ErrClosed, ErrFatal, ctx's.
func (s *Store) Get(ctx context.Context, shard uint16, key, dst []byte) (Value, error) {
	leave, err := s.enterRead(ctx, shard, key)
	if err != nil {
		return Value{}, err
	}
	defer leave()
	sh, h := s.shards[shard], layout.HashKey(s.seed, key)
	s.touch(h)
	var back *probe // to bring the key back into memory

	sh.mu.Lock()
	it, where := sh.locate(s, h, key)
	switch {
	case where == inMemory && it.ValLen <= copyLocked:
		v := Value{Version: it.Version, Data: append(dst, it.value()...), Expiry: it.Expiry}
		sh.mu.Unlock()
		return v, nil
	case where == inMemory:
		s.slabs.Pin(it.slot.Place())
		sh.mu.Unlock()
		v := Value{Version: it.Version, Data: append(dst, it.value()...), Expiry: it.Expiry}
		ok := it.verified(v.Data[len(dst):])
		s.slabs.Unpin(it.slot.Place())
		if ok {
			return v, nil
		}
		s.counts.damaged.Add(1) // Pebble has it right
	case where == nowhere:
		sh.mu.Unlock()
		return Value{}, ErrNotFound
	default:
		back = s.beginPromotion(sh, h, key)
		sh.mu.Unlock()
	}
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		s.endPromotion(sh, back)
		return Value{}, err
	}
	defer closer.Close()
	s.promote(sh, back, rec)
	return Value{Version: rec.version, Data: append(dst, rec.value...), Expiry: rec.expiry}, nil
}

// Stat returns version and length of key's value. Errors as Get.
func (s *Store) Stat(ctx context.Context, shard uint16, key []byte) (Info, error) {
	leave, err := s.enterRead(ctx, shard, key)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	sh, h := s.shards[shard], layout.HashKey(s.seed, key)

	sh.mu.Lock()
	it, where := sh.locate(s, h, key)
	info := Info{Version: it.Version, ValLen: it.ValLen, Expiry: it.Expiry}
	sh.mu.Unlock()
	switch where {
	case inMemory:
		return info, nil
	case nowhere:
		return Info{}, ErrNotFound
	}
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		return Info{}, err
	}
	defer closer.Close()
	return Info{Version: rec.version, ValLen: len(rec.value), Expiry: rec.expiry}, nil
}

// enterRead checks what can be checked without the shard, and keeps Close
// from pulling memory and Pebble away until leave is called.
func (s *Store) enterRead(ctx context.Context, shard uint16, key []byte) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err // who asked may be gone since
	}
	if err := s.checkKey(shard, key); err != nil {
		return nil, err
	}
	return s.enter()
}

// A location says where a key's published value is.
type location uint8

const (
	inPebble location = iota // or nowhere: only Pebble knows
	inMemory
	nowhere
)

// locate finds key in published memory. Caller holds mu.
func (sh *shard) locate(s *Store, h layout.Hash, key []byte) (item, location) {
	sh.damaged = false
	if it, ok := sh.resident(s, h, key); ok {
		if !s.isExpired(it.Expiry) {
			s.counts.resident.Add(1)
			return it, inMemory
		}
		// A write in flight may have been judged while the key was there, so
		// that it never was absent: then the answer waits for that one.
		if sh.inflight(h, key) != nil {
			return item{}, inPebble
		}
		return item{}, nowhere
	}
	// A damaged item could have been this key's.
	if sh.damaged || sh.pebbled || sh.ix.Slotless(h) {
		return item{}, inPebble
	}
	s.counts.absent.Add(1)
	return item{}, nowhere
}

// resident returns key's live item. If there is a slot and its item is not
// live, or does not verify, memory does not know (damaged). Caller holds mu.
func (sh *shard) resident(s *Store, h layout.Hash, key []byte) (item, bool) {
	if _, ok := sh.find(h, key); !ok {
		return item{}, false
	}
	it, ok := s.itemAt(sh.hit)
	ok = ok && it.State == layout.Live
	sh.damaged = sh.damaged || !ok
	return it, ok
}

// readPublished reads key from Pebble and returns once everything that the
// answer reflects is published. The record is good until closer is closed. A
// key that has expired is ErrNotFound.
func (s *Store) readPublished(ctx context.Context, sh *shard, h layout.Hash, key []byte) (record, io.Closer, error) {
	if s.db == nil {
		return s.readCached(ctx, sh, h, key)
	}
	for {
		s.counts.pebble.Add(1)
		rec, closer, err := s.readRecord(sh, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return record{}, nil, err
		}
		// Ordered is noted after the read: what Pebble showed was ordered
		// before. Only this key's writes matter, so only the newest of those is
		// waited for; if none is in flight, all that Pebble can have shown is
		// published.
		sh.mu.Lock()
		newest := sh.newest(h, key)
		sh.mu.Unlock()
		if waitErr := s.waitFlight(ctx, sh, newest); waitErr != nil {
			if closer != nil {
				closer.Close()
			}
			return record{}, nil, waitErr
		}
		if err != nil || !s.isExpired(rec.expiry) {
			return rec, closer, err
		}
		closer.Close()
		if gone, err := s.surelyExpired(ctx, sh, h, key); err != nil {
			return record{}, nil, err
		} else if gone {
			return record{}, nil, ErrNotFound
		}
	}
}

// readCached is readPublished where memory is all there is. It is asked for keys
// that are damaged, which are lost, and for those that a write in flight hides.
func (s *Store) readCached(ctx context.Context, sh *shard, h layout.Hash, key []byte) (record, io.Closer, error) {
	for {
		sh.mu.Lock()
		if it, where := sh.locate(s, h, key); where == inMemory && it.verified(it.value()) {
			rec := record{version: it.Version, expiry: it.Expiry, value: bytes.Clone(it.value())}
			sh.mu.Unlock()
			return rec, io.NopCloser(nil), nil
		}
		newest := sh.newest(h, key)
		sh.mu.Unlock()
		if newest == 0 {
			return record{}, nil, ErrNotFound
		}
		if err := s.waitFlight(ctx, sh, newest); err != nil {
			return record{}, nil, err
		}
	}
}

// newest returns the version of the newest write of key in flight, or 0.
// Caller holds mu.
func (sh *shard) newest(h layout.Hash, key []byte) layout.Version {
	if w := sh.inflight(h, key); w != nil {
		return w.Version
	}
	return 0
}

// waitFlight is waitPublished for what newest said.
func (s *Store) waitFlight(ctx context.Context, sh *shard, newest layout.Version) error {
	if newest == 0 {
		return nil
	}
	return s.waitPublished(ctx, sh, newest)
}

// surelyExpired says whether a key whose record has expired is absent. It is
// not if a write was ordered before the expiry, while the key was there, and
// gave it a longer life: that write may be in flight, or have been published
// since the record was read. false: something has changed, look again.
func (s *Store) surelyExpired(ctx context.Context, sh *shard, h layout.Hash, key []byte) (gone bool, err error) {
	state, err := s.lockJudged(sh, h, key)
	if err != nil {
		return false, err
	}
	newest := sh.newest(h, key)
	gone = newest == 0 && !state.alive(s.clock.now())
	sh.mu.Unlock()
	return gone, s.waitFlight(ctx, sh, newest)
}

// readRecord reads key's record from Pebble as it is now, published or not.
// The record is good until closer is closed. Errors: ErrNotFound,
// *CorruptError, what the disk said.
func (s *Store) readRecord(sh *shard, key []byte) (record, io.Closer, error) {
	pkey := appendKey(make([]byte, 0, 128), sh.id, kindData, key)
	b, closer, err := dbGet(s.db, pkey)
	if err != nil {
		return record{}, nil, s.readFault(sh.id, key, err)
	}
	rec, err := parseRecord(b, pkey)
	if err != nil {
		closer.Close()
		s.counts.corrupt.Add(1)
		return record{}, nil, &CorruptError{Shard: sh.id, Key: bytes.Clone(key), Detail: err.Error()}
	}
	return rec, closer, nil
}

// readFault turns an error of Pebble's into one of ours.
func (s *Store) readFault(shard uint16, key []byte, err error) error {
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, ErrCorrupt):
		s.counts.corrupt.Add(1)
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case pebble.IsCorruptionError(err):
		s.counts.corrupt.Add(1)
		fault := pebbleCorrupt(err)
		fault.Shard, fault.Key = shard, bytes.Clone(key)
		return fault
	}
	return fmt.Errorf("store: read of key %s: %w", quoteKey(key), err)
}
