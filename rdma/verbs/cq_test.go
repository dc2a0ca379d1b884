package verbs

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// softCQ is a CQ with nothing but its queue in software.
func softCQ() *cq {
	c := &cq{dev: deviceless(Options{}), qps: make(map[*qp]int)}
	c.wakeup, c.wake = context.WithCancel(context.Background())
	return c
}

// What was taken from the device comes out in order, whatever the sizes of
// polls and of what is added between them.
func TestSoftQueue(t *testing.T) {
	c := softCQ()
	defer c.wake()
	next, want := uint64(0), []uint64(nil)
	var got []uint64
	var wcs [5]rdma.WC
	for round := range 200 {
		var batch []rdma.WC
		for range 1 + round%7 {
			next++
			batch = append(batch, rdma.WC{ID: next})
			want = append(want, next)
		}
		c.push(batch...)
		n, err := c.Poll(wcs[:1+round%5])
		if err != nil || n == 0 {
			t.Fatalf("round %d: %d, %v", round, n, err)
		}
		for _, wc := range wcs[:n] {
			got = append(got, wc.ID)
		}
		if cap(c.soft) > 4*int(next) {
			t.Fatalf("%d places for %d completions", cap(c.soft), len(c.soft)-c.head)
		}
	}
	for len(got) < len(want) {
		n, err := c.Poll(wcs[:])
		if err != nil || n == 0 {
			t.Fatalf("%d of %d: %v", len(got), len(want), err)
		}
		for _, wc := range wcs[:n] {
			got = append(got, wc.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Error("out of order")
	}
	if len(c.soft) != 0 || c.head != 0 {
		t.Errorf("empty, yet %d entries from %d", len(c.soft), c.head)
	}
}

// An event of software is raised once for an Arm and kept for a later Wait, and
// a CQ that dies wakes its waiters.
func TestSoftEvents(t *testing.T) {
	c := softCQ()
	defer c.wake()
	c.push(rdma.WC{ID: 1})
	if c.events != 0 {
		t.Error("an event nobody asked for")
	}
	c.armed = true
	c.push(rdma.WC{ID: 2})
	c.push(rdma.WC{ID: 3})
	if c.events != 1 || c.armed {
		t.Errorf("%d events, armed %v", c.events, c.armed)
	}
	if err := c.Wait(t.Context()); err != nil || c.events != 0 {
		t.Errorf("Wait: %v", err)
	}
	c.die(rdma.ErrCQOverrun)
	c.die(rdma.ErrClosed) // the first cause counts
	if err := c.Wait(t.Context()); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Wait on a dead CQ: %v", err)
	}
	if _, err := c.Poll(make([]rdma.WC, 1)); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Poll on a dead CQ: %v", err)
	}
	if err := c.Arm(); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("Arm on a dead CQ: %v", err)
	}
	if err := c.attach(nil); !errors.Is(err, rdma.ErrCQOverrun) {
		t.Errorf("a QP on a dead CQ: %v", err)
	}
	if err := c.Wait(canceled(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a context that has ended: %v", err)
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
