package route

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
)

// Many keys at many nodes: each node gets its own in one call, all side by side.
// A key that a node says has moved, or does not lead, is asked for again elsewhere, with the
// others of which that is so.

// split sorts the keys of which the indexes are given by the peer that serves them. It
// fails with ErrNoMap.
func (r *Router) split(which []int, key func(int) []byte) (map[*peer.Peer][]int, error) {
	parts := make(map[*peer.Peer][]int)
	for _, i := range which {
		p, err := r.Owner(key(i))
		if err != nil {
			return nil, err
		}
		parts[p] = append(parts[p], i)
	}
	return parts, nil
}

// spread does f for each part, side by side.
func spread(parts map[*peer.Peer][]int, do func(p *peer.Peer, which []int)) {
	var wg sync.WaitGroup
	for p, which := range parts {
		wg.Go(func() { do(p, which) })
	}
	wg.Wait()
}

// Many carries out a call for n keys in a cluster: do notes the error of each in errs, of
// which those that were sent elsewhere are done again; begin, if not nil, is called with the keys of each round before it. patience is of a try at a replica (Reroute.PatienceAt).
func (r *Router) Many(ctx context.Context, op string, n int, key func(int) []byte,
	begin func(which []int), do func(ctx context.Context, p *peer.Peer, which []int, patience time.Duration), err func(int) *error,
) {
	var way Reroute
	defer way.End()
	left := UpTo(n)
	for len(left) > 0 {
		parts, noMap := r.split(left, key)
		if noMap != nil {
			for _, i := range left {
				*err(i) = r.Fail(op, key(i), noMap)
			}
		} else {
			if begin != nil {
				begin(left)
			}
			spread(parts, func(p *peer.Peer, which []int) { do(ctx, p, which, way.PatienceAt(p)) })
		}
		again, step, why := r.table.Load().failed(ctx, left, parts, &way, key, err)
		if why == nil {
			return
		}
		next := way.again(ctx, r, step, why)
		if next == nil {
			for _, i := range again {
				*err(i) = way.Because(*err(i))
			}
			return
		}
		ctx, left = next, again
		for _, i := range left {
			*err(i) = nil
		}
	}
}

// failed returns which of the calls may be made again elsewhere, in order, what is to be done
// before, and the error of one for which that is.
func (t *table) failed(ctx context.Context, left []int, parts map[*peer.Peer][]int, way *Reroute, key func(int) []byte, err func(int) *error) (again []int, next step, why error) {
	if t.led == nil || parts == nil {
		for _, i := range left {
			if elsewhere(*err(i)) {
				again, next, why = append(again, i), stepMap, *err(i)
			}
		}
		return again, next, why
	}
	next = stepLed
	for p, which := range parts {
		for _, i := range which {
			e := *err(i)
			if e == nil || errors.Is(e, base.ErrNotFound) {
				continue
			}
			way.wasSilent(p, e)
			what := t.heed(ctx, p, key(i), e)
			if what == stepOver || what == stepMap && !elsewhere(e) {
				continue
			}
			again = append(again, i)
			// A map is asked for once for all, and one rest does for all.
			if what < next || why == nil || what == next && base.TimeOver(e) {
				next, why = what, e
			}
		}
	}
	slices.Sort(again)
	return again, next, why
}

// elsewhere reports whether a call ended because it should be made at another
// node; again decides whether it will be.
func elsewhere(err error) bool {
	return err != nil && !errors.Is(err, base.ErrOutcomeUnknown) &&
		(errors.Is(err, base.ErrMoved) || errors.Is(err, base.ErrNoMap) || errors.Is(err, base.ErrClosed))
}

// Fail makes the *Error of a call that came to no server.
func (r *Router) Fail(op string, key []byte, err error) error {
	if e := (*base.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	if !errors.Is(err, base.ErrOutcomeUnknown) {
		err = base.AsTimeout(err)
	}
	return &base.Error{Op: op, Key: base.QuoteKey(key), Err: err}
}

// Each does f at every node that owns keys, side by side. The error is a *PartialError;
// of a single server it is f's own.
func (r *Router) Each(ctx context.Context, op string, do func(*peer.Peer) error) error {
	if p := r.Only(); p != nil {
		return do(p)
	}
	peers, err := r.OwnersNow(ctx)
	if err != nil {
		return r.Fail(op, nil, err)
	}
	errs := make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	e := &base.PartialError{Total: len(peers)}
	for i, err := range errs {
		if err != nil {
			e.Failures = append(e.Failures, base.Failure{Index: -1, Node: peers[i].Node, Err: err})
		}
	}
	if e.Failures == nil {
		return nil
	}
	return &base.Error{Op: op, Err: e}
}

// Slowest is the longest time that a node took.
func (r *Router) Slowest(ctx context.Context, op string, do func(*peer.Peer) (time.Duration, error)) (longest time.Duration, err error) {
	var mu sync.Mutex
	err = r.Each(ctx, op, func(p *peer.Peer) error {
		took, err := do(p)
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, took)
		return err
	})
	return longest, err
}

// UpTo returns 0 to n-1.
func UpTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
