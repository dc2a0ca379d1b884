package client

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// How requests travel. A session owns a fixed number of slots; a slot is one
// request under way, with a send buffer, and entitles to one receive buffer.
// A request needs a slot and a credit of the server's; both are waited for in
// order of arrival.
//
//	slot ──begin──▶ encode into its buffer ──post SEND──▶ ┬─ SEND completes ──┐
//	  ▲                                                  └─ reply arrives ────┤ parts = 0
//	  └───────────── free again, receive posted again ◀────────────────────────┘
//
// Two things must have happened before a slot is used again: the completion of
// its SEND (until then the buffer is the fabric's, whatever a reply says) and
// the end of its reply (until then a receive must stay posted for it). A caller
// who gives up does not change that: both events find the slot by themselves.

// messageSize is the size in bytes of the buffers for SENDs in both directions.
// Larger values travel by READ.
const messageSize = 16<<10 + 256

// spareReceives are posted beside one per slot: for the reply to Ping and for
// messages that the server sends unasked.
const (
	unaskedReceives = 2
	spareReceives   = 1 + unaskedReceives
)

// errLost: the session ended while a request was under way or before it could
// be posted. What it means depends on the request (retry.go).
var errLost = errors.New("connection lost")

// errLate: the watch failed a request whose reply is overdue.
var errLate = errors.New("no reply in time")

// errNotSent wraps what prevented a request from being posted: it certainly had
// no effect.
type errNotSent struct{ cause error }

func (e errNotSent) Error() string { return "not sent: " + e.cause.Error() }
func (e errNotSent) Unwrap() error { return e.cause }

// A slot is one request that may be under way.
type slot struct {
	s     *session
	index int
	buf   []byte // messageSize bytes, registered
	sgl   [1]rdma.SGE

	op     *rdma.Op     // the reply; its ID is the request id
	before *slot        // posted with it, just before: freed by the same completion
	parts  atomic.Int32 // completion and reply still to come; at 0 the slot is free

	// inflight is the request id while a reply is due, for the watch and for
	// the end of the session. late is an id whose waiter was told errLate: its
	// reply may still come and then frees the slot.
	inflight, late atomic.Uint64
	until          atomic.Int64 // coarse time at which the reply is overdue; 0: never
	begun          int64        // of a Ping: the lease clock before it was posted

	// staged is the value of a large put, which the server READs. It belongs
	// to the put until the reply or the end of the QP, whoever waits.
	staged *staged

	onSent, onLate func(rdma.WC) // bound once, so that posting does not allocate
}

// requests is the two-sided half of a session.
type requests struct {
	turns   *turnstile // free slots
	credits *turnstile // requests that the server is ready to receive

	mu      sync.Mutex
	free    []*slot
	slots   []*slot // all, the one for Ping last
	recvs   []byte  // receive buffers, messageSize each
	recvMR  rdma.MR
	recvSGE []rdma.SGE
	recvWR  []rdma.RecvWR // one per buffer, never changed

	posted  atomic.Int64  // receives that the fabric holds
	drained chan struct{} // closed when, after the end, it holds none
	regrant atomic.Uint32 // receives for unasked messages to grant again
}

// open waits for a slot and a credit. Every failure is an errNotSent.
func (s *session) open(p *patience) (*slot, error) {
	if !s.use() {
		return nil, errNotSent{errLost}
	}
	if err := p.enter(s.rq.turns, 1); err != nil {
		s.unuse()
		return nil, errNotSent{err}
	}
	if !s.rq.credits.tryEnter(1) {
		s.wantCredits.Store(true)
		if err := p.enter(s.rq.credits, 1); err != nil {
			s.rq.turns.leave(1)
			s.unuse()
			return nil, errNotSent{err}
		}
	}
	return s.takeSlot(p), nil
}

// tryOpen is open for requests that can be left out.
func (s *session) tryOpen(p *patience) *slot { return s.tryOpenLeaving(p, 0) }

// tryOpenLeaving is tryOpen that leaves some slots and credits to others.
func (s *session) tryOpenLeaving(p *patience, left int) *slot {
	if !s.use() {
		return nil
	}
	if s.rq.turns.tryEnterLeaving(1, left) {
		if s.rq.credits.tryEnterLeaving(1, left) {
			return s.takeSlot(p)
		}
		s.rq.turns.leave(1)
	}
	s.unuse()
	return nil
}

func (s *session) takeSlot(p *patience) *slot {
	s.rq.mu.Lock()
	sl := s.rq.free[len(s.rq.free)-1]
	s.rq.free = s.rq.free[:len(s.rq.free)-1]
	s.rq.mu.Unlock()
	sl.arm(p.until)
	return sl
}

// arm readies a slot for one request.
func (sl *slot) arm(until int64) {
	sl.op = sl.s.d.NewReply()
	sl.op.OnDetached(sl.onLate)
	sl.parts.Store(2)
	sl.until.Store(until)
}

// id is the request id to encode.
func (sl *slot) id() uint64 { return sl.op.ID() }

