package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Submit orders a write and returns; Done tells the rest. It may be called
// from any goroutine, and writes of one key take effect in the order of their
// Submit calls. It does not wait for the disk, except for a delete of a key
// of which memory alone cannot say whether it exists; and it waits for a region
// to be registered, unless NoWait, when the item has no room in those there are.
//
// Errors: ErrKeyEmpty, ErrKeyTooLarge, ErrTooLarge, ErrShard, ErrGrowing,
// ErrOverloaded (the in-flight bound is reached, or the log has no room: nothing is queued beyond
// them; or an increment or a touch lost its key to others a hundred times), of which a LogError says
// that the log is the reason and when to submit the write again, ErrUnsupported, ErrNoSpace,
// ErrReadOnlyDisk, ErrClosed, ErrFatal, ErrNotLeader, and ErrCorrupt for a delete whose
// record cannot be read. After an error nothing was ordered.
func (s *Store) Submit(w *Write) error {
	if err := s.admits(&w.Op); err != nil {
		return err
	}
	f := w.begin()
	f.Charge = cost(&w.Op)
	for {
		charged := f.Charge
		enter := s.gate.TryEnter
		if w.counted {
			enter = s.gate.TryAgain
		}
		room, err := enter(charged, len(w.Op.Parts), use(&w.Op))
		if err != nil {
			return err
		}
		f.Room, w.counted = room, false // as long as it is the caller's: it may be done, and in use again
		err = s.groups.order(s.shards[w.Shard], f, pipeline.Wait{Disk: !w.NoWait, Memory: !w.NoWait})
		if err == nil {
			return nil
		}
		w.counted = true
		s.gate.Leave(charged, 1)
		s.gate.Return(f.Room)
		if err != pipeline.ErrCharge {
			return err
		}
	}
}

// Do is the blocking form of Submit: it waits for room, for memory, and until
// the write is durable and published. When ctx ends after the write was
// ordered, the error is ErrOutcomeUnknown together with ctx's; w and what it
// refers to may then still be in use.
func (s *Store) Do(ctx context.Context, w *Write) error {
	if err := s.admits(&w.Op); err != nil {
		return err
	}
	done := make(chan struct{})
	w.Done = func(*Write) { close(done) }
	f := w.begin()
	f.Charge = cost(&w.Op)
	for again := true; again; {
		charged := f.Charge
		room, err := s.gate.Enter(ctx, s.fence.Down, charged, len(w.Op.Parts), use(&w.Op))
		if err != nil {
			return s.fence.Or(err)
		}
		f.Room = room
		sh, wait := s.shards[w.Shard], pipeline.Wait{Disk: true}
		err = s.groups.order(sh, f, wait)
		for errors.Is(err, ErrGrowing) {
			select {
			case <-s.Growing():
				err = s.groups.order(sh, f, wait)
			case <-ctx.Done():
				err = ctx.Err()
			case <-s.fence.Down:
				err = s.fence.Or(ErrClosed)
			}
		}
		if err != nil {
			s.gate.Leave(charged, 1)
			s.gate.Return(f.Room)
		}
		if again = err == pipeline.ErrCharge; err != nil && !again {
			return err
		}
	}
	select {
	case <-done:
		return w.Err
	case <-ctx.Done():
		// Both may be ready; what is known is not called unknown.
		select {
		case <-done:
			return w.Err
		default:
		}
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	case <-s.fence.Down:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, s.fence.Failed())
	}
}

// Put stores value under key and returns its version once that is durable and
// published. It waits for room where Submit would say ErrOverloaded. key and
// value are copied. When ctx ends after the write was ordered, the error is
// ErrOutcomeUnknown together with ctx's.
func (s *Store) Put(ctx context.Context, shard uint16, key, value []byte) (layout.Version, error) {
	w := &Write{Op: Op{Shard: shard, Key: append([]byte(nil), key...), Value: append([]byte(nil), value...)}}
	err := s.Do(ctx, w)
	return w.Version, err
}

// Delete removes key and reports whether it was there. Otherwise as Put.
func (s *Store) Delete(ctx context.Context, shard uint16, key []byte) (existed bool, err error) {
	w := &Write{Op: Op{Shard: shard, Key: append([]byte(nil), key...), Kind: OpDelete}}
	err = s.Do(ctx, w)
	return err == nil && w.Existed, err
}
