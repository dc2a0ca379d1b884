package residents

import (
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The sweeper is a goroutine that clears Pebble-only slots of keys that are
// gone. A delete cannot do it: the slot may stand for several keys, and nothing
// in memory says which. Left alone, each key that was deleted or expired while it
// was out of memory would be asked for by SEND ever after.
//
// A delete that leaves such a slot leaves a trace, too. The sweeper takes the
// traces of a shard, and reads the keys of that shard from Pebble, a few at a
// time; a traced slot that could be the slot of a key that it meets is kept. One
// that is left at the end stands for no key, and is cleared. That needs no lease:
// at the moment at which it is cleared, none of its keys exists, so whoever finds
// it empty says what was true then.
//
// Keys come and go while it reads. A write of a key that the slot could stand for
// which was in flight when the pass began, or was ordered since, keeps the slot
// for this pass: a put because its key may have been behind the reader, a delete
// because Pebble shows it before it is published.
//
// The reading is bounded by the second, and a pass is begun only where there are
// enough traces for it.

const (
	// SweepRate is how many keys are read from Pebble a second, deleted ones that it
	// still has included: a few per cent of a core.
	SweepRate = 25_000
	sweepTick = 100 * time.Millisecond
	// SweepStep is how many keys are read between two looks at the shard.
	SweepStep = 256
	// sweepWorth is how many keys may be read for one slot.
	sweepWorth = 4096
)

// A Sweep is the background pass: its goroutine's alone.
type Sweep struct {
	Env
	fill *Fill // nothing is swept before it is done

	shard int
	on    bool   // there is a pass over shard
	from  []byte // where in Pebble it goes on
	read  int    // keys that it has read
	cost  []int  // by shard: what the last pass read
}

// NewSweep returns a sweeper; see Sweep.
func NewSweep(env Env, fill *Fill) *Sweep {
	return &Sweep{Env: env, fill: fill, cost: make([]int, len(env.Shards))}
}

// Run works until the store ends.
func (sw *Sweep) Run() {
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	var pause time.Time // not before, after an error
	for {
		select {
		case <-sw.Life.Stop:
			return
		case <-sw.Memory.Fence.Down:
			return
		case now := <-tick.C:
			if !sw.fill.Done() || now.Before(pause) {
				continue
			}
		}
		if err := sw.some(SweepRate * int(sweepTick) / int(time.Second)); err != nil && !sw.Life.Over() {
			sw.Memory.Fence.Report(slog.LevelError, "the keys of a shard cannot be read: slots of deleted keys stay", "shard", sw.shard, "err", err)
			pause = time.Now().Add(time.Minute)
		}
	}
}

// some reads up to about n keys.
func (sw *Sweep) some(n int) error {
	for n > 0 && !sw.Life.Over() {
		if !sw.on && !sw.begin() {
			return nil
		}
		read, err := sw.step()
		if err != nil {
			sw.end()
			return err
		}
		n -= max(read, 1)
	}
	return nil
}

// begin begins a pass over the next shard that is worth it.
func (sw *Sweep) begin() bool {
	for range sw.Shards {
		sw.shard = (sw.shard + 1) % len(sw.Shards)
		sh := sw.Shards[sw.shard]
		if !sh.BeginPass((sw.cost[sw.shard] + sweepWorth - 1) / sweepWorth) {
			continue
		}
		lower, _ := disk.KindBounds(sh.ID, disk.KindData)
		sw.on, sw.from, sw.read = true, append(sw.from[:0], lower...), 0
		return true
	}
	return false
}

// step goes on with a pass.
func (sw *Sweep) step() (read int, err error) {
	sh := sw.Shards[sw.shard]
	met := make([]layout.Hash, 0, SweepStep)
	done, err := sw.Disk.KeysFrom(sw.Life.Ctx, sh.ID, &sw.from, func(key []byte, deleted bool) bool {
		if read++; !deleted {
			met = append(met, layout.HashKey(sw.Memory.Seed, key))
		}
		return read < SweepStep
	})
	if err != nil {
		return 0, err
	}
	sw.read += read - len(met)
	sw.swept(met, done)
	return read, nil
}

// swept notes the keys that a step has met; done: they were the last.
func (sw *Sweep) swept(met []layout.Hash, done bool) {
	sh := sw.Shards[sw.shard]
	sw.read += len(met)
	sw.Memory.Counts.SweptKeys.Add(uint64(len(met)))
	sh.Meet(met)
	for done && sh.ClearDoubted(SweepStep) {
	}
	if !sh.Doubts() {
		sw.cost[sw.shard] = max(sw.read, sw.cost[sw.shard]/2)
		sw.end()
	}
}

// end ends a pass. What it did not come to is for the next.
func (sw *Sweep) end() {
	sw.Shards[sw.shard].EndPass()
	sw.on = false
}
