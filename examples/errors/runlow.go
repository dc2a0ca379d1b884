package main

import (
	"context"
	"errors"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// runLow makes two asynchronous events that do no harm. A shared receive queue
// (SRQ) holds the receives of many queue pairs, so that a server with a thousand
// clients need not post a thousand times as many; but one busy client can use
// them up. If it is armed with a limit, it tells when fewer are left than that.
func (h *byHand) runLow(ctx context.Context, s *stage) (err error) {
	srq, err := h.pd.CreateSRQ(8, 1, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srq.Close()) }()
	shared, err := h.newEnd(srq)
	if err != nil {
		return err
	}
	plain := h.ends[1]
	h.ends[1] = shared // from here on it is the server
	defer func() {
		h.ends[1] = plain
		err = errors.Join(err, shared.close())
	}()

	for id := range uint64(4) {
		wr := ibv.RecvWR{ID: id + 1, NumSGE: 1}
		wr.SGL[0] = shared.sge(receiveSize)
		if _, err := srq.PostRecv([]ibv.RecvWR{wr}); err != nil {
			return err
		}
	}
	if err := srq.ArmLimit(3); err != nil {
		return err
	}
	if err := s.connect(ctx, options{}); err != nil {
		return err
	}
	s.note("the server's shared receive queue holds 4 receives and is to tell when fewer than 3 are left")
	for id := range uint64(2) {
		if err := h.ends[0].send(id+1, receiveSize); err != nil {
			return err
		}
		s.await(ctx, "server", "RECV", id+1)
		s.await(ctx, "client", "SEND", id+1)
	}
	s.states(ctx)
	s.note("its queue pair goes to ERR and takes no more from there (QP_LAST_WQE_REACHED may follow)")
	if err := shared.abort(); err != nil {
		return err
	}
	s.states(ctx)
	return nil
}
