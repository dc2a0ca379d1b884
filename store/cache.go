package store

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/clock"
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

// UnmarshalText is the inverse of Mode.String; it makes Mode an
// encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(text []byte) error {
	for v := Durable; v <= Cache; v++ {
		if v.String() == string(text) {
			*m = v
			return nil
		}
	}
	return fmt.Errorf("store: mode %q: must be durable or cache", text)
}

// openCache begins a life out of nothing. There may have been one before, whose
// memory clients still believe: it is waited for, unless its end is known
// (Config.PredecessorGone). Nothing is written that could say so here. Until then
// not even gets are answered: that every key is gone is news that nobody may be
// told while another can still read one.
func (s *Store) openCache(ctx context.Context) (span, error) {
	s.clock = clock.New(s.cfg.clock, 0)
	s.before.over = true
	if !s.cfg.PredecessorGone {
		over := time.NewTimer(time.Until(s.opened.Add(s.cfg.predecessorWait())))
		defer over.Stop()
		select {
		case <-over.C:
		case <-ctx.Done():
			return span{}, ctx.Err()
		}
	}
	// A condition on a version of an earlier life must not hold by chance. So
	// versions begin at the time of day, in units of which no life uses more
	// than time gives it: 16384 in a millisecond.
	own := span{min(layout.Version(s.opened.UnixMilli())<<14, layout.MaxVersion-1<<50) + 1, layout.MaxVersion}
	s.disk.BeginCache(own.first.Epoch(), uint64(s.opened.UnixMicro()))
	return own, nil
}

// startCache: every shard has all its keys, none.
func (s *Store) startCache() {
	for _, sh := range s.shards {
		s.filler.Full(sh)
	}
	if !s.cfg.noKeeper {
		s.life.Go(s.runCacheExpirer)
	}
}

const (
	// expirySample is how many items of a class are looked at, at a time, for
	// one that has expired; and the number of expired ones among them from
	// which it is worth to look at once again.
	expirySample = 64
	expiryAgain  = 8
)

// places are buffers for drawing items.
type places struct {
	drawn []layout.Place
	key   []byte
}

// runCacheExpirer removes expired keys. They are absent anyway; it is about
// their memory. There is no list of them: items are drawn at random.
func (s *Store) runCacheExpirer() {
	var buf places
	s.life.Every(expireEvery, func() {
		for class := 1; class <= layout.NumClasses; class++ {
			for s.expireSample(uint8(class), &buf) >= expiryAgain && !s.life.Over() {
			}
		}
	})
}

// expireSample draws items of a class, and removes those that have expired
// through the order.
func (s *Store) expireSample(class uint8, buf *places) int {
	buf.drawn = s.mem.Slabs.Sample(class, expirySample, mathrand.Uint64, buf.drawn[:0])
	var found []*Write
	now := s.clock.Now()
	for _, p := range buf.drawn {
		it, ok := s.evictor.PeekItem(p, class, &buf.key)
		if ok && it.Expiry != 0 && it.Expiry <= now {
			found = append(found, dueWrite(it.Shard, it.Key, clock.Second(it.Expiry)))
		}
	}
	if len(found) == 0 || s.runInternal(found) != nil {
		return 0
	}
	return len(found)
}
