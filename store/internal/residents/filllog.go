package residents

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// What the replay of a start found in the log is in the shards' sets, and in no base until a
// checkpoint comes. The fill reads those keys in the log, before it reads the base: keys leave
// the set for the base and never the other way, so a key that it does not find here any
// more it finds there. When both parts are over, each key of the store
//
//	was written since the start     publishing it gave it a slot, or counted it
//	was in the set when this began  it was linked or counted here, or has left the set, and
//	                                the base had it when the other part began
//	was in no set                   the base had it all the time
//
// so the misses of the shard can be believed. This part ends: it goes through one view, which
// does not grow, and nothing that happens meanwhile makes it read a key again, except the
// index that waits for room, with the patience of the other part.

// loggedKeys is how many keys are put into the order of the log at a time: those of one record
// and of near ones are read one behind the other.
const loggedKeys = 4096

// logged fills the keys that the shard's set has.
func (f *Fill) logged(batch *fillBatch) error {
	it := viewOf(batch.sh).Keys(nil, nil)
	var keys []shard.Logged
	for {
		if keys = f.take(it, keys[:0]); len(keys) == 0 {
			return nil
		}
		if err := f.linkLogged(batch, keys); err != nil {
			return err
		}
	}
}

// viewOf returns what the set of a shard has now. It takes the same time however much that is.
func viewOf(sh *shard.Shard) dirty.View {
	sh.Mu.Lock()
	defer sh.Mu.Unlock()
	return sh.Dirty.View()
}

// take appends the next keys that are not gone, in the order of the log.
func (f *Fill) take(it *dirty.Iterator, keys []shard.Logged) []shard.Logged {
	for len(keys) < loggedKeys && it.Next() {
		if e := it.Entry(); !e.Gone {
			keys = append(keys, shard.Logged{Hash: layout.HashKey(f.Memory.Seed, it.Key()), Key: it.Key(), Entry: e})
		}
	}
	slices.SortFunc(keys, func(a, b shard.Logged) int {
		return cmp.Or(cmp.Compare(a.Entry.At, b.Entry.At), cmp.Compare(a.Entry.Part, b.Entry.Part))
	})
	return keys
}

// linkLogged links keys of the set, a few at a time.
func (f *Fill) linkLogged(batch *fillBatch, keys []shard.Logged) error {
	var since time.Time // when the key that waits first found no room
	var waits []byte
	for len(keys) > 0 {
		if f.Life.Over() {
			return errStopped
		}
		n := min(len(keys), batchKeys)
		hurry := waits != nil && time.Since(since) > fillPatience*f.cfg.Lease
		rest, err := f.linkSome(batch, keys[:n], hurry)
		switch {
		case errors.Is(err, errNoRoomYet):
			if first := rest[0].Key; waits == nil || !bytes.Equal(first, waits) {
				since, waits = time.Now(), first
			}
			keys = slices.Concat(rest, keys[n:])
			if err := f.pause(); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			keys, waits = keys[n:], nil
		}
		f.progress(false)
	}
	return nil
}

// linkSome links some keys under one hold of the log. A hold for all would keep the log from
// being freed for as long as the fill takes. It returns those that have to wait, with
// errNoRoomYet.
func (f *Fill) linkSome(batch *fillBatch, keys []shard.Logged, hurry bool) (rest []shard.Logged, err error) {
	sh := batch.sh
	keys, release, err := shard.BeginLogged(sh, keys, hurry, f.Newest.Log.Hold)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	defer release()
	defer sh.EndChunk()
	if batch.near == nil {
		batch.near = f.Newest.Log.Near()
	}
	entries := newest.Entries{Reader: f.Newest, Near: batch.near} // it reads a record with several keys once
	done := 0
	for i, k := range keys {
		rec, err := read(&entries, sh.ID, k)
		switch {
		case errors.Is(err, base.ErrCorrupt):
			f.Memory.Counts.Corrupt.Add(1)
			batch.damaged(k.Key, err)
		case err != nil:
			batch.drop()
			if f.Life.Over() {
				err = errStopped
			}
			return nil, err
		default:
			batch.add(k.Key, rec)
		}
		if i < len(keys)-1 && !batch.full() {
			continue
		}
		n, fate, _ := batch.link()
		if done += n; fate != shard.FillLinked {
			return keys[done:], errNoRoomYet
		}
	}
	return nil, nil
}

// read reads the record of a key. The value is good until the next.
func read(entries *newest.Entries, shardID uint16, k shard.Logged) (disk.Record, error) {
	found, _, err := entries.Look(shardID, k.Key, k.Entry)
	if err != nil {
		return disk.Record{}, err
	}
	value, _, err := entries.Value(&found)
	return disk.Record{Version: found.Version, Expiry: found.Expiry, Value: value}, err
}
