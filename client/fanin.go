package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A watch of a cluster is a watch of each source, a node or a group of replicas (source.go), brought together:
//
//	poller of node 1 ──page──┐
//	poller of node 2 ──page──┼──▶ one loop ──▶ events, each with the position
//	poller of node 3 ──page──┘        │         that all nodes have reached by it
//	      ▲                           │
//	      └───── go on ◀──────────────┘ when the page has been told
//
// A poller has one page and waits until it has been told, so nothing piles up.
// A batch may be split over pages; its node's next page is then told before any
// other's. If that does not come the others go on behind an EventSkip.

// A polled is what one poller has brought.
type polled struct {
	i    int // whose
	page eventPage
	err  error
}

// A fanIn is one watch of a cluster. It is used by one goroutine, but for pages
// and on.
type fanIn struct {
	f       *route.Router
	sources []*source
	pages   chan polled
	on      []chan Position // by poller: go on from here
	cursors map[string]wire.Cursor
	early   []polled // came while a batch of another node was to be finished
	amid    bool     // the last event told was not the last of its batch
	away    []bool   // by poller: the node could not be reached last time
	blind   []bool   // by poller: it begins somewhere behind where the watch does
	down    int      // how many of them are away
	grouped bool     // the nodes have got groups, so there are other sources
}

// errOtherPosition: of a single server, or of another time of this one.
var errOtherPosition = fmt.Errorf("%w: the position is not one of a cluster", ErrOptions)

// positionOfAll is where all nodes are.
func positionOfAll(ctx context.Context, f *route.Router) (Position, error) {
	var mu sync.Mutex
	v := make(map[string]wire.Cursor)
	list, err := sources(ctx, f)
	if err != nil {
		return Position{}, f.Fail("position", nil, err)
	}
	if list[0].share.Group != 0 {
		var wg sync.WaitGroup
		for _, q := range list {
			wg.Go(func() {
				page, e := q.poll(ctx, nil, WatchOptions{})
				mu.Lock()
				defer mu.Unlock()
				if v[q.name] = page.next.c; e != nil {
					err = e
				}
			})
		}
		if wg.Wait(); err != nil {
			return Position{}, err
		}
		return Position{rest: vectorText(v)}, nil
	}
	err = f.Each(ctx, "position", func(p *peer.Peer) error {
		page, err := poll(ctx, p, nil, WatchOptions{})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			v[p.Node] = page.next.c
		}
		return err
	})
	if err != nil {
		return Position{}, err
	}
	return Position{rest: vectorText(v)}, nil
}

// watchAll is Watch for a cluster.
func watchAll(ctx context.Context, f *route.Router, prefix []byte, opts WatchOptions, yield func(Event, error) bool) {
	if opts.From != (Position{}) && opts.From.node == "" && opts.From.rest == "" {
		yield(Event{}, f.Fail("watch", prefix, errOtherPosition))
		return
	}
	for resumed := (opts.From != Position{}); watchSources(ctx, f, prefix, &opts, resumed, yield); resumed = true {
	}
}

// watchSources is watchAll with the sources that there are. It reports whether the watch goes on with others, because its nodes have got groups; opts.From is where it was then. Groups have events of their own from
// when they began, so each is told with a gap before it.
func watchSources(ctx context.Context, f *route.Router, prefix []byte, opts *WatchOptions, resumed bool, yield func(Event, error) bool) (again bool) {
	list, err := sources(ctx, f)
	if err != nil {
		yield(Event{}, f.Fail("watch", prefix, err))
		return false
	}
	w := &fanIn{f: f, sources: list, pages: make(chan polled), cursors: opts.From.vector(), away: make([]bool, len(list)), blind: make([]bool, len(list))}
	if err := w.start(ctx, resumed); err != nil {
		if w.becameAny(ctx, err) {
			return true
		}
		yield(Event{}, f.Fail("watch", prefix, err))
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i, q := range list {
		on := make(chan Position, 1)
		w.on = append(w.on, on)
		from := *opts
		from.From = Position{c: w.cursors[q.name], node: q.name}
		q.wg = &wg
		wg.Go(func() { w.poller(ctx, i, q, prefix, from, on) })
	}
	w.loop(ctx, yield)
	opts.From = Position{rest: vectorText(w.cursors)}
	return w.grouped
}

// becameAny reports whether a source has failed with err because its node has groups now.
func (w *fanIn) becameAny(ctx context.Context, err error) bool {
	return slices.ContainsFunc(w.sources, func(q *source) bool { return q.share.Became(ctx, w.f, err) != nil })
}

// start finds out where the nodes are of which the caller has no position: every
// event is then told with the positions of all. What such a node did before that,
// or does until it can be asked, is missed, and told as a gap: unless the watch is
// to begin now, and it could be asked now.
func (w *fanIn) start(ctx context.Context, resumed bool) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var last error
	for i, q := range w.sources {
		mu.Lock()
		known := w.cursors[q.name] != wire.Cursor{}
		mu.Unlock()
		if known {
			continue
		}
		w.blind[i] = true
		wg.Go(func() {
			page, err := q.poll(ctx, nil, WatchOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				last = err // its poller begins with what is now when it is back
				return
			}
			w.cursors[q.name], w.blind[i] = page.next.c, resumed
		})
	}
	wg.Wait()
	if last != nil && (len(w.cursors) == 0 || !errors.Is(last, ErrUnavailable) && !errors.Is(last, ErrTimeout)) {
		return last
	}
	return nil
}

