package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// IDs of work requests: they come back in completions and tell which is which.
const (
	idSend = iota + 1
	idRecv
)

// An end is one side. Its memory has room for one message in each direction:
//
//	 0          maxSize      2*maxSize
//	┌───────────┬───────────┐
//	│ received  │ to send   │    one MR, local write only: the peer may not touch it,
//	└───────────┴───────────┘    it sends messages and our receives say where they go
type end struct {
	wait  waitFunc
	pd    rdma.PD
	cq    rdma.CQ
	qp    rdma.QP
	mr    rdma.MR
	block *mem.Block

	sent, received int // completions seen and not yet asked for
	recvLen        int // bytes of the message received
}

func newEnd(dev rdma.Device, wait waitFunc) (e *end, err error) {
	e = &end{wait: wait}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	// There is one CQ for both directions, so a single wait sees everything.
	// One send and one receive are under way at most; 16 is plenty.
	if e.cq, err = dev.CreateCQ(16); err != nil {
		return e, err
	}
	if e.qp, err = e.pd.CreateQP(rdma.QPConfig{
		SendCQ: e.cq, RecvCQ: e.cq, Cap: rdma.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSGE: 1},
	}); err != nil {
		return e, err
	}
	if e.block, err = mem.Alloc(2*maxSize, mem.Options{Tag: "pingpong"}); err != nil {
		return e, err
	}
	if e.mr, err = e.pd.RegMR(e.block.Bytes(), rdma.AccessLocalWrite); err != nil {
		return e, err
	}
	return e, e.postRecv()
}

// close takes everything down, children before parents.
func (e *end) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.mr != nil {
		errs = append(errs, e.mr.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	if e.block != nil {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}

// postRecv lends the receive buffer to the card.
func (e *end) postRecv() error {
	_, err := e.qp.PostRecv([]rdma.RecvWR{{ID: idRecv, SGL: []rdma.SGE{{MR: e.mr, Len: maxSize}}}})
	return err
}

// send posts a message and waits until it has been sent.
func (e *end) send(ctx context.Context, timeout time.Duration, size int) error {
	_, err := e.qp.PostSend([]rdma.SendWR{{
		ID: idSend, Op: rdma.OpSend,
		// Without this flag a SEND that succeeds gives no completion: fast
		// programs ask for one completion in so many.
		Flags: rdma.SendSignaled,
		SGL:   []rdma.SGE{{MR: e.mr, Off: maxSize, Len: uint32(size)}},
	}})
	if err != nil {
		return err
	}
	if err := e.until(ctx, timeout, &e.sent); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// recv waits for a message, posts the next receive, and returns the length.
// The next receive stands before we answer, and the peer sends no more before
// we have answered: so no message ever meets an empty receive queue.
func (e *end) recv(ctx context.Context, timeout time.Duration) (int, error) {
	if err := e.until(ctx, timeout, &e.received); err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	return e.recvLen, e.postRecv()
}

// until waits until *count is not zero and takes one from it. The answer to a
// SEND may well complete before the SEND itself does, hence the counting.
func (e *end) until(ctx context.Context, timeout time.Duration, count *int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wcs [4]rdma.WC
	for *count == 0 {
		n, err := e.wait(ctx, e.cq, wcs[:])
		if err != nil {
			return err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != rdma.StatusSuccess {
				return errors.Join(wc.Status.Err(), e.qp.Err())
			}
			switch wc.ID {
			case idSend:
				e.sent++
			case idRecv:
				e.received++
				e.recvLen = int(wc.ByteLen) // at most what the receive had room for
			}
		}
	}
	*count--
	return nil
}

// report prints the spread: a mean would hide it.
func report(out io.Writer, took []time.Duration, size int) {
	slices.Sort(took)
	at := func(p float64) time.Duration { return took[int(p*float64(len(took)-1))] }
	fmt.Fprintf(out, "%d rounds of %d bytes: min %v, p50 %v, p99 %v, max %v (there and back)\n",
		len(took), size, at(0), at(0.5), at(0.99), at(1))
}
