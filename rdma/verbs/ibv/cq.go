package ibv

import (
	"cmp"
	"context"
	"syscall"
	"time"
)

// A CompChannel is a completion channel, struct ibv_comp_channel: where CQs
// that were armed say that they have something.
type CompChannel struct {
	object
	ctx    *Context
	notify *notifier
}

// CreateCompChannel is ibv_create_comp_channel(3).
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	h, fd, errno := sysCreateChannel(c.h)
	if errno != 0 {
		return nil, callError("ibv_create_comp_channel", errno)
	}
	n, err := newNotifier(fd, "completion channel of "+c.info.Name)
	if err != nil {
		sysDestroyChannel(h)
		return nil, err
	}
	c.kids.add("completion channel")
	return &CompChannel{object: object{key: newKey(), h: h}, ctx: c, notify: n}, nil
}

// Get waits for the next event (ibv_get_cq_event(3)) in Go's netpoller,
// acknowledges it and returns its CQ. The CQ is disarmed then: call ReqNotify,
// then Poll until it is empty, then Get again. The poll after arming finds a
// completion that came between. Get ends with ctx's error, or with ErrClosed.
// Events of CQs that were closed meanwhile are dropped.
func (ch *CompChannel) Get(ctx context.Context) (*CQ, error) {
	var cq *CQ
	var failed error
	err := ch.notify.wait(ctx, func() bool {
		if failed = ch.use(); failed != nil {
			return true
		}
		defer ch.mu.RUnlock()
		for {
			key, errno := sysGetCQEvent(ch.h)
			if again(errno) {
				return false
			}
			if failed = callError("ibv_get_cq_event", errno); failed != nil {
				return true
			}
			if cq = liveCQs.get(key); cq != nil {
				return true
			}
		}
	})
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	return cq, nil
}

// Close is ibv_destroy_comp_channel(3): it ends Get. It fails with EBUSY while
// a CQ of the channel is open.
func (ch *CompChannel) Close() error {
	done, err := ch.destroy("ibv_destroy_comp_channel", sysDestroyChannel)
	if done {
		ch.notify.close()
		ch.ctx.kids.done("completion channel")
	}
	return err
}

// A CQ is a completion queue, struct ibv_cq.
type CQ struct {
	object
	ctx   *Context
	ch    *CompChannel
	depth int
	yield bool
}

// CreateCQ is ibv_create_cq(3): a queue for at least depth completions. The
// program that posts must keep count: a CQ that overflows is lost. With a nil ch
// it can only be polled. Its events interrupt by completion vector 0.
func (c *Context) CreateCQ(depth int, ch *CompChannel) (*CQ, error) {
	return c.CreateCQOn(depth, ch, 0)
}

// CompVectors is how many completion vectors the device has (struct ibv_context,
// num_comp_vectors): interrupts, which the system spreads over processors. At
// least 1.
func (c *Context) CompVectors() int {
	if c.use() != nil {
		return 1
	}
	defer c.mu.RUnlock()
	return max(1, sysCompVectors(c.h))
}

// CreateCQOn is CreateCQ whose events interrupt by a completion vector, from 0 to
// CompVectors()-1. If all CQs of a machine take one vector, one processor serves
// all their interrupts.
func (c *Context) CreateCQOn(depth int, ch *CompChannel, vector int) (*CQ, error) {
	objs := []*object{&c.object}
	if ch != nil {
		objs = append(objs, &ch.object)
	}
	release, err := useAll(objs...)
	if err != nil {
		return nil, err
	}
	defer release()
	cq := &CQ{object: object{key: newKey()}, ctx: c, ch: ch}
	var chh handle
	if ch != nil {
		chh = ch.h
	}
	h, depth, errno := sysCreateCQ(c.h, depth, cq.key, chh, vector)
	if errno != 0 {
		return nil, callError("ibv_create_cq", errno)
	}
	cq.h, cq.depth = h, depth
	c.kids.add("CQ")
	if ch != nil {
		ch.kids.add("CQ")
	}
	liveCQs.put(cq.key, cq)
	return cq, nil
}

// Yield has Spin and PostSendSpin call sched_yield(2) between looks: for a device
// whose work is done by a thread of this machine's kernel, which may be waiting
// for the very processor that spins. Call it before the queue is used.
func (q *CQ) Yield() { q.yield = true }

// Depth is how many completions fit; at least what CreateCQ was asked for.
func (q *CQ) Depth() int { return q.depth }

// Poll is ibv_poll_cq(3): it moves up to len(wcs) completions to wcs and
// returns their number, which is 0 if there are none. It does not wait, makes
// one call into C, and allocates nothing.
func (q *CQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	if err := q.use(); err != nil {
		return 0, err
	}
	n, errno := sysPollCQ(q.h, wcs)
	q.mu.RUnlock()
	return n, pollError(errno)
}

// MaxSpin bounds Spin: a goroutine in C holds its thread, and Close waits.
const MaxSpin = 100 * time.Microsecond

// Spin is Poll that keeps trying for up to d, at most MaxSpin, inside one call
// into C.
func (q *CQ) Spin(wcs []WC, d time.Duration) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	if err := q.use(); err != nil {
		return 0, err
	}
	n, errno := sysSpinCQ(q.h, wcs, bounded(d), q.yield)
	q.mu.RUnlock()
	return n, pollError(errno)
}

func bounded(d time.Duration) time.Duration { return max(0, min(d, MaxSpin)) }

func pollError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return callError("ibv_poll_cq", errno)
}

// ReqNotify is ibv_req_notify_cq(3): it arms the queue, so that the next
// completion (with solicitedOnly: the next of a solicited receive or of a
// failure) puts one event on its channel. Completions that are there already
// give none: poll after arming.
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	if err := q.use(); err != nil {
		return err
	}
	defer q.mu.RUnlock()
	return callError("ibv_req_notify_cq", sysReqNotify(q.h, solicitedOnly))
}

// Close is ibv_destroy_cq(3). It fails with EBUSY while a QP uses the queue.
func (q *CQ) Close() error {
	done, err := q.destroy("ibv_destroy_cq", sysDestroyCQ)
	if done {
		liveCQs.drop(q.key)
		q.ctx.kids.done("CQ")
		if q.ch != nil {
			q.ch.kids.done("CQ")
		}
	}
	return err
}
