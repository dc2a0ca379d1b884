package sim

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// This is the responder: it works on the goroutines of the network, whatever
// the program of its host is doing.

// arrive takes a request from the wire.
func (q *qp) arrive(w *wqe) {
	if lost := w.q.lost; lost != 0 && w.seq > lost {
		return
	}
	if q.unreachable(w) {
		w.q.lose(w)
		return
	}
	q.inq = append(q.inq, w)
	q.serve()
}

// serve carries out what has arrived, in order.
func (q *qp) serve() {
	for len(q.inq) > 0 && q.alive() {
		w := q.inq[0]
		if w.op == rdma.OpRDMARead {
			q.inq = q.inq[1:]
			q.net.counts.Reads++
			q.serv = append(q.serv, w)
			q.begin(w)
			q.answer()
			continue
		}
		if !q.receive(w) {
			return // no receive is posted
		}
	}
}

// receive delivers the SEND at the head of inq. It returns false if the SEND must wait.
func (q *qp) receive(w *wqe) bool {
	n, from := q.net, w.q
	if q.ghost { // the program will not read it; the adapter does not know that
		q.inq = q.inq[1:]
		q.ack(w)
		return true
	}
	if q.srq == nil && len(q.rq.list) == 0 || q.srq != nil && len(q.srq.q.list) == 0 {
		if q.pd.dev.attr.Caps.Has(rdma.CapRNR) {
			return false
		}
		q.inq = q.inq[1:]
		err := fmt.Errorf("%w: no receive posted", rdma.ErrReceiverNotReady)
		q.fail(cause{err: err, peer: err})
		return true
	}
	q.inq = q.inq[1:]
	payload := w.inline
	if payload == nil && w.over {
		return true // its sender died meanwhile: the memory is not ours
	}
	if payload == nil {
		if !w.sgl.good(from.pd, 0) {
			from.finish(w, rdma.StatusLocProtErr, localFault(w.op))
			return true
		}
		payload = w.sgl.gather()
	}
	e := q.takeRecv()
	n.counts.Sends++
	broken := func(s rdma.Status, err error) bool {
		q.recvCQ.push(q, rdma.WC{ID: e.id, Status: s, QPN: q.num})
		q.fail(cause{err: err, peer: fmt.Errorf("%w: the peer refused a SEND", rdma.ErrPeerGone)})
		return true
	}
	switch {
	case !e.sgl.good(q.pd, rdma.AccessLocalWrite):
		return broken(rdma.StatusLocProtErr, localFault(rdma.OpRecv))
	case uint64(len(payload)) > e.sgl.total:
		return broken(rdma.StatusLocLenErr, fmt.Errorf("%w: a SEND of %d bytes met a receive of %d", rdma.ErrLocal, len(payload), e.sgl.total))
	}
	e.sgl.scatter(0, payload)
	wc := rdma.WC{ID: e.id, Op: rdma.OpRecv, QPN: q.num, ByteLen: uint32(len(payload))}
	if w.flags&rdma.SendSolicited != 0 {
		wc.Flags = rdma.WCSolicited
	}
	n.logf("%s: SEND %d of %d bytes from %s", q.label(), w.seq, len(payload), from.label())
	q.recvCQ.push(q, wc)
	q.ack(w)
	return true
}

func (q *qp) takeRecv() recvWQE {
	r := &q.rq
	if q.srq != nil {
		r = &q.srq.q
	}
	e, _ := r.take()
	return e
}

// ack acknowledges a SEND, or brings a READ's answer home.
func (q *qp) ack(w *wqe) {
	if w.status != rdma.StatusSuccess {
		return // by the seed it gets none
	}
	die := chancesOf(w.q, w.seq, askPath)
	die.next()
	q.back = max(q.back, q.net.now()+int64(q.path(&die)))
	q.net.at(q.back, func() {
		if q.net.cut(q.host(), w.q.host()) {
			w.unanswered()
			return
		}
		if w.op == rdma.OpRDMARead && !w.over && !w.sgl.good(w.q.pd, rdma.AccessLocalWrite) {
			w.q.finish(w, rdma.StatusLocProtErr, localFault(w.op))
			return
		}
		w.q.finish(w, rdma.StatusSuccess, nil)
	})
}

// begin starts to serve a READ: the rights are looked at once, here; whether
// the region is still there is looked at again with each piece.
func (q *qp) begin(w *wqe) {
	n := q.net
	size := uint32(w.sgl.total)
	if q.access&rdma.AccessRemoteRead == 0 {
		w.ready, w.refuse = true, true
		return
	}
	if size == 0 { // asks for nothing, so its key is not looked at
		w.ready = true
		return
	}
	if w.region, w.off = q.pd.readable(w.remote, size); w.region == nil {
		w.ready, w.refuse = true, true
		return
	}
	if w.region.frozen != nil {
		n.counts.FrozenReads++
	}
	list, gaps := q.plan(w)
	w.left = len(list)
	var at time.Duration
	for i := 0; i < len(list); {
		// One load takes the pieces up to the next gap.
		j := i + 1
		for j < len(list) && gaps[j] == (gap{}) {
			j++
		}
		part, g := list[i:j], gaps[i]
		at += g.time
		switch {
		case g.steps > 0:
			n.afterSteps(g.steps, at, func() { q.loadPart(w, part) })
		case at > 0:
			n.after(at, func() { q.loadPart(w, part) })
		default:
			q.loadPart(w, part)
		}
		i = j
	}
}

