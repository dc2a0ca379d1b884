package journal

import (
	"sync"

	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/log"
)

// Hold keeps in the log what the base does not have, until release is called. While a write
// of a shard is dirty, and its lock is held, Hold does not fail.
func (j *Journal) Hold() (release func(), err error) { return j.keeper.Hold() }

// ReadAt reads the record at a position that is held.
func (j *Journal) ReadAt(at log.Position) (log.Record, error) { return j.log.ReadAt(at) }

// Moment takes all that is published now: first what the base has, then what is newer. Two
// locks make them one moment. No frame is published in between, so all that is published is
// in the snapshot or in a view; without it, a batch could be half there. Nothing leaves a set
// in between (leaving is held by whoever takes it out); without it, a key that the snapshot
// does not have yet could be missing from its view, because the base had it meanwhile. If
// the base gets a range in between, its keys are in the views still, and the views count.
//
// Lock order: publishing, then leaving, then those of the shards.
func (j *Journal) Moment(d *disk.Disk, shards []*shard.Shard, leaving *sync.Mutex) (newest.Moment, error) {
	j.publishing.Lock()
	defer j.publishing.Unlock()
	leaving.Lock()
	defer leaving.Unlock()
	// Before the views are taken: what they have is behind the base's place.
	release, err := j.Hold()
	if err != nil {
		return newest.Moment{}, err
	}
	m := newest.Moment{Base: d.Snapshot(), Views: make([]dirty.View, len(shards)), Release: release}
	for i, sh := range shards {
		sh.Mu.Lock()
		m.Views[i] = sh.Dirty.View()
		sh.Mu.Unlock()
	}
	return m, nil
}
