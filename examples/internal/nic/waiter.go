package nic

import (
	"context"

	"github.com/rdmakv/rdmakv/rdma"
)

// A Waiter waits for completions of a CQ by the ID of their work request.
// Completions arrive in the order in which work ends, which may differ from the
// order in which a program asks for them: the Waiter keeps a completion that
// comes early until it is asked for. It is for one goroutine, and for programs
// with a handful of work requests.
type Waiter struct {
	cq    rdma.CQ
	early []rdma.WC
	wcs   [16]rdma.WC
}

// NewWaiter makes the only user of cq's Poll, Arm and Wait.
func NewWaiter(cq rdma.CQ) *Waiter { return &Waiter{cq: cq} }

// Wait returns the completion with the given ID, whatever its status. Its
// error means that there is none yet: ctx ended, or the CQ died.
func (w *Waiter) Wait(ctx context.Context, id uint64) (rdma.WC, error) {
	for {
		for i, wc := range w.early {
			if wc.ID == id {
				w.early = append(w.early[:i], w.early[i+1:]...)
				return wc, nil
			}
		}
		n, err := rdma.Await(ctx, w.cq, w.wcs[:])
		if err != nil {
			return rdma.WC{}, err
		}
		w.early = append(w.early, w.wcs[:n]...)
	}
}
