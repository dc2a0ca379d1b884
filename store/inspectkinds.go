package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// What Inspect looks at beside the records of keys: the results that are kept
// for retries, the list of what expires, and that nothing else is there.

// others reads what a shard has beside its data.
func (in *Inspection) others(ctx context.Context, db *pebble.DB, shard uint16, opt InspectOptions) (err error) {
	if len(opt.Prefix) > 0 {
		return nil
	}
	for _, b := range [][2][]byte{
		{appendKey(nil, shard, 0, nil), appendKey(nil, shard, kindData, nil)},
		{appendKey(nil, shard, kindData+1, nil), appendKey(nil, shard+1, 0, nil)},
	} {
		if err := in.span(ctx, db, shard, b[0], b[1], opt); err != nil {
			return err
		}
	}
	return nil
}

// span reads the keys of a span that is no data.
func (in *Inspection) span(ctx context.Context, db *pebble.DB, shard uint16, lower, upper []byte, opt InspectOptions) (err error) {
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
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
		value, err := iterValue(iter)
		if err != nil {
			in.fileProblem(opt, shard, err)
			return nil
		}
		if fault := faultOf(iter.Key(), value); fault != nil {
			in.problem(opt, &CorruptError{Shard: shard, Key: bytes.Clone(iter.Key()), Detail: fault.Error()})
		}
	}
	if err := iter.Error(); err != nil {
		in.fileProblem(opt, shard, err)
	}
	return nil
}

// faultOf says what is wrong with an entry of a shard that is no data.
func faultOf(pkey, value []byte) error {
	_, k, rest, _ := parseKey(pkey)
	switch k {
	case kindDedup:
		rec, err := parseRecord(value, pkey)
		if err != nil {
			return fmt.Errorf("result of a request: %w", err)
		}
		if _, ok := parseDedupKey(rest); !ok {
			return fmt.Errorf("result of a request under a key of %d bytes", len(rest))
		}
		if _, ok := parseResult(rec.version, rec.value); !ok {
			return errors.New("result of a request that cannot be")
		}
	case kindExpiry:
		if _, _, ok := parseExpiryKey(rest); !ok {
			return fmt.Errorf("expiry under a key of %d bytes", len(rest))
		}
	case kindMeta:
		if _, err := parseRecord(value, pkey); err != nil {
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
func unlisted(db *pebble.DB, shard uint16, key []byte, expiry uint64) (bool, error) {
	if expiry == 0 {
		return false, nil
	}
	_, closer, err := dbGet(db, appendExpiryKey(nil, shard, second(expiry), key))
	if errors.Is(err, pebble.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, closer.Close()
}
