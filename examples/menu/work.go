package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// These are the four operations of a byHand endpoint. The first three are one
// work request on the send queue each, and differ in its opcode and in the end
// whose address they name: READ and WRITE name the peer's memory, SEND does not.

func (h *byHand) read(ctx context.Context, n int) ([]byte, error) {
	err := h.post(ctx, ibv.SendWR{
		ID: idRead, Op: ibv.WRRDMARead, RemoteAddr: h.peer.addr, RKey: h.peer.rkey,
	}, deskRead, n)
	return h.deskMem.Bytes()[deskRead : deskRead+n], err
}

func (h *byHand) write(ctx context.Context, b []byte) error {
	n := copy(h.deskMem.Bytes()[deskOut:deskOut+windowSize], b)
	return h.post(ctx, ibv.SendWR{
		ID: idWrite, Op: ibv.WRRDMAWrite, RemoteAddr: h.peer.addr, RKey: h.peer.rkey,
	}, deskOut, n)
}

func (h *byHand) send(ctx context.Context, b []byte) error {
	n := copy(h.deskMem.Bytes()[deskOut:deskOut+windowSize], b)
	return h.post(ctx, ibv.SendWR{ID: idSend, Op: ibv.WRSend}, deskOut, n)
}

// post posts one work request over n bytes of the desk and waits for it.
func (h *byHand) post(ctx context.Context, wr ibv.SendWR, off, n int) error {
	wr.Flags = ibv.SendSignaled // a completion on success too
	wr.NumSGE = 1
	wr.SGL[0] = ibv.SGE{Addr: h.deskMR.Addr + uint64(off), Len: uint32(n), LKey: h.deskMR.LKey}
	if _, err := h.qp.PostSend([]ibv.SendWR{wr}); err != nil {
		return err
	}
	// From here to the completion the desk belongs to the card. If the wait
	// fails the program ends, rather than to touch it again.
	_, err := h.done(ctx, wr.ID)
	return err
}

// receive waits for the receive that was posted longest ago: messages fill them
// in that order.
func (h *byHand) receive(ctx context.Context) ([]byte, error) {
	slot := h.nextRecv
	wc, err := h.done(ctx, idRecv+uint64(slot))
	if err != nil {
		return nil, err
	}
	// Copied out before the slot is offered again.
	start := deskSlots + slot*windowSize
	message := append([]byte(nil), h.deskMem.Bytes()[start:start+int(wc.ByteLen)]...)
	h.nextRecv = (slot + 1) % slots
	return message, h.postRecv(slot)
}

func (h *byHand) postRecv(slot int) error {
	wr := ibv.RecvWR{ID: idRecv + uint64(slot), NumSGE: 1}
	wr.SGL[0] = ibv.SGE{Addr: h.deskMR.Addr + uint64(deskSlots+slot*windowSize), Len: windowSize, LKey: h.deskMR.LKey}
	_, err := h.qp.PostRecv([]ibv.RecvWR{wr})
	return err
}

// done waits for the completion with the given ID: poll, arm, poll once more,
// sleep on the channel. Example pingpong says why in this order.
func (h *byHand) done(ctx context.Context, id uint64) (ibv.WC, error) {
	var wcs [8]ibv.WC
	for armed := false; ; {
		for i, wc := range h.early {
			if wc.ID != id {
				continue
			}
			h.early = append(h.early[:i], h.early[i+1:]...)
			if wc.Status != ibv.StatusSuccess {
				return wc, fmt.Errorf("completion with status %v (%d): the connection is dead", wc.Status, wc.Status)
			}
			return wc, nil
		}
		n, err := h.cq.Poll(wcs[:])
		if err != nil {
			return ibv.WC{}, err
		}
		h.early = append(h.early, wcs[:n]...)
		switch {
		case n > 0:
		case !armed:
			if err := h.cq.ReqNotify(false); err != nil {
				return ibv.WC{}, err
			}
			armed = true
		default:
			_, err := h.channel.Get(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				return ibv.WC{}, errors.New("no completion in time: is the other process still there, has it posted a receive?")
			}
			if err != nil {
				return ibv.WC{}, err
			}
			armed = false
		}
	}
}

func (h *byHand) window() []byte { return h.winMem.Bytes() }

func (h *byHand) describe() string {
	state := "?"
	if attr, err := h.qp.Query(ibv.QPMaskState); err == nil {
		state = fmt.Sprint(attr.State)
	}
	return fmt.Sprintf("%s: QP %#06x in state %s, window at %#x with rkey %#x",
		h.device.Info().Name, h.qp.Num(), state, h.winMR.Addr, h.winMR.RKey)
}
