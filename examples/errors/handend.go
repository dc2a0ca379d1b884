package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A handEnd is one queue pair of a byHand and what belongs to it. Its memory is
// one page that the peer may read and one that it may not touch.
type handEnd struct {
	block           *mem.Block
	public, private *ibv.MR
	channel         *ibv.CompChannel
	cq              *ibv.CQ
	qp              *ibv.QP
	psn             uint32
	early           []ibv.WC
}

// sge names the first n bytes of the private page.
func (e *handEnd) sge(n int) ibv.SGE {
	return ibv.SGE{Addr: e.private.Addr, Len: uint32(n), LKey: e.private.LKey}
}

func (e *handEnd) postRecv(id uint64, n int) error {
	wr := ibv.RecvWR{ID: id, NumSGE: 1}
	wr.SGL[0] = e.sge(n)
	_, err := e.qp.PostRecv([]ibv.RecvWR{wr})
	return err
}

func (e *handEnd) post(wr ibv.SendWR, sge ibv.SGE) error {
	wr.Flags, wr.NumSGE = ibv.SendSignaled, 1
	wr.SGL[0] = sge
	_, err := e.qp.PostSend([]ibv.SendWR{wr})
	return err
}

func (e *handEnd) send(id uint64, n int) error {
	return e.post(ibv.SendWR{ID: id, Op: ibv.WRSend}, e.sge(n))
}

func (e *handEnd) read(id uint64, from target, n int) error {
	return e.post(ibv.SendWR{ID: id, Op: ibv.WRRDMARead, RemoteAddr: from.addr, RKey: from.rkey}, e.sge(n))
}

// sendForeign sends from the right address with a key that was never given out.
func (e *handEnd) sendForeign(id uint64) error {
	sge := e.sge(receiveSize)
	sge.LKey ^= 0x5a00
	return e.post(ibv.SendWR{ID: id, Op: ibv.WRSend}, sge)
}

func (e *handEnd) wait(ctx context.Context, id uint64) (rdma.Status, error) {
	var wcs [8]ibv.WC
	for armed := false; ; {
		for i, wc := range e.early {
			if wc.ID == id {
				e.early = append(e.early[:i], e.early[i+1:]...)
				return statusOf(wc.Status), nil
			}
		}
		n, err := e.cq.Poll(wcs[:])
		if err != nil {
			return 0, err
		}
		e.early = append(e.early, wcs[:n]...)
		switch {
		case n > 0:
		case !armed:
			if err := e.cq.ReqNotify(false); err != nil {
				return 0, err
			}
			armed = true
		default:
			if _, err := e.channel.Get(ctx); err != nil {
				return 0, err
			}
			armed = false
		}
	}
}

// drain throws away the completions of the connection that was.
func (e *handEnd) drain() error {
	e.early = nil
	var wcs [8]ibv.WC
	for {
		if n, err := e.cq.Poll(wcs[:]); n == 0 || err != nil {
			return err
		}
	}
}

func (e *handEnd) state() string {
	attr, err := e.qp.Query(ibv.QPMaskState)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(attr.State)
}

func (e *handEnd) abort() error {
	return e.qp.Modify(&ibv.QPAttr{State: ibv.QPSErr}, ibv.QPMaskState)
}

// vanish: a queue pair in RESET drops whatever arrives, like one that is gone.
func (e *handEnd) vanish() error {
	return e.qp.Modify(&ibv.QPAttr{State: ibv.QPSReset}, ibv.QPMaskState)
}

func (e *handEnd) memory() target {
	return target{addr: e.public.Addr, rkey: e.public.RKey, size: memorySize}
}

func (e *handEnd) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.channel != nil {
		errs = append(errs, e.channel.Close())
	}
	for _, mr := range []*ibv.MR{e.public, e.private} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if e.block != nil {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}
