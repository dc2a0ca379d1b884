package store

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Mode says what becomes of keys for which there is no memory. The zero value
// is Durable.
type Mode uint8

const (
	// Durable keeps every key in Pebble; memory holds those that are used.
	Durable Mode = iota
	// Cache keeps nothing but memory: what is evicted is gone, and a start
	// begins empty. There is no scan, everything else is there. Results of
	// requests are kept in memory, so a retry is applied once as long as the
	// process lives.
	Cache
)

// String returns the mode as it is written in config files.
func (m Mode) String() string {
	switch m {
	case Durable:
		return "durable"
	case Cache:
		return "cache"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// ParseMode is the inverse of Mode.String.
func ParseMode(s string) (Mode, error) {
	for m := Durable; m <= Cache; m++ {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("store: mode %q: must be durable or cache", s)
}

// openCache begins a life out of nothing. There may have been one before, whose
// memory clients still believe: it is waited for, unless its end is known
// (Config.PredecessorGone). Nothing is written that could say so here. Until then
// not even gets are answered: that every key is gone is news that nobody may be
// told while another can still read one.
func (s *Store) openCache(ctx context.Context) error {
	rand.Read(s.facts.id[:]) // never fails
	s.facts.shards = uint32(s.cfg.Shards)
	s.predecessorOver = true
	if !s.cfg.PredecessorGone && !teeth.Off(teeth.F14PredecessorWait) {
		over := time.NewTimer(time.Until(s.opened.Add(s.cfg.predecessorWait())))
		defer over.Stop()
		select {
		case <-over.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// A condition on a version of an earlier life must not hold by chance. So
	// versions begin at the time of day, in units of which no life uses more
	// than time gives it: 16384 in a millisecond.
	s.firstVersion = min(layout.Version(s.opened.UnixMilli())<<14, layout.MaxVersion-1<<50) + 1
	s.lastVersion = layout.MaxVersion
	s.facts.epoch = s.firstVersion.Epoch()
	s.facts.began = uint64(s.opened.UnixMicro())
	return nil
}

// startCache: every shard has all its keys, none.
func (s *Store) startCache() {
	for _, sh := range s.shards {
		s.filled(sh)
	}
	if !s.cfg.noKeeper {
		s.workers.Add(1)
		go s.runCacheExpirer()
	}
}

// closeCache ends a life: nothing of it is left.
func (s *Store) closeCache() error { return s.table.Close() }

const (
	// expirySample is how many items of a class are looked at, at a time, for
	// one that has expired; and the number of expired ones among them from
	// which it is worth to look at once again.
	expirySample = 64
	expiryAgain  = 8
)

// runCacheExpirer removes expired keys. They are absent anyway; it is about
// their memory. There is no list of them: items are drawn at random.
func (s *Store) runCacheExpirer() {
	defer s.workers.Done()
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	var buf sampler
	for {
		select {
		case <-s.stop:
			return
		case <-s.fence.down:
			return
		case <-tick.C:
		}
		for class := 1; class <= layout.NumClasses; class++ {
			for s.expireSample(uint8(class), &buf) >= expiryAgain && !s.stopping() {
			}
		}
	}
}

// expireSample draws items of a class, and removes those that have expired
// through the order.
func (s *Store) expireSample(class uint8, buf *sampler) int {
	buf.places = s.slabs.Sample(class, expirySample, mathrand.Uint64, buf.places[:0])
	var found []*Write
	now := s.clock.now()
	for _, p := range buf.places {
		it, ok := s.peekItem(p, class, &buf.keys[0])
		if ok && it.Expiry != 0 && it.Expiry <= now {
			found = append(found, &Write{Shard: it.Shard, Op: OpDelete,
				Key: append([]byte(nil), it.Key...), due: second(it.Expiry)})
		}
	}
	if len(found) == 0 || s.runInternal(found) != nil {
		return 0
	}
	return len(found)
}
