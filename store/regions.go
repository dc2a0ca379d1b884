package store

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// Regions is the registered memory of a store, as those see it who hand it to readers:
// which regions there are, and the beat in them by which readers know how long they may
// believe what they read. All methods are safe for concurrent use but RetireIdle and those
// of the beat.
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

// Beat is WriteBeat and then Reclaim: for who has one goroutine for both.
func (r *Regions) Beat(now time.Time) {
	r.WriteBeat(now)
	r.Reclaim(now)
}

// WriteBeat rewrites the beat of region 0, by which clients renew their leases.
// The server calls it every Config.BeatInterval, from one goroutine, for as
// long as it may serve; a store that is fenced or closed does not beat. It
// waits for nothing: no disk, no device, no lock that is held over either. It
// shows the server's time (Now), read behind the last beat; the argument is
// not looked at.
func (r *Regions) WriteBeat(time.Time) {
	leave, err := r.door.Enter()
	if err != nil {
		return
	}
	defer leave()
	r.mem.Table.Beat(r.mem.Clock.Now())
}

// Reclaim frees what has waited for a lease. It is to be called about every
// Config.BeatInterval from one goroutine, which may wait for locks of the
// store. now must carry a monotonic reading taken after the last call returned.
func (r *Regions) Reclaim(now time.Time) {
	leave, err := r.door.Enter()
	if err != nil {
		return
	}
	defer leave()
	r.mem.Reclaim.Tick(now)
}
