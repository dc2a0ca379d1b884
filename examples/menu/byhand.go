package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"

	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// IDs of work requests. A receive's is idRecv plus its slot.
const (
	idRead = iota + 1
	idWrite
	idSend
	idRecv
)

// Our registered memory: one region that the peer may use, one that it may not.
//
//	window (MR 1: local write, remote read, remote write)
//	┌──────────────────────┐
//	│ 256 bytes            │◀── the peer's READs and WRITEs
//	└──────────────────────┘
//	desk (MR 2: local write)
//	┌───────────┬───────────┬────────┬────────┬────────┬────────┐
//	│ outgoing  │ read here │ slot 0 │ slot 1 │ slot 2 │ slot 3 │◀── messages, where our receives say
//	└───────────┴───────────┴────────┴────────┴────────┴────────┘
const (
	deskOut   = 0
	deskRead  = windowSize
	deskSlots = 2 * windowSize
	deskSize  = (2 + slots) * windowSize
)

// byHand is an endpoint made of the verbs themselves, each call as in C:
// ibv_open_device, ibv_alloc_pd, ibv_reg_mr, ibv_create_cq, ibv_create_qp, three
// times ibv_modify_qp.
type byHand struct {
	out io.Writer

	device  *ibv.Context
	pd      *ibv.PD
	channel *ibv.CompChannel
	cq      *ibv.CQ
	qp      *ibv.QP

	winMem, deskMem *mem.Block
	winMR, deskMR   *ibv.MR

	port     uint8
	attr     ibv.PortAttr
	gid      ibv.GIDEntry
	psn      uint32
	peer     card
	early    []ibv.WC // completions seen while waiting for another one
	nextRecv int      // slot in which the next message arrives
}

// newByHand does steps 1 to 6, up to a queue pair in state RESET, then INIT.
func newByHand(c config, out io.Writer) (h *byHand, err error) {
	h = &byHand{out: out, port: uint8(c.port)}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()

	// 1. The device: the card, or a driver that plays one.
	if c.device == "" {
		devices, err := ibv.Devices()
		if err != nil {
			return h, err
		}
		if len(devices) == 0 {
			return h, errors.New("this machine has no RDMA device; -fabric iwarp needs none")
		}
		c.device = devices[0].Name
	}
	if h.device, err = ibv.Open(c.device); err != nil {
		return h, err
	}
	if h.device.Info().Transport == ibv.TransportIWARP {
		return h, fmt.Errorf("%s is an iWARP device: its connections are made by the connection manager only (example cm)", c.device)
	}
	if h.attr, err = h.device.QueryPort(h.port); err != nil {
		return h, err
	}
	if h.attr.State != ibv.PortActive {
		return h, fmt.Errorf("port %d of %s is %v, not active: no cable, or no subnet manager", c.port, c.device, h.attr.State)
	}
	if h.gid, err = chooseGID(h.device, h.port, c.gidIndex); err != nil {
		return h, err
	}
	h.say("1 device   %s, port %d, MTU %d, GID %d (%v)", c.device, c.port, h.attr.ActiveMTU.Bytes(), h.gid.Index, h.gid.GID)

	// 2. The protection domain: a fence around what belongs together. A queue
	// pair reaches memory of its own domain only.
	if h.pd, err = h.device.AllocPD(); err != nil {
		return h, err
	}
	h.say("2 PD       allocated")

	// 3. Memory regions. Registering pins the pages and gives the card their
	// physical addresses; lkey and rkey are our and the peer's handle on it.
	window := ibv.AccessLocalWrite | ibv.AccessRemoteRead | ibv.AccessRemoteWrite
	if h.winMem, h.winMR, err = h.register(windowSize, window); err != nil {
		return h, err
	}
	if h.deskMem, h.deskMR, err = h.register(deskSize, ibv.AccessLocalWrite); err != nil {
		return h, err
	}
	h.say("3 MR       window at %#x, lkey %#x, rkey %#x; desk with no remote right", h.winMR.Addr, h.winMR.LKey, h.winMR.RKey)

	// 4. The completion queue, with a channel on which it can wake us. It has
	// room for all that can ever be outstanding: an overrun would kill it.
	if h.channel, err = h.device.CreateCompChannel(); err != nil {
		return h, err
	}
	if h.cq, err = h.device.CreateCQ(16, h.channel); err != nil {
		return h, err
	}
	h.say("4 CQ       16 entries")

	// 5. The queue pair: one queue for what we want done, one for messages that
	// come. It is born in RESET.
	if h.qp, _, err = h.pd.CreateQP(ibv.QPInit{
		SendCQ: h.cq, RecvCQ: h.cq,
		Cap: ibv.QPCap{MaxSendWR: 4, MaxRecvWR: slots, MaxSendSGE: 1, MaxRecvSGE: 1},
	}); err != nil {
		return h, err
	}
	// Packets are numbered. A random start makes it unlikely that a late packet
	// of an earlier connection with the same QP number is taken for a new one.
	h.psn = rand.Uint32() & max24
	h.say("5 QP       number %#06x, first PSN %#06x, state RESET", h.qp.Num(), h.psn)

	// 6. RESET → INIT: from now on receives may be posted. The access flags are
	// the second lock beside the region's: both must allow what the peer asks
	// for.
	if err = h.qp.Modify(&ibv.QPAttr{
		State: ibv.QPSInit, Port: h.port, PKeyIndex: 0,
		AccessFlags: ibv.AccessRemoteRead | ibv.AccessRemoteWrite,
	}, ibv.QPMaskState|ibv.QPMaskPort|ibv.QPMaskPKeyIndex|ibv.QPMaskAccessFlags); err != nil {
		return h, err
	}
	h.say("6 QP       RESET → INIT")
	for slot := range slots {
		if err = h.postRecv(slot); err != nil {
			return h, err
		}
	}
	return h, nil
}

