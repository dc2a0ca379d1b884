package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A talk is one end of a way of questions (wire.LaneAsk), on which both ends send by credits:
//
//	asks                                        answers
//	credit    8                            ──▶              the receives of this end; those of the other came with the welcome
//	question  id 1, a part                 ──▶
//	question  id 1, the last part          ──▶  Config.Answer
//	question  id 2, the last part          ──▶  Config.Answer beside it
//	          ◀── answer   id 2, its parts, the last one marked
//	          ◀── failure  id 1: code, text
//	          ◀── credit   4
//
// The value of all three kinds is the question's id; ids rise on a way. A question or an answer has at most MaxAsk bytes, its parts come one behind
// the other, and each but the last has a byte or more. So an end keeps at most one that is not whole.
//
// A credit needs none: it goes into one of the receives that are kept for that (shape.kept). Two are enough, because an end gives credits when it
// owes half of what it grants, so of what it has given two at most are not taken yet: for a third one the other end would have had to send more
// than it has credits for.
//
// Whoever has mu posts; one goroutine, listen, takes completions.
type talk struct {
	t      *Transport
	node   string
	e      *end
	ctx    context.Context // ends with the way
	cancel context.CancelFunc

	mu      sync.Mutex
	free    []int // slots whose SENDs have completed
	credits int
	most    int       // credits; 0: the other end has not given any yet
	owed    int       // receives that are posted, and the other end does not know
	queue   []*speech // what waits to be sent, in this order; of the first one a part may have been
	err     error     // why the way has ended; nil: it has not

	part gathered // of listen alone
}

// A speech is a question, an answer or a failure that is to be sent.
type speech struct {
	kind  uint8
	id    uint32
	rest  []byte // that is not sent
	begun bool   // a part of it is sent
	left  func() // called when the last part is posted, with mu held; nil: nobody wants to know
}

// A gathered is what has come of a question or an answer.
type gathered struct {
	id   uint32 // 0: nothing has come
	body []byte
}

// newTalk takes an end over, until ctx ends. credits are those that the other end has given, owed the receives that it has not been told of.
func newTalk(ctx context.Context, t *Transport, node string, e *end, credits, owed int) *talk {
	w := &talk{t: t, node: node, e: e, free: e.free, credits: credits, most: credits, owed: owed}
	e.free = nil
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// pump posts what there is to say, as far as there are slots and credits: credits first, which need none. Caller holds mu.
func (w *talk) pump() {
	for w.err == nil && len(w.free) > 0 {
		slot := w.free[len(w.free)-1]
		m, n := message{kind: kindCredit, value: uint32(w.owed)}, 0
		var left func()
		switch {
		case w.owed >= w.e.grants()/2:
			w.owed = 0
		case len(w.queue) > 0 && w.credits > 0:
			s := w.queue[0]
			n = copy(w.e.sendSlot(slot)[head:], s.rest)
			s.rest, s.begun = s.rest[n:], true
			m = message{kind: s.kind, value: s.id, last: len(s.rest) == 0}
			w.credits--
			if m.last {
				w.queue[0] = nil
				w.queue = w.queue[1:]
				left = s.left
			}
		default:
			return
		}
		w.free = w.free[:len(w.free)-1]
		if err := w.e.post(slot, n, m, true); err != nil {
			w.fail(err)
			return
		}
		if left != nil {
			left()
		}
	}
}

// fail ends the way for a reason, unless it has one already. Caller holds mu.
func (w *talk) fail(err error) {
	if w.err == nil {
		w.err = err
		w.cancel()
		w.e.qp.Disconnect()
	}
}

// ended is fail for who does not hold mu; it returns the first reason.
func (w *talk) ended(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
	return w.err
}

// waits reports whether the other node owes something: a SEND is not completed, or there is no credit for what is to be sent. Both come
// soon, or never.
func (w *talk) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.free) < w.e.sends || len(w.queue) > 0 && w.credits == 0
}

// listen takes what comes until the way ends, or the other node owes something for too long. It hands each part to hear, and calls rest when
// nothing has come for Config.Stall; an error of either one ends the way. When it returns, nothing is posted any more.
func (w *talk) listen(hear func(m message) error, rest func() error) error {
	late := false
	for {
		wait, cancel := context.WithTimeout(w.ctx, w.t.c.Stall)
		gone := w.e.poll(wait)
		cancel()
		if errors.Is(gone, context.DeadlineExceeded) && w.ctx.Err() == nil {
			waits := w.waits()
			if waits && late {
				return w.ended(fmt.Errorf("neither completions nor credits for %v: %w", w.t.c.Stall, rdma.ErrPeerGone))
			}
			late = waits
			if err := rest(); err != nil {
				return w.ended(err)
			}
			continue
		}
		late = false
		for len(w.e.done) > 0 { // also if the way has ended: these came before
			m, slot, err := w.e.hear(w.ctx)
			if err == nil {
				err = w.take(m, slot, hear)
			}
			if err != nil {
				return w.ended(err)
			}
		}
		if gone != nil {
			return w.ended(gone)
		}
		w.mu.Lock()
		w.free = append(w.free, w.e.free...)
		w.e.free = w.e.free[:0]
		w.pump()
		w.mu.Unlock()
	}
}

// take handles a message, and gives its receive back.
func (w *talk) take(m message, slot int, hear func(m message) error) error {
	credits, owed := 0, 1
	if m.kind == kindCredit {
		if m.value == 0 || m.value > maxCredits || len(m.body) > 0 {
			return fmt.Errorf("%w: %d credits, in %d bytes", errProtocol, m.value, len(m.body))
		}
		credits, owed = int(m.value), 0
	} else if err := hear(m); err != nil {
		return err
	}
	if err := w.e.recv(slot); err != nil { // before the other end can use the credits
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owed += owed
	if w.credits += credits; w.most == 0 {
		w.most = credits
	}
	if w.credits > w.most {
		return fmt.Errorf("%w: %d credits, of %d", errProtocol, w.credits, w.most)
	}
	w.pump()
	return nil
}

// gather adds a part, which stays the caller's. whole: it was the last one, and body is all of it, which is the caller's.
func (w *talk) gather(m message) (body []byte, whole bool, err error) {
	p := &w.part
	switch {
	case m.value == 0 || p.id != 0 && p.id != m.value:
		return nil, false, fmt.Errorf("%w: a part of %d within %d", errProtocol, m.value, p.id)
	case !m.last && len(m.body) == 0:
		return nil, false, fmt.Errorf("%w: an empty part of %d, which is not the last", errProtocol, m.value)
	case len(p.body)+len(m.body) > MaxAsk:
		return nil, false, fmt.Errorf("%w: more than %d bytes of %d", errProtocol, MaxAsk, m.value)
	}
	p.id, p.body = m.value, append(p.body, m.body...)
	if !m.last {
		return nil, false, nil
	}
	body, *p = p.body, gathered{}
	return body, true, nil
}

// rejected says what the rejection of a connection request on the lane of questions means.
func rejected(private []byte, err error) error {
	if !errors.Is(err, rdma.ErrRejected) {
		return err
	}
	switch why, _, bad := wire.ParseNodeReject(private); {
	case bad == nil && why == wire.NodeBusy:
		return fmt.Errorf("%w: it sets up as many ways as it may, ask again: %w", consensus.ErrBusy, err)
	case bad == nil:
		return fmt.Errorf("the node has no ways to this one now, or does not know its secret: %w", err)
	case len(wire.Unpad(private, 0)) == 0:
		return fmt.Errorf("%w: %w", ErrOlder, err)
	}
	return err // a word of the fabric
}
