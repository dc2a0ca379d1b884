package rdma

import (
	"context"
	"fmt"
)

// A CQ is a completion queue with its completion channel, by which a goroutine
// can sleep until there is a completion. All methods are safe for concurrent use.
//
// To wait without losing a completion: Poll until it returns 0, Arm, Poll once
// more, and only then Wait. Without the second Poll a completion that was added
// between Poll and Arm would raise no event, and Wait might sleep for ever. Await
// does all this for one goroutine, wait.Dispatcher for many.
type CQ interface {
	// Poll takes up to len(wcs) completions, without waiting. It fails with
	// ErrCQOverrun or ErrClosed; n is 0 then.
	Poll(wcs []WC) (n int, err error)
	// Arm asks for one event at the next completion that is added after Arm
	// (ibv_req_notify_cq). A completion already in the queue raises no event.
	Arm() error
	// Wait blocks until an event has come. It fails with ctx.Err(), ErrClosed or
	// ErrCQOverrun. An event that comes while no goroutine waits is kept for the
	// next Wait; one event ends one Wait.
	Wait(ctx context.Context) error
	// Close fails with ErrBusy while QPs use the CQ. It ends every Wait with
	// ErrClosed. Closing twice is harmless.
	Close() error
}

// Await takes up to len(wcs) completions from cq, and waits for the first of
// them. It returns n > 0 and no error, or 0 and why it did not go on waiting:
// ErrInvalid if wcs is empty, ErrCQOverrun or ErrClosed if cq is out of order,
// ctx.Err() if ctx has ended. Completions that are in the queue are returned
// also when ctx has ended before.
//
// That a work request failed is no error of Await: WC.Status says it. An error
// of Await ends no work: buffers of posted requests still belong to the fabric,
// and a later Await finds their completions.
//
// Await sleeps while there is nothing to take. It is for a goroutine that has
// cq for itself: calls side by side are safe, but each completion goes to any
// one of them. Package wait lets many goroutines share a CQ, each waiting for
// its own work. Await does not allocate.
func Await(ctx context.Context, cq CQ, wcs []WC) (n int, err error) {
	if len(wcs) == 0 {
		return 0, fmt.Errorf("%w: Await needs room for at least one completion", ErrInvalid)
	}
	for {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := cq.Arm(); err != nil {
			return 0, err
		}
		// A completion that was added between Poll and Arm raises no event.
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		// The event may be an old one, which an earlier Arm asked for and no Wait
		// has taken. Then there is nothing to take, and the loop turns once more.
		if err := cq.Wait(ctx); err != nil {
			return 0, err
		}
	}
}
