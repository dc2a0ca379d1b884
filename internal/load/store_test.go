package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A memStore is a store for tests: a map, and the faults that a test sets.
type memStore struct {
	mu     sync.Mutex
	values map[string][]byte

	opened, closed atomic.Int64
	inside         atomic.Int64 // calls under way now
	most           atomic.Int64 // of them, ever

	// before, if set, is asked before each call; an error is its outcome.
	before func(op Op, key []byte) error
	path   Path // of gets
}

func newMemStore() *memStore { return &memStore{values: map[string][]byte{}, path: PathRead1} }

func (m *memStore) open(context.Context, int) (Store, error) {
	m.opened.Add(1)
	return memHandle{m}, nil
}

func (m *memStore) enter(ctx context.Context, op Op, key []byte) error {
	n := m.inside.Add(1)
	for {
		most := m.most.Load()
		if n <= most || m.most.CompareAndSwap(most, n) {
			break
		}
	}
	if m.before != nil {
		if err := m.before(op, key); err != nil {
			return err
		}
	}
	return ctx.Err()
}

type memHandle struct{ *memStore }

func (m memHandle) Get(ctx context.Context, key, dst []byte) ([]byte, Path, error) {
	defer m.inside.Add(-1)
	if err := m.enter(ctx, OpGet, key); err != nil {
		return nil, PathNone, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[string(key)]
	if !ok {
		return nil, m.path, ErrNotFound
	}
	return append(dst[:0], v...), m.path, nil
}

func (m memHandle) Put(ctx context.Context, key, value []byte) error {
	defer m.inside.Add(-1)
	if err := m.enter(ctx, OpPut, key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[string(key)] = slices.Clone(value)
	return nil
}

func (m memHandle) Delete(ctx context.Context, key []byte) error {
	defer m.inside.Add(-1)
	if err := m.enter(ctx, OpDelete, key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, string(key))
	return nil
}

func (m memHandle) Scan(ctx context.Context, start []byte, n int) (int, error) {
	defer m.inside.Add(-1)
	if err := m.enter(ctx, OpScan, start); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found := 0
	for k := range m.values {
		if k >= string(start) {
			found++
		}
	}
	return min(found, n), nil
}

func (m memHandle) GetMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for i := range keys {
		values[i], _, errs[i] = m.Get(ctx, keys[i], values[i])
	}
}

func (m memHandle) PutMany(ctx context.Context, keys, values [][]byte, errs []error) {
	for i := range keys {
		errs[i] = m.Put(ctx, keys[i], values[i])
	}
}

func (m memHandle) Close() error {
	if m.closed.Add(1) > m.opened.Load() {
		return errors.New("closed more often than opened")
	}
	return nil
}

// testOptions are small.
func testOptions(m *memStore) Options {
	return Options{
		Open: m.open, Records: 500, Keys: Keys{Prefix: "t/"}, Values: FixedSize(64), Mix: Mix{OpGet: 1},
		Workers: 2, Operations: 2000, FillWorkers: 3, Seed: 7, Duration: 20 * time.Second,
	}
}
