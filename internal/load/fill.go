package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Progress is how far Fill or Run is, for a program that shows it. It is brought
// up to date some fifty times a second.
type Progress struct {
	Ops    atomic.Int64 // keys or operations done, errors not included
	Errors atomic.Int64
	Bytes  atomic.Int64 // of keys and values, in Fill
	// Warming is true while Run warms up; Ops counts then, too, and is reset
	// when the measurement begins.
	Warming atomic.Bool
}

// reset sets all counters to zero.
func (p *Progress) reset() {
	p.Ops.Store(0)
	p.Errors.Store(0)
	p.Bytes.Store(0)
}

// Fill stores all records, number 0 of the value of each. It ends with the first
// error, or when ctx does; the result tells how many were stored either way. It
// fails with ErrOptions or what the store fails with.
func Fill(ctx context.Context, o Options) (Filled, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return Filled{}, err
	}
	stores, err := openAll(ctx, o, o.FillWorkers, o.FillBatch > 1)
	if err != nil {
		return Filled{}, errors.Join(err, closeAll(stores))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.Progress.reset()
	f := &filling{o: o, values: newValues(o.Values), template: o.Keys.template()}
	begun := time.Now()
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			if err := f.work(ctx, s); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begun)
	done := Filled{Keys: o.Progress.Ops.Load(), Bytes: o.Progress.Bytes.Load(), Seconds: elapsed.Seconds()}
	done.KeysPerSecond = float64(done.Keys) / max(elapsed.Seconds(), 1e-9)
	err = context.Cause(ctx)
	if closeErr := closeAll(stores); err == nil {
		err = closeErr
	}
	if err != nil {
		return done, fmt.Errorf("after %d of %d keys: %w", done.Keys, o.Records, err)
	}
	return done, nil
}

// A filling is a load phase under way.
type filling struct {
	o        Options
	values   *values
	template keyTemplate
	next     atomic.Uint64 // the next key to be stored
}

// work is one of its callers.
func (f *filling) work(ctx context.Context, s Store) error {
	b := newBatch(f.o.FillBatch)
	for ctx.Err() == nil {
		from := f.next.Add(uint64(f.o.FillBatch)) - uint64(f.o.FillBatch)
		if from >= f.o.Records {
			return nil
		}
		n, bytes := int(min(uint64(f.o.FillBatch), f.o.Records-from)), 0
		for i := range n {
			key := from + uint64(i)
			b.keys[i] = f.template.append(b.keys[i][:0], key)
			b.values[i] = f.values.make(b.values[i], key, 0)
			bytes += len(b.keys[i]) + len(b.values[i])
		}
		if err := b.put(ctx, s, n); err != nil {
			return err
		}
		f.o.Progress.Ops.Add(int64(n))
		f.o.Progress.Bytes.Add(int64(bytes))
	}
	return nil
}

// A batch is the keys and values of one call.
type batch struct {
	numbers      []uint64
	keys, values [][]byte
	errs         []error
}

func newBatch(n int) *batch {
	return &batch{make([]uint64, n), make([][]byte, n), make([][]byte, n), make([]error, n)}
}

// put stores the first n, and returns the first error.
func (b *batch) put(ctx context.Context, s Store, n int) error {
	if n == 1 {
		return s.Put(ctx, b.keys[0], b.values[0])
	}
	clear(b.errs)
	s.(BatchStore).PutMany(ctx, b.keys[:n], b.values[:n], b.errs[:n])
	for _, err := range b.errs[:n] {
		if err != nil {
			return err
		}
	}
	return nil
}

// openAll opens the stores of n callers. After an error, those that it has opened
// are to be closed.
func openAll(ctx context.Context, o Options, n int, batches bool) (stores []Store, err error) {
	for w := range n {
		s, err := o.Open(ctx, w)
		if err != nil {
			return stores, fmt.Errorf("open the store of caller %d: %w", w, err)
		}
		stores = append(stores, s)
		if _, ok := s.(BatchStore); batches && !ok {
			return stores, fmt.Errorf("%w: calls for many keys", ErrUnsupported)
		}
	}
	return stores, ctx.Err()
}

// closeAll closes stores and returns the first error.
func closeAll(stores []Store) (first error) {
	for _, s := range stores {
		if err := s.Close(); first == nil {
			first = err
		}
	}
	return first
}

// Probe gets the first and the last record and checks them: this shows whether
// Fill was run before, with the same keys and sizes.
func Probe(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	stores, err := openAll(ctx, o, 1, false)
	if err != nil {
		return errors.Join(err, closeAll(stores))
	}
	v := newValues(o.Values)
	for _, i := range []uint64{0, o.Records - 1} {
		key := o.Keys.Append(nil, i)
		value, _, err := stores[0].Get(ctx, key, nil)
		if err == nil {
			err = v.check(value, i)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("%q: %w", key, err), closeAll(stores))
		}
	}
	return closeAll(stores)
}
