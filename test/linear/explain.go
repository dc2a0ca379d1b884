package linear

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// explainOps is how many operations before the wrong one an explanation shows.
const explainOps = 16

// Explain finds the first answer in a history that does not fit what came before
// it, and shows the operations on its key that led there. A history is wrong for
// one answer; the rest of it is only long.
func (o *Object) Explain(slack Slack) string {
	byReturn := make([]*Op, 0, len(o.Ops))
	for _, op := range o.Ops {
		if op.Return != Infinity {
			byReturn = append(byReturn, op)
		}
	}
	slices.SortFunc(byReturn, func(a, b *Op) int { return int(a.Return - b.Return) })
	wrong := func(n int) bool {
		return o.until(byReturn[n].Return).Check(slack, 10*time.Second).Verdict == porcupine.Illegal
	}
	low, high := 0, len(byReturn)
	for low < high {
		if mid := (low + high) / 2; wrong(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low == len(byReturn) {
		return "no answer is wrong"
	}
	bad := byReturn[low]
	// What may have had a part in it: of the same key, not after it.
	var ops []*Op
	for _, op := range o.Ops {
		if op.Call <= bad.Return && (op.In.Op == OpBatch || bad.In.Op == OpBatch || op.In.Key == bad.In.Key) {
			ops = append(ops, op)
		}
	}
	slices.SortFunc(ops, func(a, b *Op) int { return int(a.Call - b.Call) })
	var b strings.Builder
	fmt.Fprintf(&b, "the first answer that does not fit is %v, called at %d; on its key:", bad, bad.Call)
	before := 0
	for _, op := range ops {
		if op.Return < bad.Call {
			before++
		}
	}
	for i, op := range ops {
		if i < before-explainOps && !op.Out.Unknown {
			continue
		}
		end := "never"
		if op.Return != Infinity {
			end = fmt.Sprint(op.Return)
		}
		fmt.Fprintf(&b, "\n    %6d to %6s, %9.3f to %9.3f ms, client %2d: %v", op.Call, end, float64(op.Begin)/1e6, float64(op.End)/1e6, op.Client, op)
	}
	return b.String()
}

// until is the object as it was at a stamp: what had not returned may still
// happen.
func (o *Object) until(stamp int64) *Object {
	part := &Object{ID: o.ID, Keys: o.Keys}
	for _, op := range o.Ops {
		if op.Call > stamp {
			continue
		}
		if op.Return > stamp {
			if !op.In.Op.Writes() {
				continue
			}
			pending := *op
			pending.Out, pending.Return = Output{Unknown: true}, Infinity
			op = &pending
		}
		part.Ops = append(part.Ops, op)
	}
	return part
}
