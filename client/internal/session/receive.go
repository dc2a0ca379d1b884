package session

import (
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// The receiving side of requests.go: a receive is always posted for whatever the
// server may send. A reply is handed to its waiter where it landed, without a
// copy, and the receive is posted again when the waiter is done with it.

// A Reply is an answer that has been received. It is a view of a receive
// buffer: done must be called when it has been read.
type Reply struct {
	h    wire.Header
	Body []byte
	slot *Slot
	recv int
}

// Done gives the receive back to the fabric and the slot to the next caller.
func (r *Reply) Done() {
	if r.slot == nil {
		return
	}
	r.slot.s.repost(r.recv)
	r.slot.over()
	r.slot = nil
}

// Check is what every reply passes: the type must fit, the status be OK.
func (r Reply) Check(want wire.Type) (Reply, error) {
	if r.h.Type != want {
		err := fmt.Errorf("%w: a %v in place of a %v", base.ErrProtocol, r.h.Type, want)
		r.slot.s.Fail(err)
		r.Done()
		return Reply{}, err
	}
	if s := r.slot.s; want != wire.TypePing.Reply() {
		s.answered.Store(s.Clock.Coarse())
	}
	if err := wire.ReplyError(r.h, r.Body); err != nil {
		if r.h.Status == wire.StatusClosing {
			r.slot.s.Owner.Retire(r.slot.s)
		}
		switch r.h.Status {
		case wire.StatusMoved:
			err = r.moved()
		case wire.StatusNotLeader:
			err = r.notLeader()
		default:
			err = statusError(err)
		}
		r.Done()
		return Reply{}, err
	}
	return r, nil
}

// moved reads which node owns the shard of the key.
func (r *Reply) moved() error {
	m, err := wire.ParseMoved(r.Body)
	if err != nil {
		return base.Because(base.ErrMoved, err)
	}
	return &Moved{Session: r.slot.s, Version: m.MapVersion, Digest: m.MapDigest, Owner: string(m.Owner)}
}

// notLeader reads who leads the group of the key.
func (r *Reply) notLeader() error {
	m, err := wire.ParseNotLeader(r.Body)
	if err != nil {
		return base.Because(base.ErrMoved, err)
	}
	return &NotLeader{Group: m.Group, Term: m.Term, Leader: string(m.Leader), Session: r.slot.s}
}

// Malformed ends the session over a reply whose body does not parse.
func (r *Reply) Malformed(err error) error {
	err = fmt.Errorf("%w: %v: %v", base.ErrProtocol, r.h.Type, err)
	r.slot.s.Fail(err)
	r.Done()
	return err
}

// onRecv is called for every receive, on whatever goroutine polls the CQ.
func (s *Session) onRecv(wc rdma.WC) {
	n := int(wait.RecvNumber(wc.ID))
	if wc.Status != rdma.StatusSuccess {
		if s.rq.posted.Add(-1) == 0 {
			s.drainedAll()
		}
		return
	}
	s.rq.posted.Add(-1)
	s.heard.Store(s.Clock.Coarse())
	s.rq.unread[n].Store(1)
	msg := s.received(n, wc.ByteLen)
	in := s.sealIn.Load()
	if in == nil {
		s.protocolError(n, fmt.Errorf("%w: a message before the connection stands", base.ErrProtocol))
		return
	}
	if err := in.Open(msg); err != nil {
		s.protocolError(n, fmt.Errorf("%w: %v", base.ErrProtocol, err))
		return
	}
	h, err := wire.ParseHeader(msg)
	if err != nil {
		s.protocolError(n, fmt.Errorf("%w: %v", base.ErrProtocol, err))
		return
	}
	if h.Version != s.version {
		s.protocolError(n, fmt.Errorf("%w: version %d in a session of version %d", base.ErrProtocol, h.Version, s.version))
		return
	}
	if h.Type == wire.TypePack.Reply() {
		s.onPack(n, h, wire.Body(msg))
		return
	}
	if !s.grants(n, h) {
		return
	}
	if h.Type == wire.TypeGoodbye {
		s.goodbye(h, wire.Body(msg))
		s.repost(n)
		s.rq.regrant.Add(1)
		return
	}
	if !h.Type.IsReply() {
		s.protocolError(n, fmt.Errorf("%w: a %v from a server", base.ErrProtocol, h.Type))
		return
	}
	s.deliver(n, h, 0, wc.ByteLen)
}

// onPack is onRecv for the pack of a header that has parsed: each of its replies is delivered by
// itself, and the receive is posted again when all have been read.
func (s *Session) onPack(n int, h wire.Header, body []byte) {
	count, err := 0, error(nil)
	if !s.outbox.packs {
		err = fmt.Errorf("a %v that was not agreed on", h.Type)
	} else {
		count, err = wire.ParsePack(h, body)
	}
	if err != nil {
		s.protocolError(n, fmt.Errorf("%w: %v", base.ErrProtocol, err))
		return
	}
	s.rq.unread[n].Store(int32(count))
	at := wire.HeaderSize
	for i := range count {
		m, _, rest, _ := wire.NextPacked(body)
		size := len(body) - len(rest)
		body = rest
		if !s.grants(n, m) || !s.deliver(n, m, at, uint32(size)) {
			for range count - i - 1 { // those behind it are nobody's
				s.repost(n)
			}
			return
		}
		at += size
	}
}

// grants takes the credits that a message gives. false: they are too many, and the session ends.
func (l *link) grants(n int, h wire.Header) bool {
	if h.Credits != 0 && !l.granted(int(h.Credits)) {
		l.protocolError(n, fmt.Errorf("%w: more credits than a server may grant", base.ErrProtocol))
		return false
	}
	return true
}

// deliver hands a reply in receive n to its waiter: the whole of it, or size bytes from at on, of a
// pack. false: nobody has asked for it, and the session ends.
func (l *link) deliver(n int, h wire.Header, at int, size uint32) bool {
	if l.d.Complete(h.ID, rdma.WC{ID: uint64(at)<<32 | uint64(n), ByteLen: size}) {
		return true // the waiter, or lateReply, reposts the receive
	}
	for _, sl := range l.rq.slots {
		if sl.late.CompareAndSwap(h.ID, 0) {
			l.repost(n)
			sl.over()
			return true
		}
	}
	l.protocolError(n, fmt.Errorf("%w: a %v that nobody asked for", base.ErrProtocol, h.Type))
	return false
}

// delivered is the reply that deliver has handed over, and its receive, which is to be posted again.
func (l *link) delivered(wc rdma.WC) (h wire.Header, body []byte, recv int) {
	recv = int(uint32(wc.ID))
	var err error
	if at := int(wc.ID >> 32); at > 0 {
		h, body, _, err = wire.NextPacked(l.received(recv, uint32(at)+wc.ByteLen)[at:])
	} else {
		msg := l.received(recv, wc.ByteLen)
		h, err = wire.ParseHeader(msg)
		body = wire.Body(msg)
	}
	if err != nil { // onRecv has parsed it before
		panic(fmt.Sprintf("client: header of a delivered reply: %v", err))
	}
	return h, body, recv
}

// maxCredits bounds what a server can grant; more is nonsense.
const maxCredits = 1 << 20

func (l *link) granted(n int) bool {
	if free, _ := l.rq.credits.State(); free+n > maxCredits {
		return false
	}
	l.rq.credits.Leave(n)
	return true
}

func (l *link) protocolError(recv int, err error) {
	l.repost(recv) // flushed with the others when the QP goes down
	l.life.Fail(err)
}

// received is what receive n holds.
func (l *link) received(n int, length uint32) []byte {
	at := n * MessageSize
	return l.rq.recvs[at : at+min(int(length), MessageSize) : at+MessageSize]
}

// repost says that one who reads receive n is done with it; the last one hands it to the
// fabric. On a dead QP it comes back flushed.
func (l *link) repost(n int) {
	if l.rq.unread[n].Add(-1) > 0 {
		return
	}
	l.rq.posted.Add(1)
	if k, _ := l.QP.PostRecv(l.rq.recvWR[n : n+1]); k == 0 && l.rq.posted.Add(-1) == 0 {
		l.drainedAll()
	}
}
