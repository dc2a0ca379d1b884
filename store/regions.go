package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/layout"
)

// RetireIdle takes regions of items out of the table in which nothing has stood
// for a while, and returns their ids and the first view version without them (0
// if there are none). It is to be called several times in that while, from one
// goroutine. now is any clock that does not go back.
//
// Clients may still READ there: the caller waits until AfterLease has called, and
// until no client can have a table with them, and then calls FreeRegion for each.
// Close frees those that are left.
func (s *Store) RetireIdle(now time.Time, while time.Duration) (ids []uint32, version uint64) {
	leave, err := s.enter()
	if err != nil {
		return nil, 0
	}
	defer leave()
	for _, r := range s.slabs.Idle(now, while) {
		v, err := s.table.Retire(r.ID)
		if err != nil {
			panic(fmt.Sprintf("store: %v, which the allocator had", err))
		}
		ids, version = append(ids, r.ID), v
	}
	return ids, version
}

// AfterLease calls f, once and on the goroutine of Reclaim, when no client can
// be left that believes what it READ before this call. Not after Close.
func (s *Store) AfterLease(f func()) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.reclaim.After(f)
	return nil
}

// FreeRegion deregisters and frees a region that RetireIdle has returned. After
// an error its memory stays, and is counted.
func (s *Store) FreeRegion(id uint32) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.table.FreeRetired(id)
}

// RetiredRegions returns the regions that are out of the table and wait for
// FreeRegion.
func (s *Store) RetiredRegions() []layout.Region { return s.table.RetiredRegions() }
