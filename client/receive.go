package client

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/teeth"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// The receiving side of requests.go: a receive is always posted for whatever the
// server may send. A reply is handed to its waiter where it landed, without a
// copy, and the receive is posted again when the waiter is done with it.

// A reply is an answer that has been received. It is a view of a receive
// buffer: done must be called when it has been read.
type reply struct {
	h    wire.Header
	body []byte
	slot *slot
	recv int
}

// done gives the receive back to the fabric and the slot to the next caller.
func (r *reply) done() {
	if r.slot == nil {
		return
	}
	r.slot.s.repost(r.recv)
	r.slot.part()
	r.slot = nil
}

// check is what every reply passes: the type must fit, the status be OK.
func (r reply) check(want wire.Type) (reply, error) {
	if r.h.Type != want {
		err := fmt.Errorf("%w: a %v in place of a %v", ErrProtocol, r.h.Type, want)
		r.slot.s.fail(err)
		r.done()
		return reply{}, err
	}
	if err := wire.ReplyError(r.h, r.body); err != nil {
		if r.h.Status == wire.StatusClosing {
			r.slot.s.c.retire(r.slot.s)
		}
		if r.h.Status == wire.StatusMoved {
			err = r.moved()
		} else {
			err = statusError(err)
		}
		r.done()
		return reply{}, err
	}
	return r, nil
}

// moved reads who owns the shard of the key.
func (r *reply) moved() error {
	m, err := wire.ParseMoved(r.body)
	if err != nil {
		return because(ErrMoved, err)
	}
	return &movedError{s: r.slot.s, version: m.MapVersion, digest: m.MapDigest, owner: string(m.Owner)}
}

// malformed ends the session over a reply whose body does not parse.
func (r *reply) malformed(err error) error {
	err = fmt.Errorf("%w: %v: %v", ErrProtocol, r.h.Type, err)
	r.slot.s.fail(err)
	r.done()
	return err
}

// onRecv is called for every receive, on whatever goroutine polls the CQ.
func (s *session) onRecv(wc rdma.WC) {
	n := int(rdma.RecvNumber(wc.ID))
	if wc.Status != rdma.StatusSuccess {
		if s.rq.posted.Add(-1) == 0 {
			s.drainedAll()
		}
		return
	}
	s.rq.posted.Add(-1)
	s.heard.Store(s.c.coarse.Load())
	msg := s.received(n, wc.ByteLen)
	in := s.sealIn.Load()
	if in == nil {
		s.protocolError(n, fmt.Errorf("%w: a message before the connection stands", ErrProtocol))
		return
	}
	if err := in.Open(msg); err != nil && !teeth.Off(teeth.D7SealChecked) {
		s.protocolError(n, fmt.Errorf("%w: %v", ErrProtocol, err))
		return
	}
	h, err := wire.ParseHeader(msg)
	if err != nil {
		s.protocolError(n, fmt.Errorf("%w: %v", ErrProtocol, err))
		return
	}
	if h.Version != s.version {
		s.protocolError(n, fmt.Errorf("%w: version %d in a session of version %d", ErrProtocol, h.Version, s.version))
		return
	}
	if h.Credits != 0 && !s.granted(int(h.Credits)) {
		s.protocolError(n, fmt.Errorf("%w: more credits than a server may grant", ErrProtocol))
		return
	}
	if h.Type == wire.TypeGoodbye {
		s.goodbye(h, wire.Body(msg))
		s.repost(n)
		s.rq.regrant.Add(1)
		return
	}
	if !h.Type.IsReply() {
		s.protocolError(n, fmt.Errorf("%w: a %v from a server", ErrProtocol, h.Type))
		return
	}
	if s.d.Complete(h.ID, rdma.WC{ID: uint64(n), ByteLen: wc.ByteLen}) {
		return // the waiter, or lateReply, reposts the receive
	}
	for _, sl := range s.rq.slots {
		if sl.late.CompareAndSwap(h.ID, 0) {
			s.repost(n)
			sl.part()
			return
		}
	}
	s.protocolError(n, fmt.Errorf("%w: a %v that nobody asked for", ErrProtocol, h.Type))
}

// maxCredits bounds what a server can grant; more is nonsense.
const maxCredits = 1 << 20

func (s *session) granted(n int) bool {
	if free, _ := s.rq.credits.state(); free+n > maxCredits {
		return false
	}
	s.rq.credits.leave(n)
	return true
}

func (s *session) protocolError(recv int, err error) {
	s.repost(recv) // flushed with the others when the QP goes down
	s.fail(err)
}

// received is what receive n holds.
func (s *session) received(n int, length uint32) []byte {
	at := n * messageSize
	return s.rq.recvs[at : at+min(int(length), messageSize) : at+messageSize]
}

// repost hands receive n to the fabric. On a dead QP it comes back flushed.
func (s *session) repost(n int) {
	s.rq.posted.Add(1)
	if k, _ := s.qp.PostRecv(s.rq.recvWR[n : n+1]); k == 0 && s.rq.posted.Add(-1) == 0 {
		s.drainedAll()
	}
}
