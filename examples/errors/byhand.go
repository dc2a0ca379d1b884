package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// byHand is a pair made of the verbs. Both queue pairs are of one device and
// connected to each other by calls of this program alone. Example menu explains
// the objects and the three steps; here the point is the way back from ERR:
//
//	   ┌────────────────── ibv_modify_qp to RESET ──────────────────┐
//	   ▼                                                            │
//	RESET ──▶ INIT ──▶ RTR ──▶ RTS ── an error, or on purpose ──▶ ERR
//
// Both ends must go that way together, and with new packet numbers: a queue pair
// that is still in RTS would not understand what the other one sends.
type byHand struct {
	device *ibv.Context
	attr   ibv.PortAttr
	gid    ibv.GIDEntry
	pd     *ibv.PD
	ends   [2]*handEnd // client, server

	stop    context.CancelFunc
	watcher sync.WaitGroup
	mu      sync.Mutex
	seen    []string // asynchronous events
}

const port = 1

func newByHand(ctx context.Context, name string) (h *byHand, err error) {
	h = &byHand{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if name == "" {
		devices, err := ibv.Devices()
		if err != nil {
			return h, err
		}
		if len(devices) == 0 {
			return h, errors.New("this machine has no RDMA device; -fabric iwarp needs none")
		}
		name = devices[0].Name
	}
	if h.device, err = ibv.Open(name); err != nil {
		return h, err
	}
	if h.device.Info().Transport == ibv.TransportIWARP {
		return h, fmt.Errorf("%s is an iWARP device: its queue pairs are connected by the connection manager only", name)
	}
	if h.attr, err = h.device.QueryPort(port); err != nil {
		return h, err
	}
	if h.gid, err = chooseGID(h.device); err != nil {
		return h, err
	}
	if h.pd, err = h.device.AllocPD(); err != nil {
		return h, err
	}
	for i := range h.ends {
		if h.ends[i], err = h.newEnd(nil); err != nil {
			return h, err
		}
	}
	// Asynchronous events are the third kind of news from a device, beside
	// completions and connection events: a queue pair hit by an error that
	// belongs to no work request, a port gone down, the device itself failed.
	ctx, h.stop = context.WithCancel(ctx)
	h.watcher.Go(func() {
		for {
			e, err := h.device.AsyncEvent(ctx)
			if err != nil {
				return
			}
			h.mu.Lock()
			if len(h.seen) < 100 {
				h.seen = append(h.seen, h.nameEvent(e))
			}
			h.mu.Unlock()
		}
	})
	return h, nil
}

func chooseGID(device *ibv.Context) (ibv.GIDEntry, error) {
	table, err := device.GIDTable(port)
	if err != nil {
		return ibv.GIDEntry{}, err
	}
	if len(table) == 0 {
		return ibv.GIDEntry{}, fmt.Errorf("port %d has no GID: its network interface has no address", port)
	}
	v4 := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}
	for _, e := range table {
		if e.Type == ibv.GIDRoCEv2 && bytes.HasPrefix(e.GID[:], v4) {
			return e, nil
		}
	}
	return table[0], nil
}

func (h *byHand) nameEvent(e ibv.AsyncEvent) string {
	whose := ""
	for i, name := range []string{"client", "server"} {
		if h.ends[i] != nil && h.ends[i].qp.Num() == e.QPN && e.QPN != 0 {
			whose = ", " + name + "'s queue pair"
		}
	}
	return fmt.Sprint(e.Type) + whose
}

func (h *byHand) client() end      { return h.ends[0] }
func (h *byHand) server() end      { return h.ends[1] }
func (h *byHand) retriesRNR() bool { return true }

// settle does nothing: only the two scenes in which a card refuses a request kill
// both queue pairs, and there the completion comes last. In the others the peer's
// stays in RTS, because nothing has told it.
func (h *byHand) settle(context.Context) {}

