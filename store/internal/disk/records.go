package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
)

// Fault turns an error of Pebble's into one of ours.
func (d *Disk) Fault(shard uint16, key []byte, err error) error {
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return base.ErrNotFound
	case errors.Is(err, base.ErrCorrupt):
		d.counts.Corrupt.Add(1)
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case pebble.IsCorruptionError(err):
		d.counts.Corrupt.Add(1)
		fault := pebbleCorrupt(err)
		fault.Shard, fault.Key = shard, bytes.Clone(key)
		return fault
	}
	return fmt.Errorf("store: read of key %s: %w", base.QuoteKey(key), err)
}

// Damage returns an error that Pebble calls corruption as a *CorruptError, and any
// other as it is.
func Damage(err error) error {
	if pebble.IsCorruptionError(err) {
		return pebbleCorrupt(err)
	}
	return err
}

// dbGet is Pebble's Get.
func dbGet(db pebble.Reader, key []byte) (b []byte, closer io.Closer, err error) {
	defer guard(&err)
	return db.Get(key)
}

// Records walks what stands in Pebble between two of its keys, in their order, as it
// was when the walk began. Not safe for concurrent use. It is to be closed.
//
// A damaged block looks like the end. So whoever comes to the end asks Error.
type Records struct {
	iter   *pebble.Iterator
	values *values
}

// First goes to the first entry and reports whether there is one.
func (r Records) First() bool { return r.iter.First() }

// Next goes to the next entry and reports whether there is one.
func (r Records) Next() bool { return r.iter.Next() }

// Valid reports whether the walk stands at an entry.
func (r Records) Valid() bool { return r.iter.Valid() }

// Key returns Pebble's key, good until the walk moves. ParseKey splits it.
func (r Records) Key() []byte { return r.iter.Key() }

// Value returns what stands under the key, good until the walk moves. Under kind data
// that may be a record whose value stands apart: ParseNoted reads it, Whole adds the value.
func (r Records) Value() (b []byte, err error) {
	defer guard(&err)
	return r.iter.ValueAndErr()
}

// Error returns why the walk ended before its end; nil if it did not.
func (r Records) Error() error { return r.iter.Error() }

// Close ends the walk. It returns what Error does.
func (r Records) Close() error {
	err := r.iter.Close()
	if r.values.iter != nil {
		err = errors.Join(err, r.values.iter.Close())
	}
	return err
}

// Records begins a walk from lower up to upper, which is not part of it.
func (d *Disk) Records(lower, upper []byte) (Records, error) {
	return recordsOf(d.db, lower, upper)
}

func recordsOf(db pebble.Reader, lower, upper []byte) (Records, error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return Records{iter, &values{}}, err
}

// A Snapshot is what stands in Pebble at one moment. It is to be closed.
type Snapshot struct{ snap *pebble.Snapshot }

// Snapshot takes one of now.
func (d *Disk) Snapshot() Snapshot { return Snapshot{d.db.NewSnapshot()} }

// Records is Disk.Records of that moment.
func (s Snapshot) Records(lower, upper []byte) (Records, error) {
	return recordsOf(s.snap, lower, upper)
}

// Named is Base.Named of that moment.
func (s Snapshot) Named(key []byte) ([]byte, error) { return namedIn(s.snap, key) }

// Close lets the moment go. Its walks are to be closed before.
func (s Snapshot) Close() error { return s.snap.Close() }

// EachKey calls f for the keys of a shard in Pebble until it returns false.
func (d *Disk) EachKey(shard uint16, f func(key []byte) bool) error {
	lower, upper := KindBounds(shard, KindData)
	iter, err := d.Records(lower, upper)
	if err != nil {
		return err
	}
	for iter.First(); iter.Valid(); iter.Next() {
		if _, _, key, _ := ParseKey(iter.Key()); !f(key) {
			break
		}
	}
	err = iter.Error()
	if closeErr := iter.Close(); err == nil {
		err = closeErr
	}
	return err
}

