package newest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/entry"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// How an entry of a set leads to a record, and what it means if it does not.

// Entries reads records of entries one behind the other. It keeps what it read last: the
// keys of a batch stand in one record of up to some megabytes, and one behind the other in a
// page. Its zero value with a Reader is ready. Not safe for concurrent use.
//
// It does not count damage: a page that fails is one error, whatever it has read.
type Entries struct {
	*Reader
	// Near is that of the Log, and reads the records of writes, but no pieces; nil: each is read by itself.
	Near func(at log.Position) (log.Record, error)

	at      log.Position  // of the record that was read last; 0: none
	write   logged.Write  // what stands there
	effects []base.Effect // of it
}

// A Found is what the record of an entry says of its key. The value is read by Value.
type Found struct {
	Version layout.Version
	Expiry  uint64 // as in disk.Record
	Length  int    // of the value

	effect base.Effect
}

// Look reads what the record of an entry says, and the value of none that stands in pieces.
// read is how many bytes were read of the log; 0: it was at hand. The caller holds what stands
// there (Log.Hold). Errors as Reader.Read; one that is deleted is not found.
func (s *Entries) Look(shard uint16, key []byte, e dirty.Entry) (f Found, read int, err error) {
	if e.Gone {
		return Found{}, 0, base.ErrNotFound
	}
	if s.at != e.At || e.At == 0 {
		if read, err = s.load(e.At); err != nil {
			return Found{}, read, fault(shard, key, e.At, err)
		}
	}
	if int64(e.Part) >= int64(len(s.effects)) {
		return Found{}, read, foreign(shard, key, e.At, fmt.Sprintf("it has %d keys, and number %d was expected", len(s.effects), e.Part))
	}
	w := s.effects[e.Part]
	switch {
	case w.Shard != shard:
		err = foreign(shard, key, e.At, fmt.Sprintf("it is of shard %d", w.Shard))
	case !bytes.Equal(w.Key, key):
		err = foreign(shard, key, e.At, "it is of key "+base.QuoteKey(w.Key))
	case w.Version != e.Version:
		err = foreign(shard, key, e.At, fmt.Sprintf("it has version %v, expected %v", w.Version, e.Version))
	case w.Noop || w.Kind == base.OpDelete:
		err = foreign(shard, key, e.At, "it puts no value")
	default:
		return Found{Version: w.Version, Expiry: w.Expiry, Length: logged.Length(&w), effect: w}, read, nil
	}
	return Found{}, read, err
}

// Value returns the value of what Look found last. It may be in the memory of the whole
// record. read is as that of Look.
func (s *Entries) Value(f *Found) (value []byte, read int, err error) {
	if b := f.effect.Bytes; b != nil {
		value = make([]byte, b.Length)
		if err := s.Bytes.Read(b, value); err != nil {
			return nil, 0, fault(f.effect.Shard, f.effect.Key, s.at, err)
		}
		if xxh3.Hash(value) != b.Sum {
			return nil, len(value), fault(f.effect.Shard, f.effect.Key, s.at, &base.CorruptError{
				Detail: fmt.Sprintf("the sum of value %d of table %d does not hold", b.Number, b.Table)})
		}
		return value, len(value), nil
	}
	if !f.effect.Apart {
		return f.effect.Value, 0, nil
	}
	at := s.at
	value, err = s.write.Join(f.effect, func(piece uint64) ([]byte, error) {
		at = log.Position(piece)
		rec, err := ofWrite(s.Log.ReadAt(at))
		read += len(rec.Body)
		return rec.Body, err
	})
	if err != nil {
		return nil, read, fault(f.effect.Shard, f.effect.Key, at, err)
	}
	return value, read, nil
}

// load reads a record and what it says.
func (s *Entries) load(at log.Position) (read int, err error) {
	s.at, s.effects = 0, s.effects[:0]
	readAt := s.Log.ReadAt
	if s.Near != nil {
		readAt = s.Near
	}
	rec, err := ofWrite(readAt(at))
	if err != nil {
		return len(rec.Body), err
	}
	if rec.Kind == log.Entry {
		err = s.loadEntry(rec.Body)
	} else if s.write, err = logged.Parse(rec.Body); err == nil {
		s.effects = slices.AppendSeq(s.effects, s.write.Effects)
	}
	if err != nil {
		s.effects = s.effects[:0]
		return len(rec.Body), err
	}
	s.at = at
	return len(rec.Body), nil
}

