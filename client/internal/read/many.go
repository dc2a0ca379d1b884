package read

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Many keys at once. MultiGet steps the lookups of many keys together (group.go) and
// READs what they ask for with a few doorbells, so that a hundred keys cost as many
// round trips as one. MultiPut keeps as many requests under way as there are credits,
// from one goroutine.

const (
	// groupKeys is how many lookups are stepped together. So many as doorbellKeys share
	// a batch, which a device gets with one doorbell, or partKeys where this program is
	// the RNIC: there, while the READs of one part are under way, the next one is made
	// ready, or what came for the one before is looked at.
	groupKeys    = 128
	doorbellKeys = 64
	partKeys     = 32
	// groupReads and groupBytes bound one batch.
	groupReads = 128
	groupBytes = base.WindowBytes - layout.PageSize
	// groupAsks is how many keys of one call go by SEND at a time.
	groupAsks = 16
)

// errPending is the Err of a result whose key has no answer yet. Its Value is memory for one.
var errPending = errors.New("client: no answer yet")

// Many gets many keys: results[i] is the answer to keys[i], as client.MultiGet says. Where results[i].Value
// has the capacity for it, the value is put there. The error is nil if every key was answered, and else a
// *base.PartialError.
func Many(ctx context.Context, f *route.Router, keys [][]byte, results []base.Result) error {
	if p := f.Only(); p != nil { // without what several nodes cost
		all := indexPool.Get().(*indexes)
		multiGetAt(ctx, f, p, keys, results, all.upTo(len(keys)), 0)
		indexPool.Put(all)
		return partial(results)
	}
	f.Many(ctx, "get", len(keys), func(i int) []byte { return keys[i] },
		func(ctx context.Context, p *peer.Peer, which []int, patience time.Duration) {
			multiGetAt(ctx, f, p, keys, results, which, patience)
		},
		func(i int) *error { return &results[i].Err })
	return partial(results)
}

// indexes are 0, 1, 2 and so on, as far as they have been needed.
type indexes struct{ list []int }

var indexPool = sync.Pool{New: func() any { return new(indexes) }}

// mostIndexes bounds what is kept for the next call.
const mostIndexes = 4 << 10

func (x *indexes) upTo(n int) []int {
	if n > mostIndexes {
		return route.UpTo(n)
	}
	for len(x.list) < n {
		x.list = append(x.list, len(x.list))
	}
	return x.list[:n]
}

// partial makes the error of a call from the answers to its keys.
func partial(results []base.Result) error {
	failed := false
	for i := range results {
		if r := &results[i]; r.Err != nil {
			r.Value = r.Value[:0]
			failed = failed || r.Err != base.ErrNotFound
		}
	}
	if !failed {
		return nil
	}
	return base.Partial(func(i int) error { return results[i].Err }, len(results),
		func(err error) bool { return !errors.Is(err, base.ErrNotFound) })
}

// multiGetAt gets the keys of which the indexes are given at one server. patience is of a try at a replica.
func multiGetAt(ctx context.Context, f *route.Router, c *peer.Peer, keys [][]byte, results []base.Result, which []int, patience time.Duration) {
	for _, i := range which {
		results[i].Err = errPending
	}
	if c.Led() {
		manyLed(ctx, f, c, keys, results, which, patience)
		return
	}
	if s := c.Current(); s != nil && s.Mapped() {
		getDirectly(ctx, f, c, s, keys, results, which, 0)
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
	getRest(ctx, f, c, keys, results, rest, 0)
}

// getRest gets single keys, a few at a time. A replica that fails one because of what it is itself is not
// asked for those behind it.
func getRest(ctx context.Context, f *route.Router, c *peer.Peer, keys [][]byte, results []base.Result, rest []int, patience time.Duration) {
	if len(rest) == 0 {
		return
	}
	next := make(chan int)
	var wg sync.WaitGroup
	var gone atomic.Pointer[base.Error]
	for range min(groupAsks, len(rest)) {
		wg.Go(func() {
			for i := range next {
				r := &results[i]
				if e := gone.Load(); e != nil {
					r.Err = c.Replica.Fail("get", keys[i], e.Server, e.Err)
					continue
				}
				getInto(ctx, f, c, keys[i], r, patience)
				if e := (*base.Error)(nil); errors.As(r.Err, &e) && c.Led() && route.OfNode(r.Err) {
					gone.Store(e)
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

// getInto gets one key of many by itself.
func getInto(ctx context.Context, f *route.Router, c *peer.Peer, key []byte, r *base.Result, patience time.Duration) base.Path {
	w := Query{N: -1, Dst: r.Value[:0], patience: patience, led: route.LedOf(f, key)}
	if w.Dst == nil {
		w.Dst = []byte{}
	}
	if r.Err = getKey(ctx, c, "get", key, &w); r.Err == nil {
		r.Value = w.value()
	}
	return w.Path
}

// value is what was got of a key among many: the value, or the head of one in parts, which the
// caller of Many tells from a value (layout.IsHead) and gets by itself.
func (w *Query) value() []byte {
	if w.Head != nil {
		return w.Head
	}
	return w.Dst
}

// getDirectly gets keys where a READ is a copy: those whose places are remembered together (copies.go), the
// others one after the other. Of those that are answered by SEND, which has to be waited for, only the
// first is got by itself.
func getDirectly(ctx context.Context, f *route.Router, c *peer.Peer, s *session.Session, keys [][]byte, results []base.Result, which []int, patience time.Duration) {
	copyMany(ctx, s, keys, results, which)
	for at, i := range which {
		if results[i].Err != errPending {
			continue
		}
		if getInto(ctx, f, c, keys[i], &results[i], patience) != base.PathSend {
			continue
		}
		var rest []int
		for _, i := range which[at+1:] {
			if results[i].Err == errPending {
				rest = append(rest, i)
			}
		}
		getRest(ctx, f, c, keys, results, rest, patience)
		return
	}
}