// poller brings the pages of one source, one at a time.
func (w *fanIn) poller(ctx context.Context, i int, q *source, prefix []byte, opts WatchOptions, on <-chan Position) {
	for {
		page, err := q.poll(ctx, prefix, opts)
		select {
		case w.pages <- polled{i, page, err}:
		case <-ctx.Done():
			return
		}
		select {
		case at := <-on:
			opts.From = at
		case <-ctx.Done():
			return
		}
		if err != nil {
			base.Pause(ctx, base.RetryMost)
		}
	}
}

// loop tells what the pollers bring, until the caller has enough or no
// poller is left.
func (w *fanIn) loop(ctx context.Context, yield func(Event, error) bool) {
	for {
		var got polled
		if len(w.early) > 0 {
			got, w.early = w.early[0], w.early[1:]
		} else {
			select {
			case got = <-w.pages:
			case <-ctx.Done():
				yield(Event{}, w.f.Fail("watch", nil, base.AsTimeout(ctx.Err())))
				return
			}
		}
		for {
			more, ok := w.tell(ctx, got, yield)
			if !ok {
				return
			}
			if !more {
				break
			}
			if got, ok = w.nextOf(ctx, got.i); !ok {
				yield(Event{}, w.f.Fail("watch", nil, base.AsTimeout(ctx.Err())))
				return
			}
		}
	}
}

// nextOf waits for the next page of one node; others' pages wait.
func (w *fanIn) nextOf(ctx context.Context, i int) (polled, bool) {
	for {
		select {
		case got := <-w.pages:
			if got.i == i {
				return got, true
			}
			w.early = append(w.early, got) // at most one of each
		case <-ctx.Done():
			return polled{}, false
		}
	}
}

// tell yields the events of one page and lets its poller go on. more: a batch
// goes on in the next page of the node.
func (w *fanIn) tell(ctx context.Context, got polled, yield func(Event, error) bool) (more, ok bool) {
	node, by := w.sources[got.i].name, got.page.node
	if w.sources[got.i].share.Group == 0 {
		by = node
	}
	others := maps.Clone(w.cursors)
	delete(others, node)
	rest := vectorText(others)
	at := func(c wire.Cursor) Position { return Position{c: c, node: node, rest: rest} }
	if got.err != nil {
		if w.grouped = w.sources[got.i].share.Became(ctx, w.f, got.err) != nil; w.grouped {
			return false, false
		}
		if ctx.Err() != nil || !w.lost(got) {
			yield(Event{}, got.err)
			return false, false
		}
		if w.amid { // what others do meanwhile is not of the batch
			w.amid = false
			if !yield(Event{Op: EventSkip, Skipped: true, Position: at(w.cursors[node]), Node: by}, nil) {
				return false, false
			}
		}
		w.on[got.i] <- Position{c: w.cursors[node], node: node}
		return false, true
	}
	if w.away[got.i] {
		w.away[got.i] = false
		w.down--
		w.f.Config().Logger.Info("watch: node is back", "node", node)
	}
	if got.page.skipped || w.blind[got.i] {
		w.blind[got.i] = false
		first := got.page.next.c
		if len(got.page.events) > 0 { // to be told again if the caller ends here
			first = w.cursors[node]
		}
		if !yield(Event{Op: EventSkip, Skipped: true, Position: at(first), Node: by}, nil) {
			return false, false
		}
	}
	for _, e := range got.page.events {
		e.Position = at(e.Position.c)
		if !yield(e, nil) {
			return false, false
		}
		more = e.More
	}
	w.amid, w.cursors[node] = more, got.page.next.c
	w.on[got.i] <- Position{c: got.page.next.c, node: node}
	return more, true
}

// lost notes that a node could not be asked, and reports whether the watch goes
// on without it.
func (w *fanIn) lost(got polled) bool {
	if !errors.Is(got.err, ErrUnavailable) && !errors.Is(got.err, ErrTimeout) && !errors.Is(got.err, ErrNoMap) {
		return false
	}
	if !w.away[got.i] {
		w.away[got.i] = true
		w.down++
		w.f.Config().Logger.Warn("watch: node cannot be asked", "node", w.sources[got.i].name, "err", got.err)
	}
	return w.down < len(w.sources)
}
