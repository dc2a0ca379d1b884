package verbs

import (
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A device may give a number away as soon as its QP is destroyed: the end of the
// old QP, and the events of it that come late, are not the new one's.
func TestQPNUsedAgain(t *testing.T) {
	d := deviceless(Options{})
	d.qps = make(map[uint32]*qp)
	old := &qp{num: 7, hw: new(ibv.QP), dead: make(chan struct{})}
	young := &qp{num: 7, hw: new(ibv.QP), dead: make(chan struct{}), pd: &pd{dev: d}}
	d.enter(old)
	d.enter(young)
	d.leave(old)
	if d.findQP(7) != young {
		t.Fatal("the end of the old QP took the young one out")
	}
	for _, late := range []*ibv.QP{old.hw, nil} {
		d.failQP(ibv.AsyncEvent{Type: ibv.AsyncQPFatal, QPN: 7, QP: late}, rdma.ErrProtocol)
	}
	if young.State() == rdma.QPError {
		t.Error("an event of the old QP killed the young one")
	}
	d.failQP(ibv.AsyncEvent{Type: ibv.AsyncQPFatal, QPN: 7, QP: young.hw}, rdma.ErrProtocol)
	if young.State() != rdma.QPError {
		t.Error("its own event did not")
	}
	young.workers.Wait()
	d.leave(young)
	if d.findQP(7) != nil {
		t.Error("it is still known")
	}
}

// A QP that is being closed takes no posts: they could come behind the last
// work request, and would never complete.
func TestNoPostBehindTheLast(t *testing.T) {
	c := softCQ()
	defer c.wake()
	q := newQP(&pd{dev: c.dev})
	q.hw, q.sendCQ, q.recvCQ = new(ibv.QP), c, c
	q.state.Store(uint32(rdma.QPError))
	q.drain.run()
	_, _ = q.PostSend([]rdma.SendWR{{Op: rdma.OpSend}})
	_, _ = q.PostRecv([]rdma.RecvWR{{}})
	if q.sends.posted || q.recvs.posted {
		t.Errorf("posted to the device: a send %v, a receive %v", q.sends.posted, q.recvs.posted)
	}
}
