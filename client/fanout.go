package client

import (
	"context"
	"errors"
	"sync"
)

// Many keys at many nodes: each node gets its own in one call, all side by side.
// Who is told that a key has moved asks for that one again elsewhere.

// split sorts the keys of which the indexes are given by who serves them. It
// fails with ErrNoMap.
func (f *fleet) split(which []int, key func(int) []byte) (map[*peer][]int, error) {
	parts := make(map[*peer][]int)
	for _, i := range which {
		p, err := f.owner(key(i))
		if err != nil {
			return nil, err
		}
		parts[p] = append(parts[p], i)
	}
	return parts, nil
}

// spread does f for each part, side by side.
func spread(parts map[*peer][]int, do func(p *peer, which []int)) {
	var wg sync.WaitGroup
	for p, which := range parts {
		wg.Go(func() { do(p, which) })
	}
	wg.Wait()
}

// many carries out a call for n keys: do notes the error of each in errs, of
// which those that were sent elsewhere are done again.
func (f *fleet) many(ctx context.Context, op string, n int, key func(int) []byte,
	do func(ctx context.Context, p *peer, which []int), err func(int) *error,
) {
	var way rerouting
	defer way.end()
	left := upTo(n)
	for len(left) > 0 {
		var why error
		parts, noMap := f.split(left, key)
		if noMap != nil {
			for _, i := range left {
				*err(i) = f.fail(op, key(i), noMap)
			}
		} else {
			spread(parts, func(p *peer, which []int) { do(ctx, p, which) })
		}
		var again []int
		for _, i := range left {
			if elsewhere(*err(i)) {
				again, why = append(again, i), *err(i)
			}
		}
		if why == nil {
			return
		}
		next := f.again(ctx, &way, why)
		if next == nil {
			for _, i := range again {
				*err(i) = way.because(*err(i))
			}
			return
		}
		ctx, left = next, again
		for _, i := range left {
			*err(i) = nil
		}
	}
}

// elsewhere reports whether a call ended because it should be made at another
// node; again decides whether it will be.
func elsewhere(err error) bool {
	return err != nil && !errors.Is(err, ErrOutcomeUnknown) &&
		(errors.Is(err, ErrMoved) || errors.Is(err, ErrNoMap) || errors.Is(err, ErrClosed))
}

func (f *fleet) multiGet(ctx context.Context, keys [][]byte, results []Result) error {
	f.many(ctx, "get", len(keys), func(i int) []byte { return keys[i] },
		func(ctx context.Context, p *peer, which []int) { p.multiGet(ctx, keys, results, which) },
		func(i int) *error { return &results[i].Err })
	e := partial(func(i int) error { return results[i].Err }, len(keys),
		func(err error) bool { return !errors.Is(err, ErrNotFound) })
	if e == nil {
		return nil
	}
	return e
}

func (f *fleet) multiPut(ctx context.Context, pairs []Pair) error {
	errs := make([]error, len(pairs))
	f.many(ctx, "put", len(pairs), func(i int) []byte { return pairs[i].Key },
		func(ctx context.Context, p *peer, which []int) { p.multiPut(ctx, pairs, errs, which) },
		func(i int) *error { return &errs[i] })
	e := partial(func(i int) error { return errs[i] }, len(pairs), func(error) bool { return true })
	if e == nil {
		return nil
	}
	e.pairs = true
	return e
}
