package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A flow keeps Depth messages on their way. Completions come in order, so one
// vouches for all messages before it.
type flow struct {
	*client
	base      uint64 // messages before this flow
	limit     uint64 // messages of this flow; 0: until stop
	posted    uint64
	signaled  uint64 // the last one that will complete, posted ≥ signaled
	completed uint64
	stopped   bool
}

// bandwidth measures many messages at a time.
func (c *client) bandwidth(ctx context.Context, res *Result) error {
	if c.Warmup > 0 {
		f := &flow{client: c, limit: c.Warmup}
		if err := f.run(ctx, nil); err != nil {
			return fmt.Errorf("%s, warm-up: %w", c.Name(), err)
		}
	}
	f := &flow{client: c, base: c.sent, limit: c.Iterations}
	if c.Duration > 0 {
		f.limit = 0
	}
	begin := time.Now()
	m := newMeter(c.Params, begin)
	err := f.run(ctx, m)
	end := time.Now()
	if err != nil {
		return fmt.Errorf("%s after %d messages: %w", c.Name(), f.completed, err)
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	if c.Op != Read && !c.attr.Caps.Has(rdma.CapSendDelivers) {
		end = time.Now()
		m.best = 0 // completions came before the data arrived: no peak
	}
	res.Iterations, res.Seconds = f.completed, end.Sub(begin).Seconds()
	res.Bandwidth = m.flow(f.completed, end.Sub(begin))
	return nil
}

// run posts and waits until all messages of the flow have completed.
func (f *flow) run(ctx context.Context, m *meter) error {
	for {
		if err := f.refill(); err != nil {
			return err
		}
		if f.over() {
			return nil
		}
		wc, err := f.next(ctx)
		if err != nil {
			return err
		}
		if err := f.take(wc); err != nil {
			return err
		}
		// Completions that were polled with it are looked at before more is
		// posted.
		for f.head < f.tail {
			if wc, err = f.next(ctx); err != nil {
				return err
			}
			if err := f.take(wc); err != nil {
				return err
			}
		}
		if m == nil {
			continue
		}
		m.see(f.completed)
		f.count(f.completed)
		if f.limit == 0 && !f.stopped {
			f.stopped = time.Since(m.start) >= f.Duration
		}
	}
}

// over reports whether everything that was to be sent has completed.
func (f *flow) over() bool {
	return f.completed == f.posted && (f.stopped || f.limit > 0 && f.posted == f.limit)
}

// take accounts for one completion.
func (f *flow) take(wc rdma.WC) error {
	if wc.ID&idKind == idData {
		f.completed = wc.ID&^idKind - f.base
		return nil
	}
	msg := f.received(wc)
	if err := f.addCredit(msg); err != nil {
		return err
	}
	return f.repost(wc)
}

// refill posts whole batches while there is room, as perftest does.
func (f *flow) refill() error {
	for {
		n := uint64(f.Batch)
		switch {
		case f.stopped && f.posted > f.signaled:
			n = 1 // a last one, signaled, to vouch for those before it
		case f.stopped:
			return nil
		case f.limit > 0:
			n = min(n, f.limit-f.posted)
		}
		if room := uint64(f.Depth) - (f.posted - f.completed); n > room {
			if f.signaled > f.completed {
				return nil // a completion will come, and make more room
			}
			n = room
		}
		if f.Op == Send {
			n = min(n, f.credit-f.sent)
		}
		if n == 0 {
			return nil
		}
		for k := range n {
			i := f.posted + k
			var flags rdma.SendFlags
			last := k == n-1 && (f.stopped || i+1 == f.limit)
			if last || (i+1)%uint64(f.SignalEvery) == 0 {
				flags = rdma.SendSignaled
				f.signaled = i + 1
			}
			f.message(int(k), f.base+i, flags)
		}
		if err := f.post(f.wrs[:n]); err != nil {
			return err
		}
		f.posted += n
		f.sent += n
	}
}