// loadEntry reads what an entry of a replicated group says: the effects of all its writes, one
// behind the other. That it counts is known, because an entry of the set leads here.
func (s *Entries) loadEntry(body []byte) error {
	kind, data, err := consensus.ParseBody(body)
	if err == nil && kind != consensus.Write {
		err = fmt.Errorf("an entry of kind %d: %w", kind, entry.ErrMalformed)
	}
	if err != nil {
		return err
	}
	e, err := entry.Parse(data, nil)
	if err != nil {
		return err
	}
	for i := range e.Writes {
		s.effects = slices.AppendSeq(s.effects, e.Writes[i].Effects)
	}
	return nil
}

// ofWrite checks that a record is that of writes, or of a piece of one.
func ofWrite(rec log.Record, err error) (log.Record, error) {
	if err == nil && rec.Kind != log.Write && rec.Kind != log.Entry {
		err = fmt.Errorf("a record of kind %d: %w", rec.Kind, logged.ErrMalformed)
	}
	return rec, err
}

// place names a position for an error text.
func place(at log.Position) string {
	return fmt.Sprintf("the log at offset %d of segment %d", at.Offset(), at.Segment())
}

// foreign is the error about a record that is good, and another than its entry says.
func foreign(shard uint16, key []byte, at log.Position, detail string) error {
	return &base.CorruptError{Shard: shard, Key: bytes.Clone(key), Detail: place(at) + " has another record: " + detail}
}

// fault turns an error of the log, or about what stands there, into one of the store.
func fault(shard uint16, key []byte, at log.Position, err error) error {
	var damage *log.DamageError
	var bytes *base.CorruptError
	switch {
	case errors.As(err, &bytes):
		return &base.CorruptError{Shard: shard, Key: slices.Clone(key), File: bytes.File, Detail: place(at) + ": " + bytes.Detail}
	case errors.As(err, &damage):
		return &base.CorruptError{Shard: shard, Key: slices.Clone(key), File: damage.File, Detail: place(at), Err: err}
	case errors.Is(err, log.ErrDamaged), errors.Is(err, logged.ErrMalformed), errors.Is(err, logged.ErrNewer),
		errors.Is(err, entry.ErrMalformed), errors.Is(err, entry.ErrNewer), errors.Is(err, consensus.ErrEntry):
		return &base.CorruptError{Shard: shard, Key: slices.Clone(key), Detail: place(at), Err: err}
	case errors.Is(err, log.ErrClosed):
		return base.ErrClosed
	case errors.Is(err, log.ErrFailed):
		return fmt.Errorf("%w: %w", base.ErrFatal, err)
	}
	return fmt.Errorf("store: read of key %s: %s: %w", base.QuoteKey(key), place(at), err)
}

// counted counts damage.
func (r *Reader) counted(err error) error {
	if errors.Is(err, base.ErrCorrupt) {
		r.Counts.Corrupt.Add(1)
	}
	return err
}

// Ask returns what tells the state of a key for a write that is to be ordered, where memory
// does not know it. No lock is held. It tells what is published, and a write in flight is
// known before anybody asks (shard.LockEffects), so that is the ordered state, unless a write is
// ordered meanwhile, of which the probe is told.
func (r *Reader) Ask() shard.Ask {
	return func(sh *shard.Shard, key []byte, value bool) (state flight.KeyState, err error) {
		r.Counts.Probes.Add(1)
		rec, closer, err := r.read(sh, key, value)
		if errors.Is(err, base.ErrNotFound) {
			return flight.KeyState{}, nil
		}
		if err != nil {
			return flight.KeyState{}, err
		}
		defer closer.Close()
		state = flight.KeyState{Exists: true, Version: rec.Version, Expiry: rec.Expiry}
		if value {
			// A copy: one key of a batch would keep the memory of all of it.
			state.Value, state.Owned = append([]byte{}, rec.Value...), true
		}
		return state, nil
	}
}
