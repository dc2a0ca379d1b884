package read

import (
	"context"
	"errors"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
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
	groupBytes = base.WindowBytes - layout.PageSize
	// groupAsks is how many keys of one call go by SEND at a time.
	groupAsks = 16
)

// Many gets many keys: results[i] is the answer to keys[i], as client.MultiGet says. The error is
// nil if every key was answered, and else a *base.PartialError.
func Many(ctx context.Context, f *route.Router, keys [][]byte, results []base.Result) error {
	if p := f.Only(); p != nil { // without what several nodes cost
		multiGetAt(ctx, p, keys, results, route.UpTo(len(keys)))
		return partial(results)
	}
	f.Many(ctx, "get", len(keys), func(i int) []byte { return keys[i] },
		func(ctx context.Context, p *peer.Peer, which []int) { multiGetAt(ctx, p, keys, results, which) },
		func(i int) *error { return &results[i].Err })
	return partial(results)
}

// partial makes the error of a call from the answers to its keys.
func partial(results []base.Result) error {
	return base.Partial(func(i int) error { return results[i].Err }, len(results),
		func(err error) bool { return !errors.Is(err, base.ErrNotFound) })
}

// multiGetAt gets the keys of which the indexes are given at one server.
func multiGetAt(ctx context.Context, c *peer.Peer, keys [][]byte, results []base.Result, which []int) {
	if s := c.Current(); s != nil && s.Mapped() {
		getDirectly(ctx, c, keys, results, which)
		return
	}
	var rest []int // to be got one by one
	for begin := 0; begin < len(which); begin += groupKeys {
		group := which[begin:min(begin+groupKeys, len(which))]
		p := c.Begin(ctx) // Config.Timeout is for a group, not for any number of keys
		left, learned, err := getGroup(c, &p, keys, results, group)
		if err != nil { // no server is there: it would be so for each of the others, too
			for _, i := range which[begin:] {
				results[i].Err = c.Fail("get", keys[i], "", err)
			}
			break
		}
		if learned { // a newer view: once more
			left, _, _ = getGroup(c, &p, keys, results, left)
		}
		rest = append(rest, left...)
	}
	getRest(ctx, c, keys, results, rest)
}

// getRest gets single keys, a few at a time.
func getRest(ctx context.Context, c *peer.Peer, keys [][]byte, results []base.Result, rest []int) {
	if len(rest) == 0 {
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(groupAsks, len(rest)) {
		wg.Go(func() {
			for i := range next {
				w := Query{N: -1, Dst: []byte{}}
				if err := getKey(ctx, c, "get", keys[i], &w); err != nil {
					results[i].Err = err
				} else {
					results[i].Value = w.value()
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

// value is what was got of a key among many: the value, or the head of one in parts, which the
// caller of Many tells from a value (layout.IsHead) and gets by itself.
func (w *Query) value() []byte {
	if w.Head != nil {
		return w.Head
	}
	return w.Dst
}

// getDirectly gets keys where a READ is a copy: there is nothing to be gained by
// making several at a time. Of those that are answered by SEND, which has to be
// waited for, only the first is got by itself.
func getDirectly(ctx context.Context, c *peer.Peer, keys [][]byte, results []base.Result, which []int) {
	for at, i := range which {
		w := Query{N: -1, Dst: []byte{}}
		if err := getKey(ctx, c, "get", keys[i], &w); err != nil {
			results[i].Err = err
		} else {
			results[i].Value = w.value()
		}
		if w.Path == base.PathSend {
			getRest(ctx, c, keys, results, which[at+1:])
			return
		}
	}
}
