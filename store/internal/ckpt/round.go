package ckpt

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// leaveMost is how many keys leave a set under one hold of its shard's lock: 0.4 ms.
	leaveMost = 4096
	// rangeShare is the share of the log's bound that one round takes in at most, so that the
	// log gets room back in steps and not all at the end.
	rangeShare = 8
	leastRange = 4 << 20
	mostRange  = 128 << 20
)

// round takes one range into the base, and tells the shards and the log; more says that
// there is another one. Without pace it goes as fast as it can.
func (k *Keeper) round(ctx context.Context, paced bool) (more bool, err error) {
	select {
	case k.rounds <- struct{}{}:
		defer func() { <-k.rounds }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	began, from := k.c.Now(), k.Place()
	walk, groups := &values{base: k.c.Base}, k.following()
	c := checkpoint.Config{
		Groups: wants(groups),
		Log:    k.c.Log, Stream: k.c.Stream, From: from, Epoch: k.c.Epoch(), Facts: k.c.Facts,
		Bound:  checkpoint.Bound{Bytes: int(min(max(k.c.LogBytes/rangeShare, leastRange), mostRange))},
		Values: walk, Now: k.c.Now,
		Sleep: func(ctx context.Context, d time.Duration) error { return k.c.Sleep(ctx, nil, d) },
		Begin: func(ctx context.Context) (checkpoint.Ingest, error) {
			t, err := k.c.Base.Tables(ctx, k.pace(paced))
			if err != nil {
				return nil, err
			}
			return t, nil
		},
	}
	if !paced {
		c.ReadRate = -1
	}
	waited := k.waiting()
	if k.c.Bytes != nil {
		c.DeadBytes = k.c.LogBytes
		c.Bytes, c.Mark, c.Older, c.Orphans, c.Led = k.c.Bytes, k.mark, k.older, k.orphans, k.c.Led
	}
	done, err := checkpoint.Run(ctx, c)
	walk.close()
	if err != nil {
		k.failed(err)
		return false, err
	}
	if done.Range == nil {
		return false, nil
	}
	if k.c.Bytes != nil {
		k.mark, k.orphans, k.c.Led = done.Mark, false, nil
		k.c.Bytes.Taken(done.Taken)
		k.c.Bytes.Gone(done.Gone)
	}
	k.leave(groups, &done)
	k.reachedGroups(groups, &done)
	k.reached(done.Place)
	k.c.Log.Release(k.c.Stream, done.Place.Frame)
	k.forget()
	k.ended(&done, from, began, max(0, waited-k.waiting()))
	return done.More, nil
}

// leave tells every shard what is in the base now.
func (k *Keeper) leave(groups []*followed, done *checkpoint.Done) {
	grouped := ofGroups(groups)
	for id := range k.c.Shards {
		if !grouped[uint16(id)] {
			k.leaveShard(done, uint16(id), done.Place.Newest)
		}
	}
	k.leaveGroups(groups, done)
}

// leaveShard tells a shard that the base has its writes up to a version.
func (k *Keeper) leaveShard(done *checkpoint.Done, id uint16, newest layout.Version) {
	sh := k.c.Shards[id]
	for more := true; more; {
		k.Leaving.Lock()
		more = sh.Leave(newest, leaveMost)
		k.Leaving.Unlock()
	}
	if second, ok := done.Range.Due(id); ok {
		sh.Relist(second)
	}
}

// values is the walk of the values that stand apart in the base. It begins with the first
// look, because it keeps files of the base until it is closed, and the log is read before.
type values struct {
	base Base
	walk *disk.ValueWalk
}

// Seek is disk.ValueWalk.Seek.
func (v *values) Seek(key []byte) ([]byte, error) {
	if v.walk == nil {
		walk, err := v.base.Values()
		if err != nil {
			return nil, err
		}
		v.walk = walk
	}
	return v.walk.Seek(key)
}

// Place and HasBytes are those of disk.ValueWalk.
func (v *values) Place() (at base.Bytes, ok bool, err error) { return v.walk.Place() }

func (v *values) HasBytes(table uint64, number uint32) (bool, error) {
	if v.walk == nil {
		walk, err := v.base.Values()
		if err != nil {
			return false, err
		}
		v.walk = walk
	}
	return v.walk.HasBytes(table, number)
}

// close ends the walk. What it says is what the look before it has said.
func (v *values) close() {
	if v.walk != nil {
		_ = v.walk.Close()
	}
}
