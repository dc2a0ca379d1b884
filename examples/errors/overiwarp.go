package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/examples/internal/nic"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// overIWARP is a pair on package rdma, over the software fabric. A queue pair
// there lives for one connection: after an error one closes it and connects a
// new one, while everything that is expensive (memory regions, above all) stays.
// Programs that use a connection manager on real cards mostly do the same.
type overIWARP struct {
	dev      rdma.Device
	pd       rdma.PD
	listener rdma.Listener
	ends     [2]*fabricEnd // client, server
}

func newOverIWARP(ctx context.Context) (w *overIWARP, err error) {
	w = &overIWARP{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dev, err = iwarp.New(iwarp.Options{}).Open(ctx, ""); err != nil {
		return w, err
	}
	if w.pd, err = w.dev.AllocPD(); err != nil {
		return w, err
	}
	if w.listener, err = w.dev.Listen(ctx, "127.0.0.1:0"); err != nil {
		return w, err
	}
	for i := range w.ends {
		if w.ends[i], err = w.newEnd(); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (w *overIWARP) newEnd() (e *fabricEnd, err error) {
	e = &fabricEnd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
			e = nil
		}
	}()
	if e.block, err = mem.Alloc(2*memorySize, mem.Options{Tag: "errors"}); err != nil {
		return e, err
	}
	if e.public, err = w.pd.RegMR(e.block.Bytes()[:memorySize], rdma.AccessRemoteRead); err != nil {
		return e, err
	}
	if e.private, err = w.pd.RegMR(e.block.Bytes()[memorySize:], rdma.AccessLocalWrite); err != nil {
		return e, err
	}
	if e.cq, err = w.dev.CreateCQ(64); err != nil {
		return e, err
	}
	return e, nil
}

func (w *overIWARP) client() end      { return w.ends[0] }
func (w *overIWARP) server() end      { return w.ends[1] }
func (w *overIWARP) retriesRNR() bool { return w.dev.Attr().Caps.Has(rdma.CapRNR) }
func (w *overIWARP) events() []string { return nil }

// settle waits until both are in ERR: the connection is a TCP connection, and if
// it ends for one it ends for the other.
func (w *overIWARP) settle(ctx context.Context) {
	for _, e := range w.ends {
		select {
		case <-e.qp.Done():
		case <-ctx.Done():
		}
	}
}

// connect replaces both queue pairs by connected ones.
func (w *overIWARP) connect(ctx context.Context, o options) (string, error) {
	for i, e := range w.ends {
		if e.qp != nil {
			// Close returns when the fabric has released every buffer; what
			// was outstanding lies in the CQ as flushed.
			if err := e.qp.Close(); err != nil {
				return "", err
			}
		}
		var access rdma.Access
		if i == 1 {
			access = o.rights
		}
		var err error
		if e.qp, err = w.pd.CreateQP(rdma.QPConfig{
			SendCQ: e.cq, RecvCQ: e.cq, Access: access,
			Cap: rdma.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSGE: 1},
		}); err != nil {
			return "", err
		}
		if err := e.drain(); err != nil {
			return "", err
		}
		e.completions = nic.NewWaiter(e.cq)
	}
	client, server := w.ends[0], w.ends[1]
	for id := range uint64(o.receives) {
		if err := server.postRecv(id+1, receiveSize); err != nil {
			return "", err
		}
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := w.listener.Accept(ctx)
		if err == nil {
			_, err = req.Accept(ctx, server.qp, rdma.ConnParams{})
		}
		accepted <- err
	}()
	_, err := client.qp.Connect(ctx, w.listener.Addr().String(), rdma.ConnParams{})
	if err := errors.Join(err, <-accepted); err != nil {
		return "", err
	}
	return "two new queue pairs; regions and completion queues are the old ones", nil
}

func (w *overIWARP) close() error {
	var errs []error
	for _, e := range w.ends {
		if e != nil {
			errs = append(errs, e.close())
		}
	}
	if w.listener != nil {
		errs = append(errs, w.listener.Close())
	}
	if w.pd != nil {
		errs = append(errs, w.pd.Close())
	}
	if w.dev != nil {
		errs = append(errs, w.dev.Close())
	}
	return errors.Join(errs...)
}

// A fabricEnd is one queue pair of an overIWARP and what belongs to it.
type fabricEnd struct {
	block           *mem.Block
	public, private rdma.MR
	cq              rdma.CQ
	qp              rdma.QP
	completions     *nic.Waiter
}

func (e *fabricEnd) sgl(n int) []rdma.SGE { return []rdma.SGE{{MR: e.private, Len: uint32(n)}} }

func (e *fabricEnd) postRecv(id uint64, n int) error {
	_, err := e.qp.PostRecv([]rdma.RecvWR{{ID: id, SGL: e.sgl(n)}})
	return err
}

func (e *fabricEnd) post(wr rdma.SendWR) error {
	wr.Flags = rdma.SendSignaled
	_, err := e.qp.PostSend([]rdma.SendWR{wr})
	return err
}

func (e *fabricEnd) send(id uint64, n int) error {
	return e.post(rdma.SendWR{ID: id, Op: rdma.OpSend, SGL: e.sgl(n)})
}

func (e *fabricEnd) read(id uint64, from target, n int) error {
	return e.post(rdma.SendWR{ID: id, Op: rdma.OpRDMARead, SGL: e.sgl(n), Remote: rdma.RemoteAddr{Addr: from.addr, RKey: from.rkey}})
}

// sendForeign: package rdma names local memory by region and offset, so the
// nearest thing to foreign memory is what lies behind the region's end.
func (e *fabricEnd) sendForeign(id uint64) error {
	return e.post(rdma.SendWR{ID: id, Op: rdma.OpSend, SGL: []rdma.SGE{{MR: e.private, Off: memorySize, Len: receiveSize}}})
}

func (e *fabricEnd) wait(ctx context.Context, id uint64) (rdma.Status, error) {
	wc, err := e.completions.Wait(ctx, id)
	return wc.Status, err
}

func (e *fabricEnd) drain() error {
	var wcs [8]rdma.WC
	for {
		if n, err := e.cq.Poll(wcs[:]); n == 0 || err != nil {
			return err
		}
	}
}

func (e *fabricEnd) state() string {
	if err := e.qp.Err(); err != nil {
		return fmt.Sprintf("%v: %v", e.qp.State(), err)
	}
	return e.qp.State().String()
}

func (e *fabricEnd) abort() error  { return e.qp.Disconnect() }
func (e *fabricEnd) vanish() error { return e.qp.Close() }

func (e *fabricEnd) memory() target {
	return target{addr: e.public.Addr(), rkey: e.public.RKey(), size: memorySize}
}

func (e *fabricEnd) close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	for _, mr := range []rdma.MR{e.public, e.private} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if e.block != nil {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}
