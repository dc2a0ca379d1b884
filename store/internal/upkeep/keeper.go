package upkeep

import (
	"math"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	heartbeatEvery = time.Second
	diskEvery      = time.Second
)

// A Keeper does what the disk is due: it syncs under the policy Interval, leaves a
// heartbeat in the log, watches the free space, notes how many keys there are, and begins
// a new epoch long before one is used up. It orders no write.
type Keeper struct {
	life  *base.Life
	disk  *disk.Disk
	pipe  *pipeline.Pipeline
	every time.Duration   // a sync or heartbeat
	keys  func() []uint64 // in memory, by shard
}

// NewKeeper returns a keeper. interval is the time between two syncs under the policy
// Interval, else 0. keys counts the keys of each shard.
func NewKeeper(life *base.Life, d *disk.Disk, pipe *pipeline.Pipeline, interval time.Duration, keys func() []uint64) *Keeper {
	k := &Keeper{life: life, disk: d, pipe: pipe, every: heartbeatEvery, keys: keys}
	if interval > 0 {
		k.every = interval
	}
	return k
}

// Run works until the store ends.
func (k *Keeper) Run() {
	beat, look := time.NewTicker(k.every), time.NewTicker(diskEvery)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case <-k.life.Stop:
			return
		case <-k.life.Fence.Down:
			return
		case <-beat.C:
			k.disk.Heartbeat()
		case <-look.C:
			k.disk.LookSpace()
			k.ExtendEpoch()
			k.disk.NoteKeys(k.keys())
		}
	}
}

// ExtendEpoch makes the next epoch durable when half of this one's sequence
// numbers are gone, so that the numbers can run on into it.
func (k *Keeper) ExtendEpoch() {
	next, limit := k.pipe.Versions()
	last := (limit - 1).Epoch()
	if limit-next > 1<<39 || last == math.MaxUint16 {
		return
	}
	if k.disk.RaiseEpoch(last + 1) {
		k.pipe.Extend(min(limit+1<<40, layout.MaxVersion))
	}
}
