package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"

	"github.com/rdmakv/rdmakv/examples/internal/nic"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// overIWARP is the same endpoint on package rdma, for machines without a device.
// The objects are the same (compare newByHand). What differs is the connection:
// iWARP runs over TCP, so one end dials the other and the states of the queue
// pair are passed through inside; there are no GIDs and no PSNs.
type overIWARP struct {
	dev             rdma.Device
	pd              rdma.PD
	cq              rdma.CQ
	qp              rdma.QP
	listener        rdma.Listener
	remote          string // the peer's host
	cookie          uint32 // in our card as PSN, which iWARP has no use for
	winMem, deskMem *mem.Block
	winMR, deskMR   rdma.MR
	completions     *nic.Waiter
	peer            card
	nextRecv        int
}

func newOverIWARP(ctx context.Context, conn net.Conn, out io.Writer) (w *overIWARP, err error) {
	w = &overIWARP{cookie: rand.Uint32() & max24}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		return w, err
	}
	if w.remote, _, err = net.SplitHostPort(conn.RemoteAddr().String()); err != nil {
		return w, err
	}
	if w.dev, err = iwarp.New(iwarp.Options{}).Open(ctx, ""); err != nil {
		return w, err
	}
	if w.pd, err = w.dev.AllocPD(); err != nil {
		return w, err
	}
	if w.winMem, w.winMR, err = w.register(windowSize, rdma.AccessLocalWrite|rdma.AccessRemoteRead|rdma.AccessRemoteWrite); err != nil {
		return w, err
	}
	if w.deskMem, w.deskMR, err = w.register(deskSize, rdma.AccessLocalWrite); err != nil {
		return w, err
	}
	if w.cq, err = w.dev.CreateCQ(16); err != nil {
		return w, err
	}
	w.completions = nic.NewWaiter(w.cq)
	if w.qp, err = w.pd.CreateQP(rdma.QPConfig{
		SendCQ: w.cq, RecvCQ: w.cq, Access: rdma.AccessRemoteRead | rdma.AccessRemoteWrite,
		Cap: rdma.QPCap{MaxSendWR: 4, MaxRecvWR: slots, MaxSGE: 1},
	}); err != nil {
		return w, err
	}
	for slot := range slots {
		if err = w.postRecv(slot); err != nil {
			return w, err
		}
	}
	// Both listen, because neither knows yet which of them will be told to dial.
	if w.listener, err = w.dev.Listen(ctx, net.JoinHostPort(host, "0")); err != nil {
		return w, err
	}
	fmt.Fprintf(out, "%s: PD, MRs, CQ and QP %#06x made; its fabric connects it over TCP\n", w.dev.Name(), w.qp.QPN())
	return w, nil
}

func (w *overIWARP) register(size int, access rdma.Access) (*mem.Block, rdma.MR, error) {
	b, err := mem.Alloc(size, mem.Options{Tag: "menu"})
	if err != nil {
		return nil, nil, err
	}
	mr, err := w.pd.RegMR(b.Bytes(), access)
	return b, mr, err
}

func (w *overIWARP) card() card {
	c := card{qpn: w.qp.QPN() & max24, psn: w.cookie, mtu: 5, addr: w.winMR.Addr(), rkey: w.winMR.RKey(), size: windowSize}
	if host, port, err := net.SplitHostPort(w.listener.Addr().String()); err == nil {
		n, _ := strconv.ParseUint(port, 10, 16) // a port that the kernel gave
		c.port = uint16(n)
		if ip := net.ParseIP(host).To16(); ip != nil {
			c.gid = [16]byte(ip) // as a RoCE card does
		}
	}
	return c
}

func (w *overIWARP) connect(ctx context.Context, peer card, dial bool) error {
	w.peer = peer
	if peer.port == 0 {
		return errors.New("the other process does not use -fabric iwarp")
	}
	if dial {
		// This dials the host that we talk to already, because the address in a
		// card could be any that its writer chose.
		addr := net.JoinHostPort(w.remote, strconv.Itoa(int(peer.port)))
		_, err := w.qp.Connect(ctx, addr, rdma.ConnParams{PrivateData: binary.BigEndian.AppendUint32(nil, w.cookie)})
		return err
	}
	req, err := w.listener.Accept(ctx)
	if err != nil {
		return err
	}
	// Any host can dial the port, so the peer shows the number from its card.
	if got := req.PrivateData(); !bytes.Equal(got, binary.BigEndian.AppendUint32(nil, peer.psn)) {
		return errors.Join(fmt.Errorf("somebody else dialed: %v", req.RemoteAddr()), req.Reject(nil))
	}
	_, err = req.Accept(ctx, w.qp, rdma.ConnParams{})
	return err
}

