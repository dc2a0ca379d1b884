package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions is the registered memory of a store, as those see it who hand it to readers.
// All methods are safe for concurrent use but RetireIdle.
type Regions struct {
	mem  *shard.Memory
	door *base.Door
}

// View returns the region table as clients are to be handed it. It is a
// snapshot and must not be changed.
func (r *Regions) View() layout.View { return r.mem.Table.View() }

// ViewVersion returns the version of the newest view.
func (r *Regions) ViewVersion() uint64 { return r.mem.Table.ViewVersion() }

// ReclaimVersion returns the newest reclaim version: it stands in the beat.
func (r *Regions) ReclaimVersion() uint64 { return r.mem.Reclaim.Version() }

// BumpView raises the view version although the regions are the same, so that
// clients come for a new view. It returns the version; ErrClosed or ErrFatal
// when the store does not serve any more.
func (r *Regions) BumpView() (uint64, error) {
	leave, err := r.door.Enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return r.mem.Table.Bump(), nil
}

// RetireIdle takes regions of items out of the table in which nothing has stood
// for a while, and returns their ids and the first view version without them (0
// if there are none). It is to be called several times in that while, from one
// goroutine. now is any clock that does not go back.
//
// Clients may still READ there: the caller waits until AfterLease has called, and
// until no client can have a table with them, and then calls FreeRegion for each.
// Close frees those that are left.
func (r *Regions) RetireIdle(now time.Time, while time.Duration) (ids []uint32, version uint64) {
	leave, err := r.door.Enter()
	if err != nil {
		return nil, 0
	}
	defer leave()
	for _, idle := range r.mem.Slabs.Idle(now, while) {
		v, err := r.mem.Table.Retire(idle.ID)
		if err != nil {
			panic(fmt.Sprintf("store: %v, which the allocator had", err))
		}
		ids, version = append(ids, idle.ID), v
	}
	return ids, version
}

// AfterLease calls f, once and on the goroutine of Reclaim, when no client can
// be left that believes what it READ before this call. Not after Close.
func (r *Regions) AfterLease(f func()) error {
	leave, err := r.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	r.mem.Reclaim.After(f)
	return nil
}

// FreeRegion deregisters and frees a region that RetireIdle has returned. After
// an error its memory stays, and is counted.
func (r *Regions) FreeRegion(id uint32) error {
	leave, err := r.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	return r.mem.Table.FreeRetired(id)
}

// RetiredRegions returns the regions that are out of the table and wait for
// FreeRegion.
func (r *Regions) RetiredRegions() []layout.Region { return r.mem.Table.RetiredRegions() }

// Growing returns a channel that is closed when no memory is being registered
// for items: the moment to Submit again what was answered with ErrGrowing.
func (r *Regions) Growing() <-chan struct{} { return r.mem.Slabs.Growing() }

// A shard may be withheld: its index says "ask" for every key that it has not,
// whatever the fill found, because this store is not the one that knows of the
// shard's keys. In a cluster that is so for every shard of another node, so that
// a reader who came to the wrong node never takes a miss for an answer; his
// question by SEND is then told where to go.
//
// Ownership itself is none of the store's business.

// Release ends the withholding of a shard (Config.Withheld): once it is filled
// its misses are believed. A shard that is not withheld stays as it is.
// ErrShard, ErrClosed, ErrFatal.
func (s *Store) Release(shard uint16) error {
	leave, err := s.door.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if int(shard) >= len(s.shards) {
		return ErrShard
	}
	s.shards[shard].Release()
	return nil
}

// Withheld reports whether a shard is withheld. ErrShard.
func (s *Store) Withheld(shard uint16) (bool, error) {
	if int(shard) >= len(s.shards) {
		return false, ErrShard
	}
	return s.shards[shard].Withheld(), nil
}
