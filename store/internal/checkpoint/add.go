package checkpoint

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/log"
)

// ErrRecord: a record of the stream, whose checksum holds, is none that this version
// can take into the base. It is wrapped in a *RecordError.
var ErrRecord = errors.New("a record that cannot be taken into the base")

// A RecordError names the record by which a checkpoint has ended. Nothing of the range
// is in the base.
type RecordError struct {
	At  log.Position
	Err error
}

// Error names the cause, the position, and what to do.
func (e *RecordError) Error() string {
	return fmt.Sprintf("checkpoint: %v: record of the log at %v: run the version that wrote it, or a newer one", e.Err, e.At)
}

// Is makes errors.Is(e, ErrRecord) hold.
func (e *RecordError) Is(target error) bool { return target == ErrRecord }

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }

// Add adds a record of the log. Records of other streams are passed over; those of the
// range's stream come in the order of the log. What the range keeps is copied.
//
// Errors: *RecordError. The record is not in the range then, not in parts either.
func (r *Range) Add(rec *log.Record) error {
	if rec.Stream != r.stream {
		return nil
	}
	err := error(nil)
	switch rec.Kind {
	case log.Write:
		if logged.IsPiece(rec.Body) {
			err = r.addPiece(rec)
		} else {
			err = r.addWrite(rec.Body)
		}
	case log.Fact:
		err = r.addFact(rec)
	default:
		err = fmt.Errorf("%w: kind %v", ErrRecord, rec.Kind)
	}
	if err != nil {
		return &RecordError{At: rec.Position, Err: err}
	}
	r.records++
	return nil
}

// addFact adds the newest value of a name. An empty one removes the name. The log's own
// facts, of how far a stream is trimmed and the like, are none of the base's.
func (r *Range) addFact(rec *log.Record) error {
	if rec.Name > log.LastFactName {
		return nil
	}
	name, ok := r.facts[rec.Name]
	switch {
	case !ok:
		return fmt.Errorf("%w: nobody knows fact %d", ErrRecord, rec.Name)
	case name == "":
		return nil
	case r.waiting.any():
		r.waiting.addFact(name, rec.Body)
		return nil
	}
	r.setFact(name, rec.Body)
	return nil
}

// setFact sets or removes a fact.
func (r *Range) setFact(name string, body []byte) {
	r.key = disk.AppendKey(r.key[:0], disk.StoreShard, disk.KindMeta, nil)
	r.key = append(r.key, name...)
	if len(body) == 0 {
		r.remove()
	} else {
		r.set(0, 0, body)
	}
}

// addWrite adds what a write did to its keys, what its request is told, and whose
// results it removes. What comes later takes the place of what came earlier for the same
// key of Pebble. A write whose record is superseded leaves the rest of it: its result,
// and the deletes of the entries under which the expirer had its keys.
func (r *Range) addWrite(body []byte) error {
	w, err := logged.Parse(body)
	if err != nil {
		return err
	}
	values, err := r.joined(&w)
	if err != nil {
		return err
	}
	r.settle()
	r.addParsed(&w, values)
	r.newest = max(r.newest, w.Version)
	return nil
}

// addParsed adds what a write did; values are those of its values that stand apart.
func (r *Range) addParsed(w *logged.Write, values []placed) {
	for e := range w.Effects {
		if e.Apart {
			r.addEffect(&e, &values[0])
			values = values[1:]
		} else {
			r.addEffect(&e, nil)
		}
	}
	if slot, result, ok := w.Result(); ok {
		var value [dedup.ValueLen]byte
		result.Encode(value[:])
		r.slotKey(w.Shard, &slot)
		r.set(w.Version, 0, value[:])
	}
	for slot := range w.Forget {
		r.slotKey(w.Shard, &slot)
		r.remove()
	}
}

// addEffect adds what becomes of one key of the user's; value is where its value is in the
// range's memory already, if it stood in pieces. The order is that in which a
// batch of Pebble would have it: an entry that is listed again under the second under
// which it was deleted stays listed.
func (r *Range) addEffect(e *base.Effect, value *placed) {
	if e.Due != 0 {
		r.expiryKey(e, e.Due)
		r.remove()
	}
	if e.Noop {
		return
	}
	r.key = disk.AppendKey(r.key[:0], e.Shard, disk.KindData, e.Key)
	if e.Kind == base.OpDelete {
		r.remove()
	} else if value != nil {
		r.take(e.Version, e.Expiry, value)
	} else if e.Bytes != nil {
		r.refer(e.Version, e.Expiry, e.Bytes)
	} else {
		r.set(e.Version, e.Expiry, e.Value)
	}
	listed := uint64(0)
	if e.Expiry != 0 {
		listed = clock.Second(e.Expiry)
		r.expiryKey(e, listed)
		r.set(e.Version, 0, nil)
	}
	if e.Unlist != 0 && e.Unlist != listed && e.Unlist != e.Due {
		r.expiryKey(e, e.Unlist)
		r.remove()
	}
}

// expiryKey sets r.key to the key of Pebble under which a key is listed for a second.
func (r *Range) expiryKey(e *base.Effect, second uint64) {
	r.key = disk.AppendExpiryKey(r.key[:0], e.Shard, second, e.Key)
}

// slotKey sets r.key to the key of Pebble under which the result of a slot stands.
func (r *Range) slotKey(shard uint16, k *base.SlotKey) {
	r.key = k.Append(disk.AppendKey(r.key[:0], shard, disk.KindDedup, nil))
}