// post sends msg, which was encoded into sl.buf. After an error the slot is
// gone; the error is an errNotSent.
func (sl *slot) post(msg []byte) error {
	s := sl.s
	if len(msg) > len(sl.buf) {
		panic(fmt.Sprintf("client: message of %d bytes in a buffer of %d", len(msg), len(sl.buf)))
	}
	wire.SetVersion(msg, s.version)
	s.sentAt.Store(s.c.coarse.Load())
	if !sl.isPing() {
		s.askedAt.Store(s.c.coarse.Load())
	}
	if n := s.rq.regrant.Swap(0); n != 0 {
		wire.SetCredits(msg, uint16(n))
	}
	if s.wantCredits.CompareAndSwap(true, false) {
		wire.SetFlags(msg, wire.FlagWantCredits)
	}
	sl.sgl[0].Len = uint32(len(msg))
	sl.inflight.Store(sl.op.ID())
	if s.isDown() { // looked at after inflight is set: see session.fail
		sl.unpost()
		return errNotSent{errLost}
	}
	if err := s.send(sl, msg); err != nil {
		sl.unpost()
		return errNotSent{postError(err)}
	}
	return nil
}

// postError is why a QP took nothing: mostly because the connection has ended.
func postError(err error) error {
	for _, gone := range []error{rdma.ErrNotConnected, rdma.ErrClosed, rdma.ErrFlushed} {
		if errors.Is(err, gone) {
			return errLost
		}
	}
	return err
}

// unpost takes back a request that could not be posted. The end of the session
// may complete the reply at the same moment, so it is detached, not released;
// either way lateReply runs once and the slot is free.
func (sl *slot) unpost() {
	s, id := sl.s, sl.op.ID()
	sl.inflight.Store(0)
	sl.parts.Add(-1) // no SEND will complete
	if !sl.isPing() {
		s.rq.credits.leave(1)
	}
	s.d.Detach(sl.op)
	s.d.Complete(id, rdma.WC{Status: rdma.StatusWRFlushErr})
}

// await waits for the reply. A context that ends leaves the slot to the reply,
// which may still come.
func (sl *slot) await(p *patience) (reply, error) {
	s := sl.s
	wc, err := s.d.Wait(p.ctx, sl.op)
	if err != nil {
		return reply{}, s.waitError(err)
	}
	return sl.take(wc)
}

// waitError is why the dispatcher did not wait any longer: the end of the
// caller's context, or of the completion queue, which is that of the session.
func (s *session) waitError(err error) error {
	if cause := s.d.Err(); cause == nil || !errors.Is(err, cause) {
		return err
	}
	s.fail(fmt.Errorf("completion queue: %w", err))
	return errLost
}

// take turns the completion of a reply into the reply.
func (sl *slot) take(wc rdma.WC) (reply, error) {
	switch wc.Status {
	case rdma.StatusSuccess:
		msg := sl.s.received(int(wc.ID), wc.ByteLen)
		h, err := wire.ParseHeader(msg)
		if err != nil { // onRecv has parsed it before
			panic(fmt.Sprintf("client: header of a delivered reply: %v", err))
		}
		return reply{h: h, body: wire.Body(msg), slot: sl, recv: int(wc.ID)}, nil
	case rdma.StatusRespTimeoutErr:
		return reply{}, errLate // the slot waits for the late reply
	default:
		sl.part()
		return reply{}, errLost
	}
}

// call posts msg and waits for its reply, whose status is OK: any other
// becomes an error.
func (sl *slot) call(p *patience, msg []byte) (reply, error) {
	want := wire.Type(msg[1]).Reply()
	if err := sl.post(msg); err != nil {
		return reply{}, err
	}
	r, err := sl.await(p)
	if err != nil {
		return r, err
	}
	return r.check(want)
}

// part notes that the SEND has completed or that the reply is over.
func (sl *slot) part() {
	if sl.parts.Add(-1) != 0 {
		return
	}
	s := sl.s
	sl.inflight.Store(0)
	if sl.staged != nil { // the server reads it no more for this request
		sl.staged.drop()
		sl.staged = nil
	}
	if sl.isPing() {
		s.pingTurn.leave(1)
	} else {
		s.rq.mu.Lock()
		s.rq.free = append(s.rq.free, sl)
		s.rq.mu.Unlock()
		s.rq.turns.leave(1)
	}
	s.unuse()
}

// isPing: the last slot is kept for Ping, which needs neither turn nor credit.
func (sl *slot) isPing() bool { return sl.index == len(sl.s.rq.slots)-1 }

// sent runs when the SEND of sl, and with it those posted before it, has
// completed or was flushed.
func (sl *slot) sent(rdma.WC) {
	for sl != nil {
		before := sl.before
		sl.before = nil
		sl.part()
		sl = before
	}
}

// lateReply runs when the reply of a caller who gave up has come, or will not.
func (sl *slot) lateReply(wc rdma.WC) {
	if wc.Status == rdma.StatusSuccess {
		if sl.isPing() {
			if m, err := wire.ParsePingReply(wire.Body(sl.s.received(int(wc.ID), wc.ByteLen))); err == nil {
				sl.s.pong(m, sl.begun)
				sl.s.sawView(m.ViewVersion)
			}
		}
		sl.s.repost(int(wc.ID))
	} else if wc.Status == rdma.StatusRespTimeoutErr {
		return // told by the watch; the reply itself is still to come
	}
	sl.part()
}

// expire tells waiters whose reply is overdue, and returns how many requests
// are under way.
func (s *session) expire(now int64) (inflight int) {
	for _, sl := range s.rq.slots {
		id := sl.inflight.Load()
		if id == 0 {
			continue
		}
		inflight++
		if until := sl.until.Load(); until != 0 && now > until && sl.late.Load() == 0 {
			// late first: a reply that meets a finished op must find the slot.
			sl.late.Store(id)
			if !s.d.Complete(id, rdma.WC{Status: rdma.StatusRespTimeoutErr}) {
				sl.late.CompareAndSwap(id, 0)
			}
		}
	}
	return inflight
}
