package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The publisher is one goroutine that makes committed writes visible, in
// order. It is the only one that changes what readers see, but for the fill
// after a start and the clearing of slots, which obey the same order of steps,
// and the committer where the publisher has nothing to do (commit).

// runPublisher publishes until the committer closes the channel.
func (s *Store) runPublisher() {
	defer s.workers.Done()
	for g := range s.groups {
		if !s.finishGroup(g) {
			return
		}
		s.unpublished.Add(-1)
	}
}

// finishGroup publishes a committed group once it is durable. false: the store
// is fenced.
func (s *Store) finishGroup(g *group) bool {
	s.watch.noteCommitted(g)
	if g.batch != nil && s.cfg.Sync == Always && !teeth.Off(teeth.D5SyncFirst) {
		if err := g.batch.SyncWait(); err != nil {
			s.fence.fail(fmt.Errorf("commit: %w", err))
			return false
		}
	}
	if !s.waitPredecessor() {
		return false
	}
	s.publishGroup(g)
	return true
}

// publishGroup publishes a durable group and answers its writers.
func (s *Store) publishGroup(g *group) {
	for _, w := range g.writes {
		s.publish(w)
	}
	s.tally(g)
	if g.batch != nil {
		if teeth.Off(teeth.D5SyncFirst) {
			_ = g.batch.SyncWait() // too late
		}
		g.batch.Close() // ours again after SyncWait; always nil
	}
	s.gate.leave(g.bytes, len(g.writes))
	s.watch.noteGroup(g)
	for _, w := range g.writes {
		w.Done(w) // w is the caller's again
	}
	s.pool.put(g)
	s.cfg.OnGroup()
}

// waitPredecessor blocks until no client can believe the memory of the last
// incarnation any more: what is published before could be followed by a read
// of the old memory. false: the store is fenced.
func (s *Store) waitPredecessor() bool {
	if s.predecessorOver || teeth.Off(teeth.F14PredecessorWait) {
		return s.fence.failed() == nil
	}
	left := time.NewTimer(time.Until(s.publishFrom))
	defer left.Stop()
	select {
	case <-left.C:
		s.predecessorOver = true
		return true
	case <-s.fence.down:
		return false
	}
}

// publish makes one durable write visible.
func (s *Store) publish(w *Write) {
	sh := s.shards[w.Shard]
	if w.Op == OpBatch {
		s.publishBatch(sh, w)
		return
	}
	var mem []byte
	if w.class != 0 {
		// The first step of the order below, before the lock: the place is
		// this write's alone, and copying a large value takes milliseconds.
		mem = s.table.Bytes(w.place, layout.ClassSize(w.class))
		s.writePending(mem, w.place, w.item())
	}
	sh.mu.Lock()
	sh.durable = w.Version
	switch {
	case w.noop:
	case w.removes():
		s.unlink(sh, w)
	case w.class != 0:
		s.link(sh, w, mem)
	default:
		ref, found := sh.find(w.hash, w.Key)
		s.linkSlotless(sh, w, ref, found)
	}
	s.settle(sh, w)
}

// settle is the end of publishing: what was ordered is published now. It
// unlocks the shard.
func (s *Store) settle(sh *shard, w *Write) {
	for _, e := range w.effects {
		if !e.noop {
			sh.overlayRemove(e)
			sh.listed(e)
		}
	}
	version := w.Version
	s.dedup.published(w) // a retry gets the version of the first
	sh.raisePublished(version)
	sh.mu.Unlock()
}

// visible is the state that w's item is published in. One on whose life a later
// write in flight depends is never live (hide).
func (w *Write) visible() layout.State {
	if w.hidden {
		return layout.Dead
	}
	return layout.Live
}

// writePending writes an item into free memory.
func (s *Store) writePending(mem []byte, p layout.Place, it layout.Item) {
	layout.WriteItem(mem, s.incarnation, p, it, layout.Pending)
	if teeth.Off(teeth.F1PutOrder) {
		// The order that looks right: the new item is whole, so let it live.
		layout.SetState(mem, it.Version, layout.Live)
	}
	if teeth.Enabled {
		teeth.At("publish.pending", uint64(it.Version), uint64(p))
	}
}
