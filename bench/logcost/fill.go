package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/store/layout"
)

// regions is the memory of a store that nobody reads from elsewhere. Safe for concurrent use.
type regions struct {
	mu   sync.Mutex
	live map[uint32][]byte
}

func (m *regions) Alloc(id uint32, _ layout.RegionKind, size int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := make([]byte, size)
	m.live[id] = b
	return b, nil
}

func (m *regions) Free(id uint32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, id)
	return nil
}

// measureFill: a store of today is filled, closed and opened again. What it takes for each key to
// be in memory is the cost of a replay that links each record, whatever the log looks like.
func measureFill(ctx context.Context, b *bench) (*table, error) {
	t := &table{what: "store of today", columns: []string{"keys", "open ms", "fill s", "fill ns a key", "fill CPU ns a key", "put CPU ns"}}
	var cases []turn
	for _, l := range []struct{ value, keys int }{{100, b.fill}, {1 << 10, b.fill / 4}} {
		r := t.row(fmt.Sprintf("%s values", kib(l.value)))
		dir := b.path("store")
		fill, err := b.stored(ctx, dir, l.value, l.keys)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		r.add("put CPU ns", fill)
		cases = append(cases, func() error { return startStore(ctx, r, dir, l.keys) })
	}
	t.note("The fill reads from Pebble and links with two workers at a time on two cores; a put is ordered, committed without sync, and published.")
	return t, b.turns(ctx, b.rounds, cases)
}

// lease is short: memory that an index has outgrown rests for one, and what a fill
// waits for is not its cost.
const lease = 50 * time.Millisecond

// openStore opens a store and beats until it is closed.
func openStore(ctx context.Context, dir string) (s *store.Store, end func() error, err error) {
	s, err = store.Open(ctx, storeConfig(dir))
	if err != nil {
		return nil, nil, err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for beat := time.NewTicker(lease / 10); ; {
			select {
			case <-stop:
				beat.Stop()
				return
			case <-beat.C:
				s.Beat(time.Now())
			}
		}
	}()
	return s, func() error { close(stop); <-stopped; return s.Close() }, nil
}

func storeConfig(dir string) store.Config {
	return store.Config{
		Dir: dir, Memory: &regions{live: map[uint32][]byte{}}, MemoryLimit: 2 << 30, Sync: store.Off,
		MinFreeBytes: -1, PredecessorGone: true, ScrubRate: -1, Lease: lease, BeatInterval: lease / 10,
		OnFatal: func(err error) { panic(err) },
	}
}

// stored makes a store of so many keys, and returns what a put took of processor time,
// in nanoseconds.
func (b *bench) stored(ctx context.Context, dir string, value, keys int) (perPut float64, err error) {
	s, end, err := openStore(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	const window = 1024
	free := make(chan *store.Write, window)
	var failed error
	var once sync.Once
	for range window {
		free <- &store.Write{Op: store.Op{Value: noise(value), Key: make([]byte, 16)}, Done: func(w *store.Write) {
			if w.Err != nil {
				once.Do(func() { failed = w.Err })
			}
			free <- w
		}}
	}
	used := processorTime()
	for id := range keys {
		w := <-free
		w.Shard = keyOf(w.Key, id) % shardCount
		if err := submit(ctx, s, w); err != nil {
			return 0, err
		}
	}
	for range window {
		<-free
	}
	return float64((processorTime() - used).Nanoseconds()) / float64(keys), failed
}

// submit waits for room where the store has none at the moment.
func submit(ctx context.Context, s *store.Store, w *store.Write) error {
	for {
		err := s.Submit(w)
		if !errors.Is(err, store.ErrOverloaded) && !errors.Is(err, store.ErrGrowing) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// startStore opens a store and waits until all of its keys are in memory.
func startStore(ctx context.Context, r *row, dir string, keys int) (err error) {
	began, used := time.Now(), processorTime()
	s, end, err := openStore(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	opened := time.Since(began)
	for !s.Filled() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	took := time.Since(began) - opened
	if n := s.Stats().Keys; n != uint64(keys) {
		return fmt.Errorf("%d keys were stored and %d are there", keys, n)
	}
	r.add("keys", float64(keys))
	r.add("open ms", micros(opened)/1e3)
	r.add("fill s", took.Seconds())
	r.add("fill ns a key", float64(took.Nanoseconds())/float64(keys))
	r.add("fill CPU ns a key", float64((processorTime()-used).Nanoseconds())/float64(keys))
	return nil
}
