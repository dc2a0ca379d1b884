package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

const messageSize = 64 // bytes

// IDs of work requests.
const (
	idSend = iota + 1
	idRecv
)

// An endpoint is what either side makes once it knows its device: one page of
// memory, the first half to receive into, the second to send from.
type endpoint struct {
	device  *ibv.Context
	pd      *ibv.PD
	block   *mem.Block
	mr      *ibv.MR
	channel *ibv.CompChannel
	cq      *ibv.CQ
	qp      *ibv.QP
	iwarp   bool
	early   []ibv.WC
}

func newEndpoint(device string, out io.Writer) (e *endpoint, err error) {
	e = &endpoint{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.device, err = ibv.Open(device); err != nil {
		return e, err
	}
	e.iwarp = e.device.Info().Transport == ibv.TransportIWARP
	if e.pd, err = e.device.AllocPD(); err != nil {
		return e, err
	}
	if e.block, err = mem.Alloc(2*messageSize, mem.Options{Tag: "cm"}); err != nil {
		return e, err
	}
	if e.mr, err = e.pd.RegMR(address(e.block.Bytes()), e.block.Size(), ibv.AccessLocalWrite); err != nil {
		return e, err
	}
	if e.channel, err = e.device.CreateCompChannel(); err != nil {
		return e, err
	}
	if e.cq, err = e.device.CreateCQ(8, e.channel); err != nil {
		return e, err
	}
	// rdma_create_qp would make a queue pair that librdmacm moves through its
	// states by itself, and would give the peer the rights to read and write.
	// Ours is a plain one, and both are up to us.
	e.qp, _, err = e.pd.CreateQP(ibv.QPInit{
		SendCQ: e.cq, RecvCQ: e.cq,
		Cap: ibv.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	fmt.Fprintf(out, "        device %s, %v\n", device, e.device.Info().Transport)
	return e, err
}

// toInit takes the queue pair to INIT and posts the receive. The connection
// manager knows the attributes (rdma_init_qp_attr), but it would let the peer
// read and write our memory, which this example does not need.
func (e *endpoint) toInit(id *ibv.CMID) error {
	attr, mask, err := id.InitQPAttr(ibv.QPSInit)
	if err != nil {
		return err
	}
	attr.AccessFlags = 0
	if err := e.qp.Modify(&attr, mask|ibv.QPMaskAccessFlags); err != nil {
		return err
	}
	wr := ibv.RecvWR{ID: idRecv, NumSGE: 1}
	wr.SGL[0] = ibv.SGE{Addr: e.mr.Addr, Len: messageSize, LKey: e.mr.LKey}
	_, err = e.qp.PostRecv([]ibv.RecvWR{wr})
	return err
}

// toRTS takes it through RTR to RTS with the attributes that the two ends have
// agreed on: address, path MTU, packet numbers, timeouts. The kernel does this by
// itself on an iWARP device.
func (e *endpoint) toRTS(id *ibv.CMID) error {
	if e.iwarp {
		return nil
	}
	for _, state := range []ibv.QPState{ibv.QPSRTR, ibv.QPSRTS} {
		attr, mask, err := id.InitQPAttr(state)
		if err != nil {
			return err
		}
		if err := e.qp.Modify(&attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// param is what both ends tell each other, beside private data.
func (e *endpoint) param() ibv.ConnParam {
	return ibv.ConnParam{
		QPNum:              e.qp.Num(),
		ResponderResources: 1, // READs by the peer that we serve at a time
		InitiatorDepth:     1, // READs that we want in flight
		RetryCount:         6, // 7 is for ever on some devices
		RNRRetryCount:      6,
	}
}

// send posts a message and does not wait for its completion. The buffer is used
// only once here; and the end that gets the last message may hang up at once,
// before its card has told ours that the message arrived. Only an answer proves
// that a message arrived.
func (e *endpoint) send(text string) error {
	n := copy(e.block.Bytes()[messageSize:], text)
	wr := ibv.SendWR{ID: idSend, Op: ibv.WRSend, Flags: ibv.SendSignaled, NumSGE: 1}
	wr.SGL[0] = ibv.SGE{Addr: e.mr.Addr + messageSize, Len: uint32(n), LKey: e.mr.LKey}
	_, err := e.qp.PostSend([]ibv.SendWR{wr})
	return err
}

func (e *endpoint) receive(ctx context.Context, timeout time.Duration) (string, error) {
	wc, err := e.done(ctx, timeout, idRecv)
	if err != nil {
		return "", err
	}
	return string(e.block.Bytes()[:wc.ByteLen]), nil
}

// done waits for one completion: poll, arm, poll again, sleep (example pingpong).
func (e *endpoint) done(ctx context.Context, timeout time.Duration, id uint64) (ibv.WC, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var wcs [4]ibv.WC
	for armed := false; ; {
		for i, wc := range e.early {
			if wc.ID != id {
				continue
			}
			e.early = append(e.early[:i], e.early[i+1:]...)
			if wc.Status != ibv.StatusSuccess {
				return wc, fmt.Errorf("completion with status %v (%d)", wc.Status, wc.Status)
			}
			return wc, nil
		}
		n, err := e.cq.Poll(wcs[:])
		if err != nil {
			return ibv.WC{}, err
		}
		e.early = append(e.early, wcs[:n]...)
		switch {
		case n > 0:
		case !armed:
			if err := e.cq.ReqNotify(false); err != nil {
				return ibv.WC{}, err
			}
			armed = true
		default:
			if _, err := e.channel.Get(ctx); err != nil {
				return ibv.WC{}, err
			}
			armed = false
		}
	}
}

// disconnect hangs up, and puts the queue pair into ERR so that nothing stays
// outstanding. (With a queue pair of librdmacm's own, rdma_disconnect does both.)
func (e *endpoint) disconnect(id *ibv.CMID) error {
	if !e.iwarp {
		if err := e.qp.Modify(&ibv.QPAttr{State: ibv.QPSErr}, ibv.QPMaskState); err != nil {
			return err
		}
	}
	err := id.Disconnect()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTCONN) {
		return nil // the other end was first
	}
	return err
}

func (e *endpoint) close() error {
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
	if e.mr != nil {
		errs = append(errs, e.mr.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	if e.device != nil {
		errs = append(errs, e.device.Close())
	}
	if e.block != nil {
		errs = append(errs, e.block.Free())
	}
	return errors.Join(errs...)
}
