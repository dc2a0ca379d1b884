package linear

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// An Object is one to MaxKeys keys of one shard, and what was done to them.
type Object struct {
	ID   int   `json:"id"`
	Keys int   `json:"keys"`
	Ops  []*Op `json:"ops"`

	mu      sync.Mutex
	unknown int // operations whose outcome is not known
}

// Key is a key of the object. The braces make its keys share a shard.
func (o *Object) Key(prefix string, i int) []byte {
	return fmt.Appendf(nil, "%s{%d}%c", prefix, o.ID, 'a'+i)
}

// Prefix is what all keys of the object begin with, and no others.
func (o *Object) Prefix(prefix string) []byte { return fmt.Appendf(nil, "%s{%d}", prefix, o.ID) }

// Add records an operation. It is safe for concurrent use.
func (o *Object) Add(op *Op) {
	if op.Out.Unknown {
		op.Return = Infinity
	}
	o.mu.Lock()
	o.Ops = append(o.Ops, op)
	if op.Out.Unknown {
		o.unknown++
	}
	o.mu.Unlock()
}

// Size is how many operations were recorded, and how many of them have an
// unknown outcome.
func (o *Object) Size() (ops, unknown int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.Ops), o.unknown
}

// Slack is how far the time of the server may be from ours where deadlines are
// concerned.
type Slack struct {
	Rate   float64       `json:"rate"`   // of a clock: 0.01 is 1 %
	Early  time.Duration `json:"early"`  // how much too early a deadline may come: a restart can put the clock ahead
	Late   time.Duration `json:"late"`   // and how much too late
	Forget bool          `json:"forget"` // a deadline may come whenever it likes
	// Step is from one version to the next of the parts of a batch; 0: 1. In a cluster with replicas it is ReplicaStep.
	Step uint64 `json:"step,omitempty"`
}

// ReplicaStep is what lies between the versions of a batch's parts in a cluster with replicas: behind the number of a write its shard stands,
// in 12 bits.
const ReplicaStep = 1 << 12

// A Result is the verdict on one object.
type Result struct {
	Verdict porcupine.CheckResult
	Took    time.Duration
}

// operations is the object's history as the checker takes it: with an end to
// what is at infinity.
func (o *Object) operations() []porcupine.Operation {
	ops := make([]porcupine.Operation, 0, len(o.Ops))
	last := int64(0)
	add := func(op *Op) {
		ops = append(ops, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: op.Return})
	}
	for _, op := range o.Ops {
		add(op)
		last = max(last, op.Call)
		if op.Return != Infinity {
			last = max(last, op.Return)
		}
	}
	o.bound(ops)
	for i := range ops {
		ops[i].Return = min(ops[i].Return, last+1)
	}
	return ops
}

// bound gives writes with an unknown outcome an end where there is a witness: a
// record is written once, so that a read that shows it came after its write.
func (o *Object) bound(ops []porcupine.Operation) {
	type place struct {
		key int
		val Value
	}
	seen := map[place]int64{}
	for _, op := range o.Ops {
		if op.In.Op == OpGet && op.Out.Present && !op.Out.Val.Num {
			p := place{op.In.Key, op.Out.Val}
			if at, ok := seen[p]; !ok || op.Return < at {
				seen[p] = op.Return
			}
		}
	}
	for i, op := range o.Ops {
		if !op.Out.Unknown {
			continue
		}
		for _, p := range op.written() {
			if at, ok := seen[place{p.Key, p.Val}]; ok && !p.Val.Num {
				ops[i].Return = max(ops[i].Call, min(ops[i].Return, at))
			}
		}
	}
}

// written lists the values that a put or a batch writes.
func (o *Op) written() []Part {
	switch o.In.Op {
	case OpPut:
		return []Part{{Key: o.In.Key, Val: o.In.Val}}
	case OpBatch:
		return o.In.Parts
	}
	return nil
}

// Check decides whether the object's history is linearizable, in limit; more is
// the verdict Unknown, which is a failure. Nothing may be added meanwhile.
func (o *Object) Check(slack Slack, limit time.Duration) Result {
	start := time.Now()
	v := porcupine.CheckOperationsTimeout(newModel(slack), o.operations(), limit)
	return Result{Verdict: v, Took: time.Since(start)}
}
