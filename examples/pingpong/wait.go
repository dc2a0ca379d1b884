package main

import (
	"context"
	"runtime"

	"github.com/rdmakv/rdmakv/rdma"
)

// A waitFunc returns at least one completion, or an error when ctx ends or the
// CQ is dead.
type waitFunc func(ctx context.Context, cq rdma.CQ, wcs []rdma.WC) (int, error)

// waitPoll asks again and again. A completion is seen some tens of nanoseconds
// after the card has written it, for the queue is plain memory; the price is one
// core that does nothing else.
func waitPoll(ctx context.Context, cq rdma.CQ, wcs []rdma.WC) (int, error) {
	for turn := 1; ; turn++ {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		// Two courtesies, each now and then only: let other goroutines run (a
		// fabric in software needs some), and look whether it is time to stop.
		if turn%16 == 0 {
			runtime.Gosched()
		}
		if turn%1024 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// waitEvent sleeps until there is something. The order of the steps is easy to
// get wrong:
//
//	poll ── nothing ──▶ arm ──▶ poll again ── nothing ──▶ sleep ──▶ poll …
//	                             │
//	                             └─ a completion that came before the arming
//	                                raises no event: without this second look
//	                                it would lie there while we sleep
func waitEvent(ctx context.Context, cq rdma.CQ, wcs []rdma.WC) (int, error) {
	for {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		// One event, at the next completion: a CQ that is not armed is silent.
		if err := cq.Arm(); err != nil { // ibv_req_notify_cq
			return 0, err
		}
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err // the event that was asked for stays and ends one later sleep early
		}
		if err := cq.Wait(ctx); err != nil { // ibv_get_cq_event, and its acknowledgement
			return 0, err
		}
	}
}