func (w *overIWARP) read(ctx context.Context, n int) ([]byte, error) {
	err := w.post(ctx, rdma.SendWR{ID: idRead, Op: rdma.OpRDMARead, Remote: rdma.RemoteAddr{Addr: w.peer.addr, RKey: w.peer.rkey}}, deskRead, n)
	return w.deskMem.Bytes()[deskRead : deskRead+n], err
}

func (w *overIWARP) write(ctx context.Context, b []byte) error {
	n := copy(w.deskMem.Bytes()[deskOut:deskOut+windowSize], b)
	return w.post(ctx, rdma.SendWR{ID: idWrite, Op: rdma.OpRDMAWrite, Remote: rdma.RemoteAddr{Addr: w.peer.addr, RKey: w.peer.rkey}}, deskOut, n)
}

func (w *overIWARP) send(ctx context.Context, b []byte) error {
	n := copy(w.deskMem.Bytes()[deskOut:deskOut+windowSize], b)
	return w.post(ctx, rdma.SendWR{ID: idSend, Op: rdma.OpSend}, deskOut, n)
}

func (w *overIWARP) post(ctx context.Context, wr rdma.SendWR, off, n int) error {
	wr.Flags = rdma.SendSignaled
	wr.SGL = []rdma.SGE{{MR: w.deskMR, Off: uint64(off), Len: uint32(n)}}
	if _, err := w.qp.PostSend([]rdma.SendWR{wr}); err != nil {
		return err
	}
	_, err := w.done(ctx, wr.ID)
	return err
}

func (w *overIWARP) receive(ctx context.Context) ([]byte, error) {
	slot := w.nextRecv
	wc, err := w.done(ctx, idRecv+uint64(slot))
	if err != nil {
		return nil, err
	}
	start := deskSlots + slot*windowSize
	message := append([]byte(nil), w.deskMem.Bytes()[start:start+int(wc.ByteLen)]...)
	w.nextRecv = (slot + 1) % slots
	return message, w.postRecv(slot)
}

func (w *overIWARP) postRecv(slot int) error {
	_, err := w.qp.PostRecv([]rdma.RecvWR{{
		ID:  idRecv + uint64(slot),
		SGL: []rdma.SGE{{MR: w.deskMR, Off: uint64(deskSlots + slot*windowSize), Len: windowSize}},
	}})
	return err
}

func (w *overIWARP) done(ctx context.Context, id uint64) (rdma.WC, error) {
	wc, err := w.completions.Wait(ctx, id)
	if err == nil && wc.Status != rdma.StatusSuccess {
		err = errors.Join(wc.Status.Err(), w.qp.Err())
	}
	return wc, err
}

func (w *overIWARP) window() []byte { return w.winMem.Bytes() }

func (w *overIWARP) describe() string {
	return fmt.Sprintf("%s: QP %#06x in state %v, window at %#x with rkey %#x",
		w.dev.Name(), w.qp.QPN(), w.qp.State(), w.winMR.Addr(), w.winMR.RKey())
}

func (w *overIWARP) close() error {
	var errs []error
	if w.listener != nil {
		errs = append(errs, w.listener.Close())
	}
	if w.qp != nil {
		errs = append(errs, w.qp.Close())
	}
	if w.cq != nil {
		errs = append(errs, w.cq.Close())
	}
	for _, mr := range []rdma.MR{w.winMR, w.deskMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if w.pd != nil {
		errs = append(errs, w.pd.Close())
	}
	for _, b := range []*mem.Block{w.winMem, w.deskMem} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	if w.dev != nil {
		errs = append(errs, w.dev.Close())
	}
	return errors.Join(errs...)
}
