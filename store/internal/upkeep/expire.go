package upkeep

import (
	"bytes"
	"errors"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// Keys that have expired are absent at once, for everybody. The expirer takes
// them away for good, by deletes in the order: on the condition that the key is
// still the one that expired.
//
// It finds them in Pebble, where every key that expires is listed under the
// second in which it will have:
//
//	shard | kind expiry | second, u64 BE | key    ->  an empty record
//
// The entry is written in the batch that writes the key, so there is none
// missing. It costs no memory however many keys expire, needs no walk over the
// others, and is there after a restart. A write that knows the old expiry
// removes its entry; one that does not, a put of a key out of memory, leaves it
// and the expirer removes it when its second has come. A key that is written
// each second has one entry per second at most.

const (
	expireEvery = 250 * time.Millisecond
	// ExpireChunk is how many keys are deleted at a time, over all shards.
	ExpireChunk = 256
	// ExpireRetry is the seconds until the next try, where one has failed.
	ExpireRetry = 2
)

// An Expirer removes expired keys that the disk lists.
type Expirer struct{ Env }

// Run removes expired keys until the store ends.
func (x *Expirer) Run() {
	x.Life.Every(expireEvery, func() {
		for more := true; more && !x.Life.Over(); {
			var err error
			if more, err = x.Remove(ExpireChunk); err != nil {
				more = false
				if !x.Life.Over() && !errors.Is(err, base.ErrOverloaded) {
					x.Life.Fence.Report(slog.LevelError, "removal of expired keys", "err", err)
				}
			}
		}
	})
}

// Remove removes up to n expired keys. more: there may be others by now.
func (x *Expirer) Remove(n int) (more bool, err error) {
	now := x.now()
	var found []*flight.Flight
	for _, sh := range x.Shards {
		if len(found) == n {
			return true, x.remove(found)
		}
		if !sh.TakeDue(now) {
			continue
		}
		next := uint64(0)
		found, next, err = x.findDue(sh, now, found, n)
		sh.DueAt(next)
		if err != nil {
			break
		}
	}
	return len(found) == n, errors.Join(err, x.remove(found))
}

// now is the server's time, in seconds.
func (x *Expirer) now() uint64 { return x.Memory.Clock.Now() / 1_000_000 }

// remove runs the deletes. After an error the expirer will look at their shards again,
// but not at once.
func (x *Expirer) remove(found []*flight.Flight) error {
	err := x.run(found)
	if err != nil {
		again := x.now() + ExpireRetry
		for _, f := range found {
			x.Shards[f.Op.Shard].DueAt(again)
		}
	}
	return err
}

// findDue appends deletes for the keys of a shard whose second has come, up to
// n in all, and returns the second of the first that is left.
func (x *Expirer) findDue(sh *shard.Shard, now uint64, found []*flight.Flight, n int) (_ []*flight.Flight, next uint64, err error) {
	next = clock.NeverDue
	err = x.Disk.EachDue(sh.ID, func(due uint64, key []byte) bool {
		if due > now || len(found) == n {
			next = due
			return false
		}
		found = append(found, dueWrite(sh.ID, key, due))
		return true
	})
	switch {
	case errors.Is(err, base.ErrCorrupt): // an entry that stays as it is
		next = now + 60
	case err != nil:
		next = now
	}
	return found, next, err
}

// dueWrite is the removal of a key that is listed under a second that is over.
func dueWrite(shard uint16, key []byte, due uint64) *flight.Flight {
	f := newWrite(base.Op{Shard: shard, Kind: base.OpDelete, Key: bytes.Clone(key)})
	f.Due = due
	return f
}
