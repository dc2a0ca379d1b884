package client

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/store/layout"
)

// Many keys at once. MultiGet steps the lookups of many keys together (group.go) and
// READs what they ask for with a few doorbells, so that a hundred keys cost as many
// round trips as one. MultiPut keeps as many requests under way as there are credits,
// from one goroutine.

const (
	// groupKeys is how many lookups are stepped together, partKeys how many share a
	// batch: while the READs of one part are under way the next one is made ready,
	// or what came for the one before is looked at.
	groupKeys = 128
	partKeys  = 32
	// groupReads and groupBytes bound one batch.
	groupReads = 128
	groupBytes = readWindow - layout.PageSize
	// groupAsks is how many keys of one call go by SEND at a time.
	groupAsks = 16
)

// MultiGet gets many keys. Result i is that of keys[i]: a value, ErrNotFound, or
// why that key was not answered. The error is nil if every key was answered.
// Otherwise it is the first Err that is neither nil nor ErrNotFound or, in a
// cluster, a *PartialError that names the nodes; what others have answered counts.
// The keys are not of one moment; each one is as Get would have answered during
// the call. The nodes of a cluster are asked side by side, each once for all of
// its keys.
func (c *Client) MultiGet(ctx context.Context, keys [][]byte) ([]Result, error) {
	results := make([]Result, len(keys))
	if c.fleet != nil {
		return results, c.fleet.multiGet(ctx, keys, results)
	}
	c.solo.multiGet(ctx, keys, results, upTo(len(keys)))
	for i := range results {
		if err := results[i].Err; err != nil && !errors.Is(err, ErrNotFound) {
			return results, err
		}
	}
	return results, nil
}

// upTo returns 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// multiGet gets the keys of which the indexes are given at one server.
func (c *peer) multiGet(ctx context.Context, keys [][]byte, results []Result, which []int) {
	if s := c.current.Load(); s != nil && s.direct != nil {
		c.getDirectly(ctx, keys, results, which)
		return
	}
	var rest []int // to be got one by one
	for begin := 0; begin < len(which); begin += groupKeys {
		group := which[begin:min(begin+groupKeys, len(which))]
		p := c.begin(ctx) // Config.Timeout is for a group, not for any number of keys
		left, learned, err := c.getGroup(&p, keys, results, group)
		if err != nil { // nobody is there: it would be so for each of the others, too
			for _, i := range which[begin:] {
				results[i].Err = c.fail("get", keys[i], "", err)
			}
			break
		}
		if learned { // a newer view: once more
			left, _, _ = c.getGroup(&p, keys, results, left)
		}
		rest = append(rest, left...)
	}
	c.getRest(ctx, keys, results, rest)
}

// getRest gets single keys, a few at a time.
func (c *peer) getRest(ctx context.Context, keys [][]byte, results []Result, rest []int) {
	if len(rest) == 0 {
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(groupAsks, len(rest)) {
		wg.Go(func() {
			for i := range next {
				w := want{n: -1, dst: []byte{}}
				if err := c.get(ctx, "get", keys[i], &w); err != nil {
					results[i].Err = err
				} else {
					results[i].Value = w.dst
				}
			}
		})
	}
	for _, i := range rest {
		next <- i
	}
	close(next)
	wg.Wait()
}

// getDirectly gets keys where a READ is a copy: there is nothing to be gained by
// making several at a time. Of those that are answered by SEND, which has to be
// waited for, only the first is got by itself.
func (c *peer) getDirectly(ctx context.Context, keys [][]byte, results []Result, which []int) {
	for at, i := range which {
		w := want{n: -1, dst: []byte{}}
		if err := c.get(ctx, "get", keys[i], &w); err != nil {
			results[i].Err = err
		} else {
			results[i].Value = w.dst
		}
		if w.path == PathSend {
			c.getRest(ctx, keys, results, which[at+1:])
			return
		}
	}
}
