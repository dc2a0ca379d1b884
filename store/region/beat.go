package region

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/layout"
)

// ErrClosed: the table was closed.
var ErrClosed = errors.New("region table is closed")

var errPlaceSpace = errors.New("the place space is used up: restart the server to begin a new incarnation")

// The beat line of region 0 has one writer at a time, which beatMu ensures.
// Otherwise a beat that was prepared with the old view or reclaim version could
// overwrite a newer one, and a client would take a lease without the list of
// retired pages that goes with it.

// Beat rewrites the beat line with a higher counter, the server's time in
// microseconds, and the newest view and reclaim versions. The caller may beat
// only while it may serve.
func (t *Table) Beat(timeMicros uint64) layout.Beat {
	t.beatMu.Lock()
	defer t.beatMu.Unlock()
	t.beat.Counter++
	t.beat.Incarnation = t.cfg.Incarnation
	t.beat.TimeMicros = timeMicros
	layout.StoreBeat(t.root, t.beat)
	return t.beat
}

// storeViewVersion puts a version into the beat line at once.
func (t *Table) storeViewVersion(v uint64) {
	t.beatMu.Lock()
	defer t.beatMu.Unlock()
	t.beat.ViewVersion = v
	layout.StoreViewVersion(t.root, v)
}

// Retired publishes pages 4 KiB pages at p as retired: the next reclaim
// version, its entry in the ring, then the version in the beat line, at once.
// It returns the version; by then every later beat says it.
func (t *Table) Retired(p layout.Place, pages uint32) (version uint64) {
	t.beatMu.Lock()
	defer t.beatMu.Unlock()
	t.beat.ReclaimVersion++
	layout.PutRetired(t.root, t.hdr0, layout.Retired{Version: t.beat.ReclaimVersion, Place: p, Pages: pages})
	layout.StoreReclaimVersion(t.root, t.beat.ReclaimVersion)
	return t.beat.ReclaimVersion
}

// ReclaimVersion is the newest reclaim version.
func (t *Table) ReclaimVersion() uint64 {
	t.beatMu.Lock()
	defer t.beatMu.Unlock()
	return t.beat.ReclaimVersion
}

// Close frees every region. Nothing may use the table or memory from it
// afterwards. Closing again does nothing.
func (t *Table) Close() error {
	t.addMu.Lock()
	defer t.addMu.Unlock()
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	ids := make([]uint32, 0, len(t.retired))
	for id := range t.retired {
		ids = append(ids, id)
	}
	t.mu.Unlock()
	if closed {
		return nil
	}
	var faults []error
	for _, r := range t.view.Load().Regions {
		ids = append(ids, r.ID)
	}
	for _, id := range ids {
		if err := t.cfg.Memory.Free(id); err != nil {
			faults = append(faults, fmt.Errorf("region %d: %w", id, err))
		}
	}
	return errors.Join(faults...)
}
