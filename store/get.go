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
	leave, err := s.enterRead(shard, key)
	if err != nil {
		return Value{}, err
	}
	defer leave()
	sh, h := s.shards[shard], layout.HashKey(s.seed, key)

	sh.mu.Lock()
	it, where := sh.locate(s, h, key)
	switch {
	case where == inMemory && it.ValLen <= copyLocked:
		v := Value{Version: it.Version, Data: append(dst, it.value()...)}
		sh.mu.Unlock()
		return v, nil
	case where == inMemory:
		s.slabs.Pin(it.slot.Place())
		sh.mu.Unlock()
		v := Value{Version: it.Version, Data: append(dst, it.value()...)}
		ok := it.verified(v.Data[len(dst):])
		s.slabs.Unpin(it.slot.Place())
		if ok {
			return v, nil
		}
		s.counts.damaged.Add(1) // Pebble has it right
	default:
		sh.mu.Unlock()
		if where == nowhere {
			return Value{}, ErrNotFound
		}
	}
	rec, closer, err := s.readPublished(ctx, sh, h, key)
	if err != nil {
		return Value{}, err
	}
	defer closer.Close()
	return Value{Version: rec.version, Data: append(dst, rec.value...)}, nil
}

// Stat returns version and length of key's value. Errors as Get.
func (s *Store) Stat(ctx context.Context, shard uint16, key []byte) (Info, error) {
	leave, err := s.enterRead(shard, key)
	if err != nil {
		return Info{}, err
	}
	defer leave()
	sh, h := s.shards[shard], layout.HashKey(s.seed, key)

	sh.mu.Lock()
	it, where := sh.locate(s, h, key)
	info := Info{Version: it.Version, ValLen: it.ValLen}
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
	return Info{Version: rec.version, ValLen: len(rec.value)}, nil
}

// enterRead checks what can be checked without the shard, and keeps Close
// from pulling memory and Pebble away until leave is called.
func (s *Store) enterRead(shard uint16, key []byte) (leave func(), err error) {
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
		s.counts.resident.Add(1)
		return it, inMemory
	}
	// A damaged item could have been this key's.
	if sh.damaged || sh.pebbled || sh.ix.Slotless(h) {
		return item{}, inPebble
	}
	s.counts.absent.Add(1)
	return item{}, nowhere
}

// resident returns key's live item. Caller holds mu.
func (sh *shard) resident(s *Store, h layout.Hash, key []byte) (item, bool) {
	if _, ok := sh.find(h, key); !ok {
		return item{}, false
	}
	it, ok := s.itemAt(sh.hit)
	return it, ok && it.State == layout.Live
}

// readPublished reads key from Pebble and returns once everything that the
// answer reflects is published. The record is good until closer is closed.
func (s *Store) readPublished(ctx context.Context, sh *shard, h layout.Hash, key []byte) (record, io.Closer, error) {
	s.counts.pebble.Add(1)
	rec, closer, err := s.readRecord(sh, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return record{}, nil, err
	}
	// Ordered is noted after the read: what Pebble showed was ordered before.
	// Only this key's writes matter, so only the newest of those is waited
	// for; if none is in flight, all that Pebble can have shown is published.
	sh.mu.Lock()
	var newest layout.Version
	if w := sh.inflight(h, key); w != nil {
		newest = w.Version
	}
	sh.mu.Unlock()
	if newest != 0 {
		if waitErr := s.waitPublished(ctx, sh, newest); waitErr != nil {
			if closer != nil {
				closer.Close()
			}
			return record{}, nil, waitErr
		}
	}
	return rec, closer, err
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