// A gap is what lies between two loads of one READ.
type gap struct {
	time  time.Duration
	steps int
}

// plan decides in which pieces and when a READ is loaded.
func (q *qp) plan(w *wqe) (list []piece, gaps []gap) {
	n := q.net
	die := chancesOf(w.q, w.seq, askRead)
	mem, size := w.region.bytes(), int(w.sgl.total)
	late, torn := die.is(n.adverse.Late), die.is(n.adverse.Torn)
	if late {
		n.counts.Late++
	}
	if !torn {
		g := gap{}
		if late {
			g.time = die.delay(n.adverse.LateMost) + time.Duration(die.next()%uint64(n.adverse.LateMost))
		}
		return []piece{{0, size}}, []gap{g}
	}
	n.counts.Torn++
	unit := 64
	if die.is(0.5) {
		unit = 8
	}
	for size/unit > 512 { // a large value: cut it in at most so many pieces
		unit *= 4
	}
	list = pieces(nil, mem, w.off, size, unit)
	if die.is(0.75) {
		die.shuffle(list)
	}
	gaps = make([]gap, len(list))
	bySteps := die.is(0.5)
	for range 1 + die.n(4) { // so many interruptions at most
		i := die.n(len(list))
		switch {
		case late:
			gaps[i].time = die.delay(n.adverse.LateMost)
		case bySteps:
			// The time is for the case that no steps come.
			gaps[i] = gap{die.delay(n.adverse.Delay) + 20*time.Microsecond, 1 + die.n(6)}
		default:
			gaps[i].time = die.delay(n.adverse.Delay)
		}
	}
	return list, gaps
}

// loadPart loads some pieces of a READ, now, and puts them where the peer will
// look: piece by piece, so that a sink which is used too early shows it.
func (q *qp) loadPart(w *wqe, part []piece) {
	if w.refuse {
		return
	}
	switch {
	case !q.alive():
		q.unreachable(w)
		w.refuse = true
		return
	case w.over: // the reader has stopped waiting: the sink is not ours
		w.refuse = true
		w.ready = true
		q.answer()
		return
	case w.region.closed && w.region.frozen == nil:
		// The region was deregistered meanwhile. The same key may lead to other
		// memory now, and an adapter looks it up for each packet.
		m, off := q.pd.readable(w.remote, uint32(w.sgl.total))
		if m == nil {
			w.refuse, w.ready = true, true
			q.answer()
			return
		}
		q.net.counts.StaleKey++
		w.region, w.off = m, off
	}
	if !w.sgl.good(w.q.pd, rdma.AccessLocalWrite) {
		w.refuse, w.ready = true, false
		w.q.finish(w, rdma.StatusLocProtErr, localFault(w.op))
		return
	}
	region := w.region.bytes()
	for _, p := range part {
		buf := q.net.scratch(p.len)
		mem.Copy(buf, region, uint64(w.off+p.off)) // each word once, as a card does
		w.sgl.scatter(uint64(p.off), buf)
	}
	if w.left -= len(part); w.left == 0 {
		w.ready = true
		q.answer()
	}
}

// answer sends the answers of READs that are whole, in order of the requests;
// a refusal ends the connection at its turn.
func (q *qp) answer() {
	for len(q.serv) > 0 && q.serv[0].ready {
		w := q.serv[0]
		q.serv = q.serv[1:]
		if !w.refuse {
			q.ack(w)
			continue
		}
		if w.over {
			continue
		}
		q.refused(w)
	}
}

// refused ends a connection whose peer asked for memory that it may not have:
// the answer goes out with the others, in order.
func (q *qp) refused(w *wqe) {
	n := q.net
	n.counts.Refused++
	n.logf("%s: READ %d of %d bytes at %#x with key %#x refused", q.label(), w.seq, w.sgl.total, w.remote.Addr, w.remote.RKey)
	err := fmt.Errorf("%w: %d bytes at %#x with rkey %#x", rdma.ErrAccess, w.sgl.total, w.remote.Addr, w.remote.RKey)
	q.back = max(q.back, n.now())
	n.at(q.back, func() { w.q.finish(w, rdma.StatusRemAccessErr, err) })
	q.inq = nil
	q.fail(cause{err: err, silent: true})
}

// scratch returns room for n bytes, good until the next call. The program never
// sees it: the bytes of a READ are loaded here, once, and copied from here.
func (n *Network) scratch(size int) []byte {
	if cap(n.room) < size {
		n.room = make([]byte, max(size, 64<<10))
	}
	return n.room[:size]
}
