package residents

import (
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The sweeper is a goroutine that clears Pebble-only slots of keys that are
// gone. A delete cannot do it: the slot may stand for several keys, and nothing
// in memory says which. Left alone, each key that was deleted or expired while it
// was out of memory would be asked for by SEND ever after.
//
// A delete that leaves such a slot leaves a trace, too. The sweeper takes the
// traces of a shard, and reads the keys of that shard from the base, a few at a
// time, and then those that were newer than the base when it began; a traced slot
// that could be the slot of a key that it meets is kept. One that is left at
// the end stands for no key, and is cleared. That needs no lease:
// at the moment at which it is cleared, none of its keys exists, so whoever finds
// it empty says what was true then.
//
// Keys come and go while it reads. A write of a key that the slot could stand for
// which was in flight when the pass began, or was ordered since, keeps the slot
// for this pass: its key may be in neither of what the pass reads. A delete would not
// need that; but it leaves a trace when it is published, for the next pass.
//
// The reading is bounded by the second, and a pass is begun only where there are
// enough traces for it.

const (
	// SweepRate is how many keys are read from the base a second, deleted ones that it
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
	on    bool            // there is a pass over shard
	from  []byte          // where in the base it goes on
	newer *dirty.Iterator // behind the last of the base's: keys that were newer when it began
	based bool            // it has been through the base's
	read  int             // keys that it has read
	cost  []int           // by shard: what the last pass read
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
		read, err := sw.step(SweepStep)
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
		view, on := sh.BeginPass((sw.cost[sw.shard] + sweepWorth - 1) / sweepWorth)
		if !on {
			continue
		}
		lower, _ := disk.KindBounds(sh.ID, disk.KindData)
		sw.on, sw.from, sw.read = true, append(sw.from[:0], lower...), 0
		sw.newer, sw.based = view.Keys(nil, nil), false
		return true
	}
	return false
}

// step goes on with a pass by at most so many keys: through the keys of the base, then through those that were newer
// than it when the pass began. A key that is there all the while is among one or the other.
func (sw *Sweep) step(most int) (read int, err error) {
	if sw.based {
		return sw.stepNewer(most), nil
	}
	sh := sw.Shards[sw.shard]
	met := make([]shard.Met, 0, most)
	var text []byte
	sw.based, err = sw.Disk.KeysFrom(sw.Life.Ctx, sh.ID, &sw.from, func(key []byte, deleted bool) bool {
		if read++; !deleted {
			from := len(text)
			text = append(text, key...)
			met = append(met, shard.Met{Hash: layout.HashKey(sw.Memory.Seed, key), Key: text[from:len(text):len(text)]})
		}
		return read < most
	})
	if err != nil {
		return 0, err
	}
	sh.MeetBase(met)
	sw.swept(read, len(met), false)
	return read, nil
}

// stepNewer is step for keys that are newer than the base.
func (sw *Sweep) stepNewer(most int) (read int) {
	met := make([]layout.Hash, 0, most)
	for ; read < most && sw.newer.Next(); read++ {
		if !sw.newer.Entry().Gone {
			met = append(met, layout.HashKey(sw.Memory.Seed, sw.newer.Key()))
		}
	}
	done := read < most
	sw.Shards[sw.shard].Meet(met)
	sw.swept(read, len(met), done)
	return read
}

// swept is the end of a step that has read so many keys, and met so many of them; done:
// they were the last.
func (sw *Sweep) swept(read, met int, done bool) {
	sh := sw.Shards[sw.shard]
	sw.read += read
	sw.Memory.Counts.SweptKeys.Add(uint64(met))
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
	sw.on, sw.newer = false, nil // it keeps memory
}
