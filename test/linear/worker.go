package linear

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// A worker does one operation after the other.
type worker struct {
	w     *Workload
	id    int
	reads bool // and writes nothing
	store Store
	rng   *rand.Rand
}

func (k *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		if k.w.cfg.Ops > 0 && k.w.left.Add(-1) < 0 {
			return
		}
		o, readOnly := k.w.take(k.rng)
		before, _ := o.Size()
		call, cancel := context.WithTimeout(ctx, k.timeout())
		k.one(call, o, readOnly || k.reads)
		cancel()
		after, _ := o.Size()
		if rests := k.w.give(o); rests != nil {
			k.audit(ctx, rests)
			k.w.cfg.Done(rests.Object)
		}
		if after == before {
			// No answer: the server is away. What does not wait does not help it.
			pause(ctx, time.Duration(1+k.rng.IntN(5))*time.Millisecond)
		}
		if p := k.w.cfg.Pace; p > 0 {
			pause(ctx, time.Duration(k.rng.Int64N(int64(p))))
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (k *worker) timeout() time.Duration {
	c := &k.w.cfg
	if c.ShortEvery > 0 && k.rng.IntN(c.ShortEvery) == 0 {
		return time.Duration(k.rng.Int64N(int64(c.ShortUpTo))) + 1
	}
	return c.Timeout
}

// audit reads all of an object by itself.
func (k *worker) audit(ctx context.Context, o *inUse) {
	call, cancel := context.WithTimeout(ctx, k.w.cfg.Timeout)
	defer cancel()
	for i := range o.Keys {
		k.do(call, o, Input{Op: OpGet, Key: i, How: "item"})
	}
	if k.w.cfg.Can.Scan {
		k.scan(call, o)
	}
}

// one does an operation chosen at random, or a few that belong together.
func (k *worker) one(ctx context.Context, o *inUse, readOnly bool) {
	can := &k.w.cfg.Can
	in := Input{Key: k.rng.IntN(o.Keys)}
	n := k.rng.IntN(100)
	switch {
	case n < 40 || readOnly:
		k.read(ctx, o, in.Key)
		return
	case n < 48 && can.Batch && o.Keys > 1:
		k.batch(ctx, o)
		return
	case n < 50 && can.Scan:
		k.scan(ctx, o)
		return
	case n < 56:
		in.Op = OpDelete
	case n < 70 && can.Increment:
		in.Op, in.Delta = OpIncrement, k.rng.Int64N(1_000_000)+1
	case n < 73 && o.timed:
		in.Op = OpTouch
	default:
		in.Op, in.Val = OpPut, k.value(o)
	}
	if can.Versions && (in.Op == OpPut || in.Op == OpDelete) && k.rng.IntN(3) == 0 {
		in.If, in.IfVersion = k.cond(o, in.Key)
		if in.Op == OpDelete && in.If == CondAbsent {
			in.If = CondNone
		}
	}
	if o.timed && (in.Op == OpTouch || in.Op == OpPut && k.rng.IntN(2) == 0) {
		c := &k.w.cfg
		in.TTL = c.TTLFrom + time.Duration(k.rng.Int64N(int64(c.TTLUpTo-c.TTLFrom)+1))
	}
	k.do(ctx, o, in)
}

// read gets a key in one of the ways there are, or all keys one after the other:
// a client that saw one value of a batch must not see an older one behind it.
func (k *worker) read(ctx context.Context, o *inUse, key int) {
	switch n := k.rng.IntN(10); {
	case n == 0:
		k.do(ctx, o, Input{Op: OpPeek, Key: key})
	case n == 1:
		k.multi(ctx, o)
	case n == 2:
		k.do(ctx, o, Input{Op: OpGet, Key: key, How: "range"})
	case n < 6 && k.w.cfg.Can.Versions:
		k.do(ctx, o, Input{Op: OpGet, Key: key, How: "item"})
	default:
		for i := range o.Keys {
			k.do(ctx, o, Input{Op: OpGet, Key: (key + i) % o.Keys})
		}
	}
}

// value makes a new value for an object.
func (k *worker) value(o *inUse) Value {
	if o.number && k.rng.IntN(4) > 0 {
		return Value{Num: true, N: k.rng.Int64N(1 << 40)}
	}
	return Value{N: k.w.nextID.Add(1)}
}

// cond chooses a condition: often one that holds, as far as the client knows.
func (k *worker) cond(o *inUse, key int) (Cond, uint64) {
	if v := o.hints[key].Load(); v != 0 && k.rng.IntN(3) > 0 {
		return CondVersion, v
	}
	return CondAbsent, 0
}

func (k *worker) size() int { return k.w.cfg.Sizes[k.rng.IntN(len(k.w.cfg.Sizes))] }

func (k *worker) do(ctx context.Context, o *inUse, in Input) {
	key := o.Key(k.w.cfg.Prefix, in.Key)
	op := k.w.begin(ctx, k.id, in)
	out, err := k.store.Do(ctx, key, &op.In, k.size())
	k.w.end(ctx, o, op, out, err)
}

// batch writes some of the object's keys at once, now and then under conditions.
func (k *worker) batch(ctx context.Context, o *inUse) {
	in := Input{Op: OpBatch}
	for i := range o.Keys {
		if len(in.Parts) > 0 && k.rng.IntN(4) == 0 {
			continue
		}
		p := Part{Key: i, Delete: k.rng.IntN(6) == 0}
		if !p.Delete {
			p.Val = k.value(o)
		}
		if !o.timed && k.rng.IntN(6) == 0 {
			p.If, p.IfVersion = k.cond(o, i)
			if p.Delete && p.If == CondAbsent {
				p.If = CondNone
			}
		}
		in.Parts = append(in.Parts, p)
	}
	keys := make([][]byte, o.Keys)
	for i := range keys {
		keys[i] = o.Key(k.w.cfg.Prefix, i)
	}
	op := k.w.begin(ctx, k.id, in)
	out, err := k.store.Batch(ctx, keys, &op.In, k.size())
	k.w.end(ctx, o, op, out, err)
}

// multi gets all keys in one call, which is one read of each.
func (k *worker) multi(ctx context.Context, o *inUse) {
	keys := make([][]byte, o.Keys)
	ops := make([]*Op, o.Keys)
	for i := range keys {
		keys[i] = o.Key(k.w.cfg.Prefix, i)
		ops[i] = k.w.begin(ctx, k.id, Input{Op: OpGet, Key: i, How: "multi"})
	}
	outs, err := k.store.MultiGet(ctx, keys)
	for i, op := range ops {
		switch {
		case err != nil:
			k.w.end(ctx, o, op, Output{}, err)
		case outs[i] != nil:
			k.w.end(ctx, o, op, *outs[i], nil)
		default:
			k.w.lapsed(ctx, o, op, Output{}, ErrNothing)
		}
	}
}

// scan lists the object's keys, which is one read of each: of those that it did
// not show too.
func (k *worker) scan(ctx context.Context, o *inUse) {
	values := k.rng.IntN(2) == 0
	kind := OpPeek
	if values {
		kind = OpGet
	}
	ops := make([]*Op, o.Keys)
	for i := range ops {
		ops[i] = k.w.begin(ctx, k.id, Input{Op: kind, Key: i, How: "scan"})
	}
	found, err := k.store.Scan(ctx, o.Prefix(k.w.cfg.Prefix), values)
	var outs []Output
	if err == nil {
		outs, err = ScanOutputs(o.Object, k.w.cfg.Prefix, found)
	}
	if err != nil {
		k.w.end(ctx, o, ops[0], Output{}, err)
		return
	}
	for i, op := range ops {
		k.w.end(ctx, o, op, outs[i], nil)
	}
}

// ScanOutputs turns what a scan of an object's prefix showed into one answer for
// each of its keys. It fails if the scan is out of order, shows a key twice, or
// one that was never written.
func ScanOutputs(o *Object, prefix string, found []Found) ([]Output, error) {
	outs := make([]Output, o.Keys)
	var last []byte
	for _, f := range found {
		if last != nil && bytes.Compare(last, f.Key) >= 0 {
			return nil, fmt.Errorf("scan: key %q comes after %q", f.Key, last)
		}
		last = f.Key
		i := 0
		for i < o.Keys && !bytes.Equal(f.Key, o.Key(prefix, i)) {
			i++
		}
		if i == o.Keys {
			return nil, fmt.Errorf("scan of %q: there is key %q, which nobody wrote", o.Prefix(prefix), f.Key)
		}
		outs[i] = Output{Present: true, Val: f.Val, Version: f.Version}
	}
	return outs, nil
}