// chooseGID takes the entry that the user asked for, else the one that most
// networks need: RoCE v2 with an IPv4 address, RoCE v2, anything.
func chooseGID(device *ibv.Context, port uint8, index int) (ibv.GIDEntry, error) {
	table, err := device.GIDTable(port)
	if err != nil {
		return ibv.GIDEntry{}, err
	}
	v4 := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}
	var best ibv.GIDEntry
	rank := 0
	for _, e := range table {
		r := 1
		if e.Type == ibv.GIDRoCEv2 {
			r = 2
			if bytes.HasPrefix(e.GID[:], v4) {
				r = 3
			}
		}
		if index >= 0 && e.Index != index {
			continue
		}
		if r > rank {
			best, rank = e, r
		}
	}
	if rank == 0 {
		return best, fmt.Errorf("port %d has no GID with index %d; it has %d entries", port, index, len(table))
	}
	return best, nil
}

func (h *byHand) register(size int, access ibv.Access) (*mem.Block, *ibv.MR, error) {
	// Not from the Go heap: the card knows nothing of the garbage collector.
	b, err := mem.Alloc(size, mem.Options{Tag: "menu"})
	if err != nil {
		return nil, nil, err
	}
	mr, err := h.pd.RegMR(address(b.Bytes()), size, access)
	return b, mr, err
}

func (h *byHand) card() card {
	return card{
		lid: h.attr.LID, qpn: h.qp.Num(), psn: h.psn, gid: h.gid.GID, mtu: uint8(h.attr.ActiveMTU),
		addr: h.winMR.Addr, rkey: h.winMR.RKey, size: windowSize,
	}
}

// connect does steps 7 and 8. Neither sends anything: the two ends agree on
// numbers, and from then on believe to be connected.
func (h *byHand) connect(_ context.Context, peer card, _ bool) error {
	h.peer = peer
	// 7. INIT → RTR, ready to receive: who the peer is, how to reach it, and
	// which packet number to expect first.
	way := ibv.AHAttr{PortNum: h.port, DLID: peer.lid}
	if h.attr.LinkLayer == ibv.LinkEthernet {
		// RoCE has no LIDs: packets are routed by GID, that is by IP address.
		way.IsGlobal = true
		way.DGID = peer.gid
		way.SGIDIndex = uint8(h.gid.Index)
		way.HopLimit = 64
	}
	err := h.qp.Modify(&ibv.QPAttr{
		State: ibv.QPSRTR, AH: way, DestQPN: peer.qpn, RQPSN: peer.psn,
		PathMTU:         min(h.attr.ActiveMTU, ibv.MTU(peer.mtu)), // both cards must manage it
		MaxDestRdAtomic: 1,                                        // READs by the peer that we serve at a time
		MinRNRTimer:     12,                                       // "ask again in 0.64 ms", when no receive is posted
	}, ibv.QPMaskState|ibv.QPMaskAV|ibv.QPMaskDestQPN|ibv.QPMaskRQPSN|ibv.QPMaskPathMTU|ibv.QPMaskMaxDestRdAtomic|ibv.QPMaskMinRNRTimer)
	if err != nil {
		return fmt.Errorf("INIT to RTR, from GID %v to GID %s: %w", h.gid.GID, netip.AddrFrom16(peer.gid), err)
	}
	h.say("7 QP       INIT → RTR (peer's QP %#06x, PSN %#06x)", peer.qpn, peer.psn)

	// 8. RTR → RTS, ready to send: our own packet numbers, and our patience.
	err = h.qp.Modify(&ibv.QPAttr{
		State: ibv.QPSRTS, SQPSN: h.psn, MaxRdAtomic: 1, // READs by us in flight at a time
		Timeout:  14, // 4.096 us * 2^14 = 67 ms without an answer, then again
		RetryCnt: 6,  // so often; 7 is for ever on some devices
		RNRRetry: 7,  // for ever: a SEND waits until the peer says receive (rdma_rxe: for a second)
	}, ibv.QPMaskState|ibv.QPMaskSQPSN|ibv.QPMaskMaxQPRdAtomic|ibv.QPMaskTimeout|ibv.QPMaskRetryCnt|ibv.QPMaskRNRRetry)
	if err != nil {
		return err
	}
	h.say("8 QP       RTR → RTS")
	return nil
}

func (h *byHand) say(format string, args ...any) { fmt.Fprintf(h.out, format+"\n", args...) }

// close goes backwards: the queue pair first, so that the card is done with our
// memory before its registration goes, and the registration before the memory.
func (h *byHand) close() error {
	var errs []error
	if h.qp != nil {
		errs = append(errs, h.qp.Close())
	}
	if h.cq != nil {
		errs = append(errs, h.cq.Close())
	}
	if h.channel != nil {
		errs = append(errs, h.channel.Close())
	}
	for _, mr := range []*ibv.MR{h.winMR, h.deskMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	if h.pd != nil {
		errs = append(errs, h.pd.Close())
	}
	if h.device != nil {
		errs = append(errs, h.device.Close())
	}
	for _, b := range []*mem.Block{h.winMem, h.deskMem} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	return errors.Join(errs...)
}
