package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/dedup"
)

// What Inspect looks at beside the records of keys: the results that are kept
// for retries, the list of what expires, and that nothing else is there.

// others reads what a shard has beside its data.
func (in *Inspection) others(ctx context.Context, state pebble.Reader, shard uint16, opt InspectOptions) (err error) {
	if len(opt.Prefix) > 0 {
		return nil
	}
	for _, b := range [][2][]byte{
		{AppendKey(nil, shard, 0, nil), AppendKey(nil, shard, KindData, nil)},
		{AppendKey(nil, shard, KindData+1, nil), AppendKey(nil, shard+1, 0, nil)},
	} {
		if err := in.span(ctx, state, shard, b[0], b[1], opt); err != nil {
			return err
		}
	}
	return nil
}

// span reads the keys of a span that is no data.
func (in *Inspection) span(ctx context.Context, state pebble.Reader, shard uint16, lower, upper []byte, opt InspectOptions) (err error) {
	iter, err := recordsOf(state, lower, upper)
	if err != nil {
		in.fileProblem(opt, shard, err)
		return nil
	}
	defer func() { err = errors.Join(err, ignoreCorrupt(iter.Close())) }()
	n := 0
	for iter.First(); iter.Valid(); iter.Next() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if _, kind, key, _ := ParseKey(iter.Key()); kind == KindValue {
			// The record that notes it was compared with it.
			if alone, err := unnoted(state, shard, key); err != nil {
				in.fileProblem(opt, shard, err)
			} else if alone {
				in.problem(opt, damagedRecord(shard, key, errors.New("there is a value, and no record that notes it")))
			}
			continue
		}
		value, err := iter.Value()
		if err != nil {
			in.fileProblem(opt, shard, err)
			return nil
		}
		if fault := faultOf(iter.Key(), value); fault != nil {
			in.problem(opt, &base.CorruptError{Shard: shard, Key: bytes.Clone(iter.Key()), Detail: fault.Error()})
		}
	}
	if err := iter.Error(); err != nil {
		in.fileProblem(opt, shard, err)
	}
	return nil
}

// faultOf says what is wrong with an entry of a shard that is no data.
func faultOf(pkey, value []byte) error {
	_, k, rest, _ := ParseKey(pkey)
	switch k {
	case KindDedup:
		rec, err := ParseRecord(value, pkey)
		if err != nil {
			return fmt.Errorf("result of a request: %w", err)
		}
		if _, ok := base.ParseSlotKey(rest); !ok {
			return fmt.Errorf("result of a request under a key of %d bytes", len(rest))
		}
		if _, ok := dedup.ParseResult(rec.Version, rec.Value); !ok {
			return errors.New("result of a request that cannot be")
		}
	case KindExpiry:
		if _, _, ok := parseExpiryKey(rest); !ok {
			return fmt.Errorf("expiry under a key of %d bytes", len(rest))
		}
	case KindMeta:
		if _, err := ParseRecord(value, pkey); err != nil {
			return fmt.Errorf("fact of a shard: %w", err)
		}
	default:
		return fmt.Errorf("entry of an unknown %v", k)
	}
	return nil
}

// unlisted says whether a record expires and the list of what does lacks it:
// it would stay for ever, though nobody is shown it. An entry without a record
// is no fault: the record was written again since.
func unlisted(state pebble.Reader, shard uint16, key []byte, expiry uint64) (bool, error) {
	if expiry == 0 {
		return false, nil
	}
	_, closer, err := dbGet(state, appendExpiryKey(nil, shard, clock.Second(expiry), key))
	if errors.Is(err, pebble.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, closer.Close()
}

// unnoted says whether the value that stands apart under a key is that of no record. A
// record that is damaged was told of with the data.
func unnoted(state pebble.Reader, shard uint16, key []byte) (bool, error) {
	pkey := AppendKey(nil, shard, KindData, key)
	b, closer, err := dbGet(state, pkey)
	if errors.Is(err, pebble.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, _, noted, fault := ParseNoted(b, pkey)
	return fault == nil && !noted, closer.Close()
}

// diskLen returns the bytes of the keys and records at which the walk stands, which were
// read as rec.
func (r Records) diskLen(rec Record) int {
	n := len(r.Key()) + RecordSize(len(rec.Value), rec.Expiry != 0)
	if _, _, noted := r.Noted(); noted {
		n += len(r.Key()) + NotedSize(false)
	}
	return n
}
