package server

import (
	"context"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// retireIdle gives back the regions of items in which nothing has stood for
// RegionIdle: they leave the table and are listed as retired, which the beat
// says; then a lease is waited for and the word of every session, as with an old
// rkey (rotate.go); then they are deregistered and unmapped.
//
// Nothing that a client may need is in them: an item that is held or pinned is
// live, and so its region is not empty. A place remembered from before is dropped
// by the list of retired pages before a new lease is used (F9), and lies in no
// region of the newer view, for a place is not used twice: such a get asks.
func (srv *Server) retireIdle(ctx context.Context) {
	ids, version := srv.store.RetireIdle(time.Now(), srv.cfg.RegionIdle)
	if len(ids) == 0 {
		return
	}
	srv.log.Info("regions without items are given back", "regions", ids, "view", version)
	if err := srv.waitTable(ctx, version); err != nil {
		return // the Server ends, and frees them with the others
	}
	for _, id := range ids {
		if err := srv.store.FreeRegion(id); err != nil {
			srv.log.Error(limitMemory, "a region cannot be given back: its memory stays", "region", id, "err", err)
			continue
		}
		srv.regions.gone.Add(1)
	}
	srv.regions.changed()
}

// learnsTable notes that the client is about to be told rkeys. Called before the
// table is looked at: what it shows cannot be older than that.
func (s *session) learnsTable(version uint64) { s.table.CompareAndSwap(0, version) }

// usesTable notes what the client says: nothing that it READs, or will, goes by a
// table before that version.
func (s *session) usesTable(version uint64) {
	for {
		old := s.table.Load()
		if old == 0 || version <= old || s.table.CompareAndSwap(old, version) {
			return
		}
	}
}

// dismiss asks the client to connect again. What is under way is answered; it
// disconnects when it has its answers.
func (s *session) dismiss(c cause) {
	s.mu.Lock()
	if s.why == causeNone {
		s.why = c
		s.goodbyeLocked(wire.StatusClosing, "connect again for the new region table")
	}
	s.mu.Unlock()
	s.flush()
}