// events waits a moment, for they come on a channel of their own and are in no
// order with completions.
func (h *byHand) events() []string {
	time.Sleep(20 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

// connect takes both queue pairs to RESET, wherever they are, and from there to
// RTS.
func (h *byHand) connect(ctx context.Context, o options) (string, error) {
	// RESET discards what is outstanding, without completions. A program that has
	// to know which buffers are free takes the queue pair to ERR first and waits
	// for the flushed completions; the scenes have done so.
	for _, e := range h.ends {
		if err := e.qp.Modify(&ibv.QPAttr{State: ibv.QPSReset}, ibv.QPMaskState); err != nil {
			return "", err
		}
		if err := e.drain(); err != nil {
			return "", err
		}
	}
	rights := [2]ibv.Access{0, ibv.Access(o.rights)} // the same bits in both packages
	for i, e := range h.ends {
		err := e.qp.Modify(&ibv.QPAttr{State: ibv.QPSInit, Port: port, AccessFlags: rights[i]},
			ibv.QPMaskState|ibv.QPMaskPort|ibv.QPMaskPKeyIndex|ibv.QPMaskAccessFlags)
		if err != nil {
			return "", err
		}
		e.psn = rand.Uint32() & (1<<24 - 1)
	}
	for id := range uint64(o.receives) {
		if err := h.ends[1].postRecv(id+1, receiveSize); err != nil {
			return "", err
		}
	}
	for i, e := range h.ends {
		peer := h.ends[1-i]
		if err := h.toRTS(e, peer, o.patient); err != nil {
			return "", err
		}
	}
	return "RESET → INIT → RTR → RTS, with new packet numbers", nil
}

func (h *byHand) toRTS(e, peer *handEnd, patient bool) error {
	way := ibv.AHAttr{PortNum: port, DLID: h.attr.LID}
	if h.attr.LinkLayer == ibv.LinkEthernet {
		way.IsGlobal, way.DGID, way.SGIDIndex, way.HopLimit = true, h.gid.GID, uint8(h.gid.Index), 64
	}
	err := e.qp.Modify(&ibv.QPAttr{
		State: ibv.QPSRTR, AH: way, DestQPN: peer.qp.Num(), RQPSN: peer.psn,
		PathMTU: h.attr.ActiveMTU, MaxDestRdAtomic: 4, MinRNRTimer: 12,
	}, ibv.QPMaskState|ibv.QPMaskAV|ibv.QPMaskDestQPN|ibv.QPMaskRQPSN|ibv.QPMaskPathMTU|ibv.QPMaskMaxDestRdAtomic|ibv.QPMaskMinRNRTimer)
	if err != nil {
		return err
	}
	rnr := uint8(0)
	if patient {
		rnr = 7 // for ever
	}
	return e.qp.Modify(&ibv.QPAttr{
		State: ibv.QPSRTS, SQPSN: e.psn, MaxRdAtomic: 4,
		Timeout: 14, RetryCnt: 3, // 67 ms without an answer, and three more tries
		RNRRetry: rnr,
	}, ibv.QPMaskState|ibv.QPMaskSQPSN|ibv.QPMaskMaxQPRdAtomic|ibv.QPMaskTimeout|ibv.QPMaskRetryCnt|ibv.QPMaskRNRRetry)
}

func (h *byHand) close() error {
	var errs []error
	for _, e := range h.ends {
		if e != nil {
			errs = append(errs, e.close())
		}
	}
	if h.pd != nil {
		errs = append(errs, h.pd.Close())
	}
	if h.stop != nil {
		h.stop()
		h.watcher.Wait()
	}
	if h.device != nil {
		errs = append(errs, h.device.Close())
	}
	return errors.Join(errs...)
}

// statusOf is the same number in both packages: enum ibv_wc_status.
func statusOf(s ibv.WCStatus) rdma.Status { return rdma.Status(s) }

// newEnd makes memory, CQ and QP; with srq, a QP that takes its receives there.
func (h *byHand) newEnd(srq *ibv.SRQ) (e *handEnd, err error) {
	e = &handEnd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
			e = nil
		}
	}()
	if e.block, err = mem.Alloc(2*memorySize, mem.Options{Tag: "errors"}); err != nil {
		return e, err
	}
	b := e.block.Bytes()
	if e.public, err = h.pd.RegMR(address(b[:memorySize]), memorySize, ibv.AccessRemoteRead); err != nil {
		return e, err
	}
	if e.private, err = h.pd.RegMR(address(b[memorySize:]), memorySize, ibv.AccessLocalWrite); err != nil {
		return e, err
	}
	if e.channel, err = h.device.CreateCompChannel(); err != nil {
		return e, err
	}
	if e.cq, err = h.device.CreateCQ(64, e.channel); err != nil {
		return e, err
	}
	e.qp, _, err = h.pd.CreateQP(ibv.QPInit{
		SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq,
		Cap: ibv.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return e, err
}
