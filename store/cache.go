package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/clock"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/internal/warm"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/region"
)

// A Mode says what becomes of keys for which there is no memory. The zero value
// is Durable.
type Mode uint8

const (
	// Durable keeps every key in Pebble; memory holds those that are used.
	Durable Mode = iota
	// Cache keeps nothing but memory: what is evicted is gone, and a start
	// begins empty, but for memory that was kept (Config.Kept). There is no scan, everything else is there. Results of
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
	own := span{min(layout.Version(s.opened.UnixMilli())<<14, warm.MaxVersions-1) + 1, layout.MaxVersion}
	if own.first = recall(s, own.first); s.cfg.Kept {
		own.limit = s.kept.limit
	}
	s.disk.BeginCache(own.first.Epoch(), uint64(s.opened.UnixMicro()))
	return own, nil
}

// What a cache keeps for its next life: package warm has the record, package shard (left.go) what makes an item of an earlier life believed.

// KeptRecordBytes is the length of the record of a life, which the Memory of Config.Kept has beside the regions.
const KeptRecordBytes = region.RecordBytes

// keeping is a store's part in it.
type keeping struct {
	record *warm.Record // nil: nothing is kept
	keeper region.Keeper
	found  *warm.Found // of the life before; nil: nothing that can be used
	mu     sync.Mutex  // guards stats
	stats  warm.Stats
	limit  layout.Version // of the versions that the record covers at the beginning
}

// versionsAhead is how far the record is raised ahead of the versions that are given out, and versionsEvery how often. No version is given out that the record does not cover,
// so no two lives give out the same; that a write would have to wait for the record does not happen, because 33 million writes in a fifth of a second are more than any node does.
const (
	versionsAhead = 1 << 26
	versionsEvery = 200 * time.Millisecond
)

// recall looks for the memory of the life before, and begins this one's record. It returns the first version of this life, which is at least first, and makes the clock.
// Nobody believes the memory of the life before any more.
func recall(s *Store, first layout.Version) layout.Version {
	k := &s.kept
	if !s.cfg.Kept {
		s.clock = clock.New(s.cfg.clock, 0)
		return first
	}
	k.keeper, s.mem.Kept = s.cfg.Memory.(region.Keeper), true
	life := warm.Life{Fingerprint: s.cfg.KeptAs, Seed: s.mem.Seed, Shards: s.cfg.Shards, Incarnations: []uint64{s.mem.Incarnation}}
	before, known := warm.ReadLife(k.keeper.Record())
	if known == nil { // also if its memory cannot be used: versions and time go on
		first = max(first, before.Versions)
		life.Clock = before.Clock
	}
	found, err := warm.Look(k.keeper, tableConfig(s), s.cfg.KeptAs)
	if err != nil {
		forgetLeft(s, err)
	} else {
		k.found, life.Seed = found, found.Seed
		s.mem.Seed, s.newest.Seed = found.Seed, found.Seed
		life.Incarnations = append(life.Incarnations, found.Incarnations...)
		life.Incarnations = life.Incarnations[:min(len(life.Incarnations), warm.MaxIncarnations)]
	}
	k.limit = first + versionsAhead
	life.Versions = k.limit
	k.record = warm.NewRecord(k.keeper.Record(), life)
	s.clock = clock.New(s.cfg.clock, life.Clock)
	s.clock.Keep(func(bound uint64) error {
		k.record.Change(func(l *warm.Life) { l.Clock = bound })
		return nil
	})
	return first
}

// forgetLeft gives back what the life before has left.
func forgetLeft(s *Store, why error) {
	if !errors.Is(why, warm.ErrNoLife) {
		s.cfg.Logger.Warn("the memory that was kept cannot be used, and is given back: this cache begins empty", "err", why)
	}
	if err := s.kept.keeper.Forget(); err != nil {
		s.cfg.Logger.Warn("memory that was kept cannot be given back", "err", err)
	}
}

// adoptLeft begins with the memory of the life before, if there is any that can be used. If that fails the store begins empty.
func adoptLeft(s *Store, none layout.Version) bool {
	k := &s.kept
	if k.found == nil {
		return false
	}
	begun := time.Now()
	left := &shard.Left{Incarnations: k.found.Incarnations, Below: none + 1}
	err := layMemory(s, k.found.Regions)
	if err == nil {
		s.mem.Leave(left)
		if s.shards, k.stats, err = warm.Adopt(s.mem, k.found, none); err != nil {
			s.mem.Leave(nil)
			err = errors.Join(err, s.mem.Table.Close())
		}
	}
	if err != nil {
		s.mem.Table, s.shards = nil, nil
		forgetLeft(s, err)
		k.record.Change(func(l *warm.Life) { l.Incarnations = []uint64{s.mem.Incarnation} })
		return false
	}
	if k.stats.Lost() > 0 {
		// What no slot leads to is judged by nobody in this life, and its keys may be written: a life that ends early leaves the next one what it has believed itself.
		k.record.Change(func(l *warm.Life) { l.Incarnations = l.Incarnations[:1] })
	}
	if err := k.keeper.Forget(); err != nil { // regions of which the header was damaged
		s.cfg.Logger.Warn("memory that was kept cannot be given back", "err", err)
	}
	s.cfg.Logger.Info("memory of the life before is taken over: its items are believed as they are verified",
		"bytes", k.stats.Bytes, "slots", k.stats.Slots, "slots_refused", k.stats.Refused, "took", time.Since(begun))
	return true
}

// believeAll goes through the items of the life before. When that is over, nothing of it is believed any more that was not.
func believeAll(s *Store) {
	left := s.mem.Left()
	if s.cfg.holdFill != nil {
		select {
		case <-s.cfg.holdFill:
		case <-s.life.Stop:
		}
	}
	if !warm.Pass(s.mem, s.shards, s.life) {
		return
	}
	s.kept.record.Change(func(l *warm.Life) { l.Incarnations = l.Incarnations[:1] })
	k := &s.kept
	k.mu.Lock()
	k.stats.Believed, k.stats.Dropped, k.stats.Took = left.Believed.Load(), left.Dropped.Load(), time.Since(s.opened)
	st := k.stats
	k.mu.Unlock()
	s.cfg.Logger.Info("memory of the life before is believed", "items", st.Believed, "dropped", st.Dropped, "since_start", st.Took)
}

// KeptStatsOf says what became of the memory of the life before.
func KeptStatsOf(s *Store) warm.Stats {
	k := &s.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	st := k.stats
	if left := s.mem.Left(); left != nil {
		st.Believed, st.Dropped = left.Believed.Load(), left.Dropped.Load()
	}
	return st
}

// keepVersions keeps the record ahead of the versions that are given out.
func keepVersions(s *Store) {
	s.life.Every(versionsEvery, func() { raiseVersions(s) })
}

// raiseVersions raises what the record covers, and then what may be given out.
func raiseVersions(s *Store) {
	next, limit := s.pipe.Versions()
	if next+versionsAhead/2 <= limit {
		return
	}
	limit = next + versionsAhead
	s.kept.record.Change(func(l *warm.Life) { l.Versions = limit })
	s.pipe.Extend(limit)
}

// leaveKept writes what the next life has to know of this one that ends.
func leaveKept(s *Store) {
	if s.kept.record == nil {
		return
	}
	s.kept.keeper.Leave()
	next, _ := s.pipe.Versions()
	s.kept.record.Change(func(l *warm.Life) {
		l.Versions = max(next, 1)
		if s.clock.Bounded() {
			l.Clock = s.clock.Now() // nobody is shown a later time any more
			s.clock.SetBound(l.Clock)
		}
	})
}
