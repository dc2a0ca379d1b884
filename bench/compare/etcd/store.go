package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rdmakv/rdmakv/internal/load"
)

// A store is etcd as one caller of the load generator has it.
type store struct {
	kv           clientv3.KV
	end          func() error // of its own client; nil: the client is shared
	serializable bool
}

var _ load.BatchStore = (*store)(nil)

// options are those of a get.
func (s *store) options() []clientv3.OpOption {
	if s.serializable {
		return []clientv3.OpOption{clientv3.WithSerializable()}
	}
	return nil
}

// Get is a Range of one key.
func (s *store) Get(ctx context.Context, key, dst []byte) ([]byte, load.Path, error) {
	r, err := s.kv.Get(ctx, string(key), s.options()...)
	if err != nil {
		return nil, load.PathNone, err
	}
	if len(r.Kvs) == 0 {
		return nil, load.PathNone, load.ErrNotFound
	}
	return append(dst[:0], r.Kvs[0].Value...), load.PathNone, nil
}

// Put is a Put.
func (s *store) Put(ctx context.Context, key, value []byte) error {
	_, err := s.kv.Put(ctx, string(key), string(value))
	return err
}

// most is how many operations etcd takes in a transaction (--max-txn-ops).
const most = 128

// GetMany is one transaction for every 128 keys.
func (s *store) GetMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for from := 0; from < len(keys); from += most {
		to := min(from+most, len(keys))
		var ops []clientv3.Op
		for _, key := range keys[from:to] {
			ops = append(ops, clientv3.OpGet(string(key), s.options()...))
		}
		r, err := s.kv.Txn(ctx).Then(ops...).Commit()
		if err == nil && len(r.Responses) != to-from {
			err = fmt.Errorf("etcd answers %d of %d gets", len(r.Responses), to-from)
		}
		for i := from; i < to; i++ {
			if errs[i] = err; err != nil {
				continue
			}
			got := r.Responses[i-from].GetResponseRange()
			if got == nil || len(got.Kvs) == 0 {
				errs[i] = load.ErrNotFound
				continue
			}
			values[i] = append(values[i][:0], got.Kvs[0].Value...)
		}
	}
}

// PutMany is one transaction for every 128 keys, which fill a store fast. etcd refuses one
// with a key that is there twice.
func (s *store) PutMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for from := 0; from < len(keys); from += most {
		to := min(from+most, len(keys))
		var ops []clientv3.Op
		for i := from; i < to; i++ {
			ops = append(ops, clientv3.OpPut(string(keys[i]), string(values[i])))
		}
		_, err := s.kv.Txn(ctx).Then(ops...).Commit()
		for i := from; i < to; i++ {
			errs[i] = err
		}
	}
}

// Delete is not measured here.
func (s *store) Delete(context.Context, []byte) error { return load.ErrUnsupported }

// Scan is not measured here.
func (s *store) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }

// Close ends a client of the caller's own.
func (s *store) Close() error {
	if s.end == nil {
		return nil
	}
	return s.end()
}
