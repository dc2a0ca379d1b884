package store

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// How a replica takes part in its group, from when it may, and how it ceases because of an error. How the store gives one up stands in removegroup.go.

// live starts what the replica does by itself, until it is given up or the store ends.
func (m *member) live(s *Store, g *groupSide) {
	for _, f := range []func(){func() { m.Run(s.life) }, func() { m.runChecks(s, g) }} {
		m.running.Add(1)
		s.life.Go(func() {
			defer m.running.Done()
			f()
		})
	}
}

// mayTakePart waits until the replicas may take part. false: the store ends.
func (g *groupSide) mayTakePart(s *Store) bool {
	if s.cfg.TakePart != nil {
		select {
		case <-s.cfg.TakePart:
		case <-g.ctx.Done():
			return false
		}
	}
	return s.before.waitUntil(g.ctx) == nil
}

// takePart has the engine run the replica. One that cannot run is told of, and leaves its shards unserved here. One that was given up meanwhile does
// not run.
func (m *member) takePart(s *Store, g *groupSide) {
	m.part.Lock()
	defer m.part.Unlock()
	if m.gone || s.cfg.Keeps != nil && !s.cfg.Keeps(m.group, m.id) {
		return
	}
	if err := m.beganSo(s); err != nil {
		if m.ctx.Err() == nil && !s.life.Over() {
			m.refuse(s, err)
		}
		return
	}
	if err := g.engine.Start(m.ctx, m.group, m.id, &machine{m, s}); err != nil && m.ctx.Err() == nil {
		s.fence.Report(slog.LevelError, "a replica cannot take part in its group: its shards are not served here", "group", m.group, "err", err)
	}
}

// fenced ends the part of a replica that was stopped by an error. Its entries stay in the log, so that a program that can do more may
// go on with them; when half of the log is in use they go, because else writes of all other shards would stop. Then the replica
// is lost, as one is whose disk is: another one takes its place.
func (g *groupSide) fenced(s *Store, id consensus.GroupID) {
	g.mu.Lock()
	i := slices.IndexFunc(g.members, func(m *member) bool { return m.group == id })
	if i < 0 {
		g.mu.Unlock()
		return // it could not be added
	}
	m := g.members[i]
	// The one that was fenced may have been given up meanwhile, and this one come.
	st, err := g.engine.Status(id)
	g.mu.Unlock()
	if err != nil || st.Fenced == nil {
		return
	}
	m.End(&NotLeaderError{Group: id})
	for !s.life.Over() {
		if used := s.journal.Log().Stats(); used.Bytes > s.cfg.LogBytes/2 {
			m.part.Lock()
			defer m.part.Unlock()
			if m.gone {
				return // its log goes without that
			}
			if err := g.engine.Stop(id, true); err != nil && !errors.Is(err, consensus.ErrClosed) && !errors.Is(err, consensus.ErrNoGroup) {
				s.fence.Report(slog.LevelError, "the log keeps the entries of a replica that was stopped", "group", id, "err", err)
			} else if err == nil {
				s.fence.Report(slog.LevelError, "the entries of a replica that was stopped have left the log, because it was full: the replica is lost, and another one has to take its place", "group", id)
			}
			return
		}
		select {
		case <-time.After(fencedEvery):
		case <-m.ctx.Done():
			return
		}
	}
}

// fencedEvery is how often it is looked whether the log has room for the entries of a replica that was stopped.
const fencedEvery = 200 * time.Millisecond