// EachDue calls f for the keys of a shard that expire, with the second in which they
// do, in the order of these, until it returns false: from a second and a key in it on. key is
// good during the call. Errors: a *CorruptError for an entry that cannot be, what the disk
// said.
func (d *Disk) EachDue(shard uint16, from uint64, first []byte, f func(second uint64, key []byte) bool) (err error) {
	_, upper := KindBounds(shard, KindExpiry)
	lower := AppendKey(nil, shard, KindExpiry, append(binary.BigEndian.AppendUint64(nil, from), first...))
	iter, err := d.Records(lower, upper)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}()
	for iter.First(); iter.Valid(); iter.Next() {
		_, _, name, _ := ParseKey(iter.Key())
		due, key, ok := parseExpiryKey(name)
		if !ok {
			return &base.CorruptError{Shard: shard, Key: append([]byte("expiry "), name...), Detail: "entry without a key"}
		}
		if !f(due, key) {
			return nil
		}
	}
	return iter.Error()
}

// EachResult calls f for the results of requests that a shard keeps, until it returns
// false: with the Pebble key of the record, good during the call. They begin at from,
// a Pebble key; nil: with the first. A damaged record is an error: without it a write could be applied
// twice.
func (d *Disk) EachResult(shard uint16, from []byte, f func(pkey []byte, k base.SlotKey, r dedup.Result) bool) (err error) {
	lower, upper := KindBounds(shard, KindDedup)
	if from != nil {
		lower = from
	}
	iter, err := d.Records(lower, upper)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}()
	for iter.First(); iter.Valid(); iter.Next() {
		value, err := iter.Value()
		if err != nil {
			return err
		}
		_, _, name, _ := ParseKey(iter.Key())
		k, ok := base.ParseSlotKey(name)
		rec, err := ParseRecord(value, iter.Key())
		if err == nil && !ok {
			err = fmt.Errorf("request id of %d bytes", len(name))
		}
		r, ok := dedup.ParseResult(rec.Version, rec.Value)
		if err == nil && !ok {
			err = fmt.Errorf("result of %d bytes", len(rec.Value))
		}
		if err != nil {
			d.counts.Corrupt.Add(1)
			return &base.CorruptError{Shard: shard, Key: append([]byte("request "), name...), Detail: err.Error()}
		}
		if !f(iter.Key(), k, r) {
			return nil
		}
	}
	return iter.Error()
}

// KeysFrom calls f for the keys of a shard in Pebble that are not before *from, a
// key of Pebble's, until it returns false, and moves *from behind the last. done:
// there are no more. Keys that were deleted are met, too, while Pebble still has the
// deletes: an iterator would step over any number of them before it returned. No
// files are kept from going between two calls.
//
// ScanInternal ends without an error where a block cannot be read, as it does at the
// last key. So an iterator has to find nothing behind the last key that was met: else
// keys behind the damage would count as gone, and their slots would be cleared.
func (d *Disk) KeysFrom(ctx context.Context, shard uint16, from *[]byte, f func(key []byte, deleted bool) bool) (done bool, err error) {
	_, upper := KindBounds(shard, KindData)
	begun := slices.Clone(*from)
	enough := errors.New("enough")
	visit := func(at *pebble.InternalKey, _ pebble.LazyValue, _ pebble.IteratorLevel) error {
		*from = append((*from)[:0], at.UserKey...)
		*from = append(*from, 0)
		deleted := at.Kind() == pebble.InternalKeyKindDelete || at.Kind() == pebble.InternalKeyKindDeleteSized
		if _, _, key, _ := ParseKey(at.UserKey); !f(key, deleted) {
			return enough
		}
		return nil
	}
	err = d.db.ScanInternal(ctx, block.CategoryUnknown, begun, upper, visit, nil, nil, nil, nil)
	switch {
	case err == enough:
		return false, nil
	case err != nil:
		return false, err
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: *from, UpperBound: upper})
	if err != nil {
		return false, err
	}
	more := it.First()
	if err := it.Close(); err != nil {
		return false, err
	}
	if more && bytes.Equal(begun, *from) {
		return false, errSweepEnded
	}
	return !more, nil
}

// errSweepEnded: a scan met no key where an iterator finds one, and says no cause.
var errSweepEnded = errors.New("store: a block cannot be read")
