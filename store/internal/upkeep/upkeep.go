// Package upkeep does what is due by the clock: it removes keys whose time is over
// (Expirer, and CacheExpirer where no disk lists them) and results of requests that nobody
// can ask for any more (Forgetter), and it leaves heartbeats, watches the disk's free space
// and begins new epochs (Keeper).
//
// What it changes it changes by writes: they pass the gate and get their place in the order
// like the writes of callers, so that a condition is judged on them, and a crash takes the
// newest of all first. Nothing here touches an item in memory.
//
// Each type has one goroutine, its Run, which ends with the Life of its Env.
package upkeep

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/admit"
	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/flight"
	"github.com/rdmakv/rdmakv/store/internal/pipeline"
	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/log"
)

// An Env is what upkeep works on.
type Env struct {
	Life   *base.Life
	Memory *shard.Memory
	Shards []*shard.Shard // by number
	Disk   *disk.Disk
	Gate   *admit.Gate
	// Order gives a write that was admitted its place; see pipeline.Orderer.Order.
	Order func(sh *shard.Shard, f *flight.Flight, w pipeline.Wait) error
	// Orders says whether writes of a shard are ordered here: where the shard has replicas, one of them does what is due.
	// nil: all are.
	Orders func(shard uint16) bool
	// Patience is how long writes of groups of replicas are waited for. Default 2 s.
	Patience time.Duration
}

// mine says whether what is due in a shard is to be done here.
func (e *Env) mine(shard uint16) bool { return e.Orders == nil || e.Orders(shard) }

// newWrite returns a write of the store's own, of which nobody asks for the result.
func newWrite(op base.Op) *flight.Flight {
	w := &struct {
		op     base.Op
		result base.Result
		flight flight.Flight
	}{op: op}
	w.flight.Op, w.flight.Result = &w.op, &w.result
	return &w.flight
}

// run orders writes and waits until all that were ordered are published, or the store
// is fenced. They pass the same gate as others; when that is closed to them the rest is
// left out. One that fails does not keep the others from being tried.
func (e *Env) run(writes []*flight.Flight) error {
	_, err := e.runSome(writes)
	return err
}

// runSome is run, and returns with its error those that were not ordered, or not done: where the shard has replicas, another one may
// lead by now, or there may be no majority. For those it waits up to Patience, because what is due in other shards must not wait
// for them; a write that comes late is the order's still, and only its Op and Due may be looked at.
func (e *Env) runSome(writes []*flight.Flight) (left []*flight.Flight, err error) {
	done := make(chan *flight.Flight, len(writes))
	under, own := make(map[*flight.Flight]bool, len(writes)), 0 // whether in a group of replicas; own are not
	for i, f := range writes {
		f.Done = func(f *flight.Flight) { done <- f }
		f.Charge = int64(len(f.Op.Key) + len(f.Forget)*base.SlotKeyLen)
		room, full := e.Gate.TryEnter(f.Charge, 1, log.Deletes)
		if full != nil {
			left, err = append(left, writes[i:]...), errors.Join(err, full)
			break
		}
		if fault := e.order(e.Shards[f.Op.Shard], f, room, pipeline.Wait{Disk: true, Memory: true}); fault != nil {
			left, err = append(left, f), errors.Join(err, fault)
			continue
		}
		if under[f] = e.Shards[f.Op.Shard].Agreed.Load(); !under[f] {
			own++
		}
	}
	over := time.NewTimer(cmp.Or(e.Patience, defaultPatience))
	defer over.Stop()
	for late := false; own > 0 || len(under) > 0 && !late; {
		select {
		case f := <-done:
			if !under[f] {
				own--
			}
			delete(under, f)
			if f.Result.Err != nil {
				left, err = append(left, f), errors.Join(err, f.Result.Err)
			}
		case <-over.C:
			late = true
		case <-e.Life.Fence.Down:
			return writes, e.Life.Fence.Failed()
		}
	}
	if len(under) > 0 {
		left, err = slices.AppendSeq(left, maps.Keys(under)), errors.Join(err, errLate)
	}
	return left, err
}

// errLate: to try again is right, because what a group has not done may never be done.
var errLate = fmt.Errorf("%w: a group of replicas does not get on with what is due", base.ErrOverloaded)

// defaultPatience is how long writes of groups of replicas are waited for.
const defaultPatience = 2 * time.Second
