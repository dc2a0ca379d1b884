package upkeep

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/log"
)

// Keys that have expired are absent at once, for everybody. The expirer takes
// them away for good, by deletes in the order: on the condition that the key is
// still the one that expired.
//
// It finds them in the base, where every key that expires is listed under the
// second in which it will have:
//
//	shard | kind expiry | second, u64 BE | key    ->  an empty record
//
// The entry comes with the checkpoint that brings the key, so there is none
// missing. It costs no memory however many keys expire, needs no walk over the
// others, and is there after a restart. A write that knows the old expiry
// takes its entry away; one that does not, a put of a key out of memory, leaves it
// and the expirer takes it away when its second has come. A key that is written
// each second has one entry per second at most.
//
// The list is as old as the last checkpoint: what was removed since is listed still. So
// the expirer walks each shard's list behind a cursor, up to which it has handled it:
//
//	second   ... 7 7 7 | 8 8 9 | 12 15 ...     handled, due, not yet
//	                 ^ cursor  ^ nextDue
//
//   - It rises over what is handled. If it did not, what cannot leave the list before the next
//     checkpoint would be handled again and again, at once.
//   - It goes back to the earliest second under which a checkpoint has listed a key
//     (Relist). If it did not, a key that came late, behind the cursor, would stay for ever.
//     What is handled twice for that is what was handled while the checkpoint ran: what was
//     handled before is in it, and off the list.
//   - It goes back to the first whose removal failed, so that none is forgotten.

const (
	expireEvery = 250 * time.Millisecond
	// ExpireChunk is how many keys are deleted at a time, over all shards.
	ExpireChunk = 256
	// ExpireRetry is the seconds until the next try, where one has failed.
	ExpireRetry = 2
)

// An Expirer removes expired keys that the base lists. It is its goroutine's alone.
type Expirer struct {
	Env
	at []cursor // by shard
	// list walks the list of a shard; nil: that of Disk.
	list func(shard uint16, from uint64, first []byte, f func(second uint64, key []byte) bool) error
}

// A cursor is where the list of a shard is not handled yet: from a key of a second on. Its
// zero value is before the first.
type cursor struct {
	second uint64
	key    []byte
}

// Run removes expired keys until the store ends.
func (x *Expirer) Run() {
	x.Life.Every(expireEvery, func() {
		for more := true; more && !x.Life.Over(); {
			var err error
			if more, err = x.Remove(ExpireChunk); err != nil {
				more = false
				if !x.Life.Over() && !errors.Is(err, base.ErrOverloaded) && !isOthers(err) {
					x.Life.Fence.Report(slog.LevelError, "removal of expired keys", "err", err)
				}
			}
		}
	})
}

// isOthers says whether what was due is now for the replica that leads next, which does it again if it was not done.
func isOthers(err error) bool {
	return errors.Is(err, base.ErrNotLeader) || errors.Is(err, base.ErrOutcomeUnknown)
}

// Remove removes up to n expired keys. more: there may be others by now. Each call that says
// so has moved a cursor, so that calls come to an end with the list.
func (x *Expirer) Remove(n int) (more bool, err error) {
	if x.at == nil {
		x.at = make([]cursor, len(x.Shards))
	}
	now := x.now()
	var found []*flight.Flight
	for i, sh := range x.Shards {
		if len(found) == n {
			return true, x.remove(found)
		}
		if !x.mine(sh.ID) || !sh.TakeDue(now) {
			continue
		}
		if listed := sh.TakeRelisted(); listed <= x.at[i].second {
			x.at[i] = cursor{second: listed}
		}
		next := uint64(0)
		found, next, err = x.findDue(i, now, found, n)
		sh.DueAt(next)
		if err != nil {
			break
		}
	}
	return len(found) == n, errors.Join(err, x.remove(found))
}

// now is the server's time, in seconds.
func (x *Expirer) now() uint64 { return x.Memory.Clock.Now() / 1_000_000 }

// remove runs the deletes. Where one has failed, the expirer will look at its shard again,
// from there on, but not at once.
func (x *Expirer) remove(found []*flight.Flight) error {
	left, err := x.runSome(found)
	again := x.now() + ExpireRetry
	for _, f := range slices.Backward(left) { // so the first of a shard is the last that counts
		x.at[f.Op.Shard] = cursor{f.Due, f.Op.Key}
		x.Shards[f.Op.Shard].DueAt(again)
	}
	return err
}

// findDue appends deletes for the keys of a shard whose second has come, up to
// n in all, moves the shard's cursor behind them, and returns the second of the first that is
// left.
func (x *Expirer) findDue(i int, now uint64, found []*flight.Flight, n int) (_ []*flight.Flight, next uint64, err error) {
	sh, at := x.Shards[i], &x.at[i]
	list := x.list
	if list == nil {
		list = x.Disk.EachDue
	}
	next = clock.NeverDue
	err = list(sh.ID, at.second, at.key, func(due uint64, key []byte) bool {
		if due > now || len(found) == n {
			next = due
			return false
		}
		f := dueWrite(sh.ID, key, due)
		found, *at = append(found, f), cursor{due, append(bytes.Clone(key), 0)} // the next there can be
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

// OrderExpired orders the removal of a key that has expired under a second, and does not wait until it is done. If the key has another
// expiry by then it stays.
func (e *Env) OrderExpired(sh *shard.Shard, key []byte, second uint64, w pipeline.Wait) error {
	f := dueWrite(sh.ID, key, second)
	f.Charge = int64(len(key))
	room, err := e.Gate.TryEnter(f.Charge, 1, log.Deletes)
	if err != nil {
		return err
	}
	return e.order(sh, f, room, w)
}

// order orders a write that was admitted, with room in the log. One that is not ordered is let out again.
func (e *Env) order(sh *shard.Shard, f *flight.Flight, room int64, w pipeline.Wait) error {
	f.Room = room
	err := e.Order(sh, f, w)
	if err != nil {
		e.Gate.Leave(f.Charge, 1)
		e.Gate.Return(f.Room)
	}
	return err
}

// RemoveExpired removes a key that has expired under a second, and returns when that is published. If the key has another expiry by then
// it stays, and the error is nil. When ctx ends first, the key may be removed later.
func (e *Env) RemoveExpired(ctx context.Context, shard uint16, key []byte, second uint64) error {
	f := dueWrite(shard, key, second)
	done := make(chan struct{})
	f.Done = func(*flight.Flight) { close(done) }
	f.Charge = int64(len(key))
	room, err := e.Gate.Enter(ctx, e.Life.Fence.Down, f.Charge, 1, log.Deletes)
	if err != nil {
		return err
	}
	if err := e.order(e.Shards[shard], f, room, pipeline.Wait{Disk: true, Memory: true}); err != nil {
		return err
	}
	select {
	case <-done:
		return f.Result.Err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.Life.Fence.Down:
		return e.Life.Fence.Failed()
	}
}
