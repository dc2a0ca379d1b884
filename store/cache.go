package store

import (
	"context"
	"fmt"
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
	s.before.over.Store(true)
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
