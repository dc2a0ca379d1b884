package ckpt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A moment is all that is published, and where a reader has found it.
type moment struct {
	model map[string]layout.Version
	seen  map[string]layout.Version
}

// moment looks at base and sets at one moment, as a scan does, and at the model.
func (r *rig) moment() (m moment, err error) {
	r.publishing.Lock()
	r.Leaving.Lock()
	snapshot := r.db.NewSnapshot()
	var views [shards]dirty.View
	for i, sh := range r.shards {
		sh.Mu.Lock()
		views[i] = sh.Dirty.View()
		sh.Mu.Unlock()
	}
	m.model, m.seen = maps.Clone(r.model), map[string]layout.Version{}
	release, err := r.Hold()
	r.Leaving.Unlock()
	r.publishing.Unlock()
	defer snapshot.Close()
	if err != nil {
		return m, fmt.Errorf("hold: %w", err)
	}
	defer release()
	it, err := snapshot.NewIter(nil)
	if err != nil {
		return m, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		sh, kind, key, _ := disk.ParseKey(it.Key())
		if kind != disk.KindData || sh >= shards {
			continue
		}
		rec, _, _, err := disk.ParseNoted(it.Value(), it.Key())
		if err != nil {
			return m, errors.Join(err, it.Close())
		}
		m.seen[fmt.Sprint(sh, string(key))] = rec.Version
	}
	if err := it.Close(); err != nil {
		return m, err
	}
	for i := range views {
		for it := views[i].Keys(nil, nil); it.Next(); {
			v, err := r.entry(it.Entry())
			if err != nil {
				return m, err
			}
			m.seen[fmt.Sprint(i, string(it.Key()))] = v
		}
	}
	return m, nil
}

// differs names a key of which a reader was told something else than what is published.
func (m *moment) differs() error {
	for k, v := range m.model {
		if m.seen[k] != v {
			return fmt.Errorf("key %s has version %v, and %v was seen", k, v, m.seen[k])
		}
	}
	for k, v := range m.seen {
		if v != 0 && m.model[k] != v {
			return fmt.Errorf("version %v of key %s was seen, which has %v", v, k, m.model[k])
		}
	}
	return nil
}

// TestWorld has writes, rounds, readers and scans go on beside each other: whatever is read
// under a hold is there, no read is older than what was published before it began, and base
// and sets together are what is published, at every moment.
func TestWorld(t *testing.T) {
	rng := seeded(t)
	r := newRig(t, func(c *Config) { c.Every, c.DirtyWrites = 3*time.Millisecond, 100+rng.IntN(400) })
	r.life.Go(r.Run)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	faults := make(chan error, 10)
	reads, moments, nows := 0, 0, 0
	try := func(n *int, seed uint64, f func(*rand.Rand) error) {
		own := rand.New(rand.NewPCG(seed, 2))
		readers.Go(func() {
			for ; ctx.Err() == nil; *n++ {
				if err := f(own); err != nil && ctx.Err() == nil {
					faults <- err
					cancel()
				}
			}
		})
	}
	try(&reads, rng.Uint64(), func(rng *rand.Rand) error {
		w := write{shard: uint16(rng.IntN(shards)), key: fmt.Sprint(rng.IntN(40))}
		r.publishing.Lock()
		before := r.model[w.name()]
		r.publishing.Unlock()
		got, err := r.read(w.shard, w.key)
		r.publishing.Lock()
		after := r.model[w.name()]
		r.publishing.Unlock()
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", w.name(), err)
		case before != 0 && after != 0 && before == after && got != before:
			return fmt.Errorf("key %s has version %v, and %v was read", w.name(), before, got)
		case got != 0 && got < before:
			return fmt.Errorf("key %s had version %v, and then %v was read", w.name(), before, got)
		}
		return nil
	})
	try(&moments, rng.Uint64(), func(*rand.Rand) error {
		m, err := r.moment()
		if err == nil {
			err = m.differs()
		}
		return err
	})
	try(&nows, rng.Uint64(), func(rng *rand.Rand) error {
		at := r.log.Stats().Passed
		if err := r.Now(ctx); err != nil {
			return fmt.Errorf("now: %w", err)
		}
		if p := r.Place(); p.At < at {
			return fmt.Errorf("the base is at %v, and %v was asked for", p.At, at)
		}
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		return nil
	})
	end := time.Now().Add(30 * time.Second)
	for frames := 0; ctx.Err() == nil && (frames < 400 || r.Stats().Checkpoints < 5 && time.Now().Before(end)); frames++ {
		var frame []write
		for range 1 + rng.IntN(6) {
			frame = append(frame, write{shard: uint16(rng.IntN(shards)), key: fmt.Sprint(rng.IntN(40)), gone: rng.IntN(4) == 0})
		}
		r.write(rng.IntN(20_000), frame...)
	}
	cancel()
	readers.Wait()
	close(faults)
	for err := range faults {
		t.Error(err)
	}
	s := r.Stats()
	t.Logf("%d reads, %d moments, %d times now, %d rounds, %d segments given back", reads, moments, nows, s.Checkpoints, r.log.Stats().Recycled)
	if reads == 0 || moments == 0 || nows == 0 || s.Checkpoints < 5 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	// At the end the base alone is what is published.
	if err := r.Last(context.Background()); err != nil {
		t.Fatal(err)
	}
	m, err := r.moment()
	if err == nil {
		err = m.differs()
	}
	if n := r.Stats().DirtyWrites; err != nil || n != 0 {
		t.Errorf("at the end: %d writes are newer than the base; %v", n, err)
	}
}
