package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/bench/compare/counters"
	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/internal/load"
	"github.com/rdmakv/rdmakv/internal/load/rdmakv"
)

// measureKeys fills a store, looks at it at rest, gets from it, and starts it again.
func measureKeys(ctx context.Context, o options, keys int) (r keysResult, err error) {
	r = keysResult{Measured: time.Now().UTC(), Keys: keys, MemoryLimit: limitFor(keys)}
	n, err := start(ctx, o, r.MemoryLimit, "auto")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	c, err := n.connect(ctx, "shm")
	if err != nil {
		return r, err
	}
	defer c.Close()
	empty, err := n.process()
	if err != nil {
		return r, err
	}
	r.Empty = uint64(empty.Resident)

	if r.Load, err = fill(ctx, c, keys); err != nil {
		return r, err
	}
	o.say("%d keys: loaded in %.1f s; waiting %v until the server is at rest", keys, r.Load, o.rest)
	if err := sleep(ctx, o.rest); err != nil {
		return r, err
	}
	if err := r.look(ctx, n, c); err != nil {
		return r, err
	}
	for _, fabric := range fabrics {
		g, err := gets(ctx, n, fabric, keys, o.turn)
		if err != nil {
			return r, err
		}
		o.say("%d keys: a get over %s takes %.2f µs at the median, %.0f %% began with a remembered place", keys, fabric, g.P50, 100*g.CacheHit)
		r.Gets = append(r.Gets, g)
	}
	if err := r.restart(ctx, n); err != nil {
		return r, fmt.Errorf("restart: %w", err)
	}
	o.say("%d keys: %.1f B registered a key, %.1f resident; first get %.2f s after a start, all in memory after %.1f s",
		keys, float64(r.MemoryUsed)/float64(keys), float64(r.Resident-r.Empty)/float64(keys), r.FirstGet, r.Full)
	return r, nil
}

// loaded are the options of a load on one client; gets are of one caller.
func loaded(c *client.Client, keys_ int, op string, d time.Duration) (load.Options, error) {
	mix, err := load.ParseMix(op + "=1")
	return load.Options{
		Open: rdmakv.Open(c), Classify: rdmakv.Classify, Records: uint64(keys_), Keys: keys(), Values: load.FixedSize(valueBytes), Mix: mix,
		Choice: load.Zipfian, Workers: 1, Duration: d, Seed: 1,
		// Eight callers with 64 keys in a call fill fastest.
		FillWorkers: 8, FillBatch: 64,
	}, err
}

// fill stores all keys, and returns how many seconds that took.
func fill(ctx context.Context, c *client.Client, keys int) (float64, error) {
	opts, err := loaded(c, keys, "put", time.Second)
	if err != nil {
		return 0, err
	}
	f, err := load.Fill(ctx, opts)
	return f.Seconds, err
}

// look reads what the server at rest takes.
func (r *keysResult) look(ctx context.Context, n *node, c *client.Client) error {
	st, err := counters.Of(ctx, c)
	if err != nil {
		return err
	}
	// A load can be faster than the index may grow; such keys are answered by message for a while.
	r.InMemory, r.Slotless = st.Store.Keys, st.Store.Slotless
	if r.InMemory < uint64(r.Keys)*99/100 || st.Store.Evicted > 0 {
		return fmt.Errorf("%d keys of %d are in memory, %d were evicted: memory_limit is too small", st.Store.Keys, r.Keys, st.Store.Evicted)
	}
	r.MemoryUsed, r.Items, r.Index = st.Store.MemoryUsed, st.Store.ItemBytes, st.Store.IndexBytes
	r.Regions, r.Registered, r.Huge = st.Store.Regions, uint64(st.Registered), uint64(st.Huge)
	p, err := n.process()
	if err != nil {
		return err
	}
	r.Resident = uint64(p.Resident)
	r.Log, r.Base, err = n.disk()
	return err
}

// gets measures a client of its own, which knows no places when it begins.
func gets(ctx context.Context, n *node, fabric string, keys int, d time.Duration) (g getsResult, err error) {
	c, err := n.connect(ctx, fabric)
	if err != nil {
		return g, err
	}
	defer c.Close()
	var res *load.Result
	var before client.Counters
	for _, batch := range []int{64, 1} { // the first half warms the cache up, as fast as it goes
		opts, err := loaded(c, keys, "get", d/2)
		if err != nil {
			return g, err
		}
		opts.Batch = batch
		before = c.Counters()
		if res, err = load.Run(ctx, opts); err != nil {
			return g, err
		}
		if missed := res.Operations["get"].NotFound; res.Errors > 0 || res.Interrupted || missed > 0 {
			return g, errors.Join(fmt.Errorf("%d of %d gets failed, %d found nothing", res.Errors, res.Ops, missed), context.Cause(ctx))
		}
	}
	after := c.Counters()
	state := admin.Of(c).Known()[0].State()
	hits, misses := after.CacheHits-before.CacheHits, after.CacheMisses-before.CacheMisses
	return getsResult{
		Fabric: fabric, Ops: uint64(res.Ops), P50: res.P50, P99: res.P99, Places: state.CachedPlaces, Bytes: state.CacheBytes,
		CacheHit: float64(hits) / float64(max(1, hits+misses)),
	}, nil
}

// restart ends the server cleanly and starts it again on its store.
func (r *keysResult) restart(ctx context.Context, n *node) error {
	var begun time.Time
	if err := n.settings.Restart(ctx, n.Server, syscall.SIGTERM, func() { begun = time.Now() }); err != nil {
		return err
	}
	c, err := n.connect(ctx, "shm")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Get(ctx, keys().Append(nil, uint64(r.Keys/2))); err != nil {
		return err
	}
	r.FirstGet = time.Since(begun).Seconds()
	if err := counters.Until(ctx, c, func(st counters.Store) bool { return st.Keys >= uint64(r.Keys) }); err != nil {
		return err
	}
	r.Full = time.Since(begun).Seconds()
	return nil
}
