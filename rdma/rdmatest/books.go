package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// posting is what the books know about a work request.
type posting struct {
	what     string
	recv     bool
	signaled bool // produces a completion when it succeeds
}

// id hands out an ID that this end has not used.
func (e *end) id() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	return e.last
}

// post posts sends that must be taken, gives those without one an ID, and
// returns the IDs.
func (e *end) post(qp rdma.QP, wrs ...rdma.SendWR) []uint64 {
	e.t.Helper()
	n, err := e.tryPost(qp, wrs)
	if n != len(wrs) || err != nil {
		e.t.Fatalf("%s: PostSend took %d of %d: %v", e.name, n, len(wrs), err)
	}
	ids := make([]uint64, n)
	for i := range wrs {
		ids[i] = wrs[i].ID
	}
	return ids
}

// tryPost posts sends and enters what was taken into the books.
func (e *end) tryPost(qp rdma.QP, wrs []rdma.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].ID == 0 {
			wrs[i].ID = e.id()
		}
	}
	// The entry is made before the post, because another goroutine may poll the
	// completion before PostSend returns.
	e.mu.Lock()
	for _, wr := range wrs {
		e.posted[wr.ID] = posting{what: wr.Op.String(), signaled: e.signalAll || wr.Flags&rdma.SendSignaled != 0}
	}
	e.mu.Unlock()
	n, err := qp.PostSend(wrs)
	e.mu.Lock()
	for _, wr := range wrs[min(n, len(wrs)):] {
		delete(e.posted, wr.ID)
	}
	e.mu.Unlock()
	return n, err
}

// A receiver is what takes receives: a QP or an SRQ.
type receiver interface {
	PostRecv([]rdma.RecvWR) (int, error)
}

// recv posts one receive that must be taken and returns its ID.
func (e *end) recv(q receiver, sgl ...rdma.SGE) uint64 {
	e.t.Helper()
	id, err := e.tryRecv(q, sgl...)
	e.check("PostRecv", err)
	return id
}

func (e *end) tryRecv(q receiver, sgl ...rdma.SGE) (uint64, error) {
	id := e.id()
	e.mu.Lock()
	e.posted[id] = posting{what: "RECV", recv: true, signaled: true}
	if _, shared := q.(rdma.SRQ); shared {
		if _, qp := q.(rdma.QP); !qp {
			e.srq[id] = struct{}{}
		}
	}
	e.mu.Unlock()
	n, err := q.PostRecv([]rdma.RecvWR{{ID: id, SGL: sgl}})
	if n != 1 {
		e.mu.Lock()
		delete(e.posted, id)
		e.mu.Unlock()
		if err == nil {
			err = fmt.Errorf("PostRecv took %d of 1 without an error", n)
		}
		return 0, err
	}
	return id, err
}

// poll takes what is in the CQ and books it.
func (e *end) poll() (int, error) {
	var wcs [64]rdma.WC
	n, err := e.cq.Poll(wcs[:])
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, wc := range wcs[:n] {
		p, known := e.posted[wc.ID]
		switch {
		case !known:
			e.t.Errorf("%s: completion of %d, which was never posted: %+v", e.name, wc.ID, wc)
		case !p.signaled && wc.Status == rdma.StatusSuccess:
			e.t.Errorf("%s: unsignaled %s %d completed: %+v", e.name, p.what, wc.ID, wc)
		}
		if old, twice := e.got[wc.ID]; twice {
			e.t.Errorf("%s: %s %d completed twice: %+v and %+v", e.name, p.what, wc.ID, old, wc)
		}
		e.got[wc.ID] = wc
		e.order = append(e.order, wc.ID)
	}
	return n, err
}

// wait returns the completion of one ID, polling for all.
func (e *end) wait(id uint64) rdma.WC {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for armed := false; ; {
		e.mu.Lock()
		wc, ok := e.got[id]
		what := e.posted[id].what
		e.mu.Unlock()
		if ok {
			return wc
		}
		n, err := e.poll()
		e.check("Poll", err)
		if n > 0 {
			continue
		}
		if !armed {
			e.check("Arm", e.cq.Arm())
			armed = true
			continue // poll once more
		}
		if err := e.cq.Wait(ctx); err != nil {
			_, _ = e.poll()
			e.mu.Lock()
			_, late := e.got[id]
			e.mu.Unlock()
			if late {
				e.t.Fatalf("%s: no event for the completion of %s %d: %v", e.name, what, id, err)
			}
			e.t.Fatalf("%s: %s %d did not complete: %v", e.name, what, id, err)
		}
		armed = false
	}
}

// ok waits for the completion of an ID and demands success.
func (e *end) ok(id uint64) rdma.WC {
	e.t.Helper()
	wc := e.wait(id)
	if wc.Status != rdma.StatusSuccess {
		e.t.Fatalf("%s: work request %d: %v (vendor %#x)", e.name, id, wc.Status, wc.VendorErr)
	}
	return wc
}

// class waits for the completion of an ID and demands a failure of one of these
// classes.
func (e *end) class(id uint64, want ...error) rdma.WC {
	e.t.Helper()
	wc := e.wait(id)
	if !isAny(wc.Status.Err(), want...) {
		e.t.Errorf("%s: work request %d: %v, want %v", e.name, id, wc.Status, want)
	}
	return wc
}

func isAny(err error, want ...error) bool {
	for _, w := range want {
		if errors.Is(err, w) {
			return true
		}
	}
	return false
}

// balance checks the books once every QP is closed: each receive and each
// signaled send has completed once (poll sees a second time), each unsignaled
// send at most once, with an error. Receives of an SRQ may have gone with it.
func (e *end) balance() {
	for {
		n, err := e.poll()
		if err != nil && !errors.Is(err, rdma.ErrCQOverrun) {
			e.t.Errorf("%s: final Poll: %v", e.name, err)
		}
		if errors.Is(err, rdma.ErrCQOverrun) {
			return // what was in it is lost: that is what an overrun means
		}
		if n == 0 {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, p := range e.posted {
		_, done := e.got[id]
		_, shared := e.srq[id]
		if p.signaled && !done && !shared {
			e.t.Errorf("%s: %s %d never completed", e.name, p.what, id)
		}
	}
}

// expectDone waits until a QP is in ERR and demands one of these classes. It
// polls QPs of hardware, because they learn in this way what has happened to
// them.
func (e *end) expectDone(qp rdma.QP, want ...error) {
	e.t.Helper()
	deadline := time.After(patience)
	for poll := time.Nanosecond; ; poll = time.Millisecond {
		if !e.cfg.Hardware {
			poll = 2 * patience // it knows by itself
		}
		select {
		case <-qp.Done():
		case <-time.After(poll):
			// An error here is entered in the books, or is the end that the
			// test is about.
			_, _ = e.poll()
			continue
		case <-deadline:
			e.t.Fatalf("%s: the QP is still in state %v", e.name, qp.State())
		}
		break
	}
	if err := qp.Err(); !isAny(err, want...) {
		e.t.Errorf("%s: the QP ended with %v, want %v", e.name, err, want)
	}
	var op *rdma.OpError
	if !errors.As(qp.Err(), &op) {
		e.t.Errorf("%s: QP.Err is a %T, want an OpError", e.name, qp.Err())
	}
	if s := qp.State(); s != rdma.QPError {
		e.t.Errorf("%s: state %v after Done", e.name, s)
	}
}
