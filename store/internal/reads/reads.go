// Package reads answers what is asked by SEND: one key (Get, Stat), a key whose value is too
// large for a reply (Hold), keys in their order (Scan).
//
// What is told is published (answers-are-published). If it were told before, a crash
// could take back what a caller has seen, or a one-sided reader could miss it.
//
//   - A key that is in memory is answered from its item, which is published by being there.
//   - Everything else is read by package newest: from the log, if the key is in the set of
//     what is newer than the base, and else from the base. A write comes into the set when it
//     is published, and into the base by a checkpoint of what is published. So what is found,
//     and that nothing is found, is the published state of a moment of the call, and nobody
//     waits.
//   - That a key has expired is no such state. A write in flight may have been judged while the
//     key was there, and given it a longer life: then it never was absent. So an answer that
//     rests on the server's time waits for the writes of the key in flight (surelyExpired).
//     If it did not, one caller could be told that the key is gone, and another one later find
//     it with the value of before.
//
// A cache has neither log nor base: memory is all there is (readCached), and there are no pages.
package reads

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/residents"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// An Env is what reads work on.
type Env struct {
	Door    *base.Door // each call goes through it, so that Close waits for the call
	Memory  *shard.Memory
	Shards  []*shard.Shard // by number
	Disk    *disk.Disk
	Evictor *residents.Evictor // brings keys back into memory, and makes room for copies
	Ask     shard.Ask          // what Newest.Ask returns
	// Newest reads what memory does not have, and Moment returns all that is published now,
	// with the log held. A cache has neither.
	Newest *newest.Reader
	Moment func() (newest.Moment, error)
	// Expire has a key removed that has expired under a second, where that is agreed upon (shard.Shard.Agreed), and returns when
	// the removal is published, or the key is there with another expiry.
	Expire func(ctx context.Context, shard uint16, key []byte, second uint64) error
	// Left returns nil, or an error for a shard whose replica the store has given up: what it has no key of another store may have. nil: there are no
	// such shards.
	Left func(shard uint16) error
	// HoldBytes bounds the memory of held answers.
	HoldBytes int64
}

// Reads answers from memory, the log and the base. Safe for concurrent use.
type Reads struct {
	env    Env
	clock  *clock.Clock
	counts *base.Counters
	held   atomic.Int64 // bytes, of HoldBytes
}

// New returns the reads of a store.
func New(env Env) *Reads {
	return &Reads{env: env, clock: env.Memory.Clock, counts: env.Memory.Counts}
}

// enterRead checks what can be checked without the shard, and keeps Close
// from pulling memory, log and base away until leave is called.
func (r *Reads) enterRead(ctx context.Context, shardID uint16, key []byte) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err // whoever asked may have gone
	}
	if err := base.CheckKey(shardID, key, len(r.env.Shards)); err != nil {
		return nil, err
	}
	return r.env.Door.Enter()
}

// told is what a caller is told for an error of a read of a shard: that the key is not there nobody here knows if the shard's replica was given up
// meanwhile. The caller may have been told before that this store leads the group, and would take an emptied shard for what the group has.
func (r *Reads) told(shard uint16, err error) error {
	if r.env.Left == nil || !errors.Is(err, base.ErrNotFound) {
		return err
	}
	return cmp.Or(r.env.Left(shard), err)
}

// readPublished reads what is published of a key. The record is good until closer is
// closed. A key that has expired is ErrNotFound.
func (r *Reads) readPublished(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (disk.Record, io.Closer, error) {
	if !r.env.Disk.Durable() {
		return r.readCached(ctx, sh, h, key)
	}
	for {
		r.counts.Pebble.Add(1)
		rec, closer, err := r.env.Newest.Read(sh, key)
		if err != nil && !errors.Is(err, base.ErrNotFound) {
			return disk.Record{}, nil, err
		}
		if err != nil || !r.clock.Expired(rec.Expiry) {
			return rec, closer, err
		}
		closer.Close()
		if sh.Agreed.Load() {
			if err := r.env.Expire(ctx, sh.ID, key, clock.Second(rec.Expiry)); err != nil {
				return disk.Record{}, nil, err
			}
			continue
		}
		if gone, err := r.surelyExpired(ctx, sh, h, key); err != nil {
			return disk.Record{}, nil, err
		} else if gone {
			return disk.Record{}, nil, base.ErrNotFound
		}
	}
}

// readCached is readPublished where memory is all there is. It is asked for keys
// that are damaged, which are lost, and for those that a write in flight hides.
func (r *Reads) readCached(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (disk.Record, io.Closer, error) {
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
			return disk.Record{}, nil, base.ErrNotFound
		}
		if err := sh.WaitFlight(ctx, newest); err != nil {
			return disk.Record{}, nil, err
		}
	}
}

// expired says whether a scan leaves a key out for its expiry. Where that is agreed upon the key is there until its removal is
// published: one who gets it has it removed, but a scan that did so would wait for each.
func (r *Reads) expired(shardID uint16, expiry uint64) bool {
	return !r.env.Shards[shardID].Agreed.Load() && r.clock.Expired(expiry)
}

// surelyExpired says whether a key whose record has expired is absent. It is
// not if a write was ordered before the expiry, while the key was there, and
// gave it a longer life: that write may be in flight, or have been published
// since the record was read. false: something has changed, look again. It is the one
// wait of a read, but for the disk.
func (r *Reads) surelyExpired(ctx context.Context, sh *shard.Shard, h layout.Hash, key []byte) (gone bool, err error) {
	state, err := sh.LockJudged(h, key, r.env.Ask)
	if err != nil {
		return false, err
	}
	newest := sh.Newest(h, key)
	gone = newest == 0 && !state.Alive(r.clock.Now())
	sh.Mu.Unlock()
	return gone, sh.WaitFlight(ctx, newest)
}
