package ibv

import (
	"syscall"
	"time"
)

// A QP is a reliably connected queue pair, struct ibv_qp.
type QP struct {
	object
	pd   *PD
	init QPInit
	num  uint32
}

// CreateQP is ibv_create_qp(3) for a QP of type RC, in state RESET. The QPCap
// is what the device gave, at least what was asked for.
func (p *PD) CreateQP(init QPInit) (*QP, QPCap, error) {
	if init.SendCQ == nil || init.RecvCQ == nil {
		return nil, QPCap{}, callError("ibv_create_qp", syscall.EINVAL)
	}
	q := &QP{object: object{key: newKey()}, pd: p, init: init}
	release, err := useAll(q.parents()...)
	if err != nil {
		return nil, QPCap{}, err
	}
	defer release()
	raw := qpInitRaw{key: q.key, sendCQ: init.SendCQ.h, recvCQ: init.RecvCQ.h, cap: init.Cap, sigAll: init.SigAll}
	if init.SRQ != nil {
		raw.srq = init.SRQ.h
	}
	h, num, caps, errno := sysCreateQP(p.h, &raw)
	if errno != 0 {
		return nil, QPCap{}, callError("ibv_create_qp", errno)
	}
	q.h, q.num = h, num
	for _, o := range q.parents() {
		o.kids.add("QP")
	}
	liveQPs.put(q.key, q)
	return q, caps, nil
}

// qpInitRaw is struct rk_qp_init.
type qpInitRaw struct {
	key                 uint64
	sendCQ, recvCQ, srq handle
	cap                 QPCap
	sigAll              bool
}

// parents are what the QP is made of, each once.
func (q *QP) parents() []*object {
	objs := []*object{&q.pd.object, &q.init.SendCQ.object}
	if q.init.RecvCQ != q.init.SendCQ {
		objs = append(objs, &q.init.RecvCQ.object)
	}
	if q.init.SRQ != nil {
		objs = append(objs, &q.init.SRQ.object)
	}
	return objs
}

// Num is the number of the QP, 24 bits; it stays known after Close.
func (q *QP) Num() uint32 { return q.num }

// Modify is ibv_modify_qp(3): it sets the attributes that mask names. The
// package comment tells which ones each transition needs.
func (q *QP) Modify(attr *QPAttr, mask QPAttrMask) error {
	if err := q.use(); err != nil {
		return err
	}
	defer q.mu.RUnlock()
	return callError("ibv_modify_qp", sysModifyQP(q.h, attr, mask))
}

// Query is ibv_query_qp(3) for the attributes that mask names; the device may
// fill in more.
func (q *QP) Query(mask QPAttrMask) (QPAttr, error) {
	if err := q.use(); err != nil {
		return QPAttr{}, err
	}
	defer q.mu.RUnlock()
	attr, errno := sysQueryQP(q.h, mask)
	return attr, callError("ibv_query_qp", errno)
}

// PostSend is ibv_post_send(3) for a batch, in one call into C. It returns how
// many were posted; if fewer than len(wrs), the error is that of the first
// which was not, and none after it was. ENOMEM means that the send queue is
// full. It allocates nothing and keeps nothing of wrs; the memory that they
// name belongs to the device until their completions were polled, that of
// inline requests only until it returns.
func (q *QP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if err := q.use(); err != nil {
		return 0, err
	}
	n, errno := sysPostSend(q.h, wrs)
	q.mu.RUnlock()
	if errno != 0 {
		return n, callError("ibv_post_send", errno)
	}
	return n, nil
}

// PostSendSpin is PostSend, and if all were posted Spin on cq, in one call into
// C instead of two.
func (q *QP) PostSendSpin(wrs []SendWR, cq *CQ, wcs []WC, d time.Duration) (posted, polled int, err error) {
	if len(wrs) == 0 || len(wcs) == 0 {
		posted, err = q.PostSend(wrs)
		return posted, 0, err
	}
	// They are locked in the order of keys (see object): a QP is younger than
	// its CQs, but a CQ that is not its own may be younger.
	first, second := &cq.object, &q.object
	if first.key > second.key {
		first, second = second, first
	}
	if err := first.use(); err != nil {
		return 0, 0, err
	}
	defer first.mu.RUnlock()
	if err := second.use(); err != nil {
		return 0, 0, err
	}
	defer second.mu.RUnlock()
	posted, polled, errno := sysPostSendSpin(q.h, wrs, cq.h, wcs, bounded(d), cq.yield)
	switch {
	case posted < len(wrs):
		return posted, 0, callError("ibv_post_send", errno)
	case errno != 0:
		return posted, polled, callError("ibv_poll_cq", errno)
	}
	return posted, polled, nil
}

// PostRecv is ibv_post_recv(3) for a batch; as PostSend.
func (q *QP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if err := q.use(); err != nil {
		return 0, err
	}
	n, errno := sysPostRecv(q.h, wrs)
	q.mu.RUnlock()
	if errno != 0 {
		return n, callError("ibv_post_recv", errno)
	}
	return n, nil
}

// Close is ibv_destroy_qp(3). Requests that were posted and not polled are gone
// without a completion: to see the flush errors, Modify to QPSErr first and
// poll.
func (q *QP) Close() error {
	done, err := q.destroy("ibv_destroy_qp", sysDestroyQP)
	if done {
		liveQPs.drop(q.key)
		for _, o := range q.parents() {
			o.kids.done("QP")
		}
	}
	return err
}
