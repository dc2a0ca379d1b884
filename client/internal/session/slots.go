package session

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
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
// that gives up does not change that: both events find the slot by themselves.

// MessageSize is the size in bytes of the buffers for SENDs in both directions.
// Larger values travel by READ.
const MessageSize = 16<<10 + 256

// A Slot is one request that may be under way.
type Slot struct {
	s     *Session
	index int
	Buf   []byte // messageSize bytes, registered
	sgl   [1]rdma.SGE

	op     *wait.Op     // the reply; its ID is the request id
	before *Slot        // posted with it, just before: freed by the same completion
	parts  atomic.Int32 // completion and reply still to come; at 0 the slot is free

	// inflight is the request id while a reply is due, for the watch and for
	// the end of the session. late is an id whose waiter was told errLate: its
	// reply may still come and then frees the slot.
	inflight, late atomic.Uint64
	until          atomic.Int64 // coarse time at which the reply is overdue; 0: never
	begun          int64        // of a Ping: the lease clock before it was posted

	// held is what the server READs for this request: the value of a large put. It is
	// dropped with the reply or at the end of the QP, whether a caller waits or not.
	held Dropper

	onSent, onLate func(rdma.WC) // bound once, so that posting does not allocate
}

// A Dropper is memory that a request holds until the server READs it no more.
type Dropper interface{ Drop() }

// Hold has the slot drop d when the request is over.
func (sl *Slot) Hold(d Dropper) { sl.held = d }

// Detach leaves the reply of a posted request to itself: no caller waits for it.
func (sl *Slot) Detach() { sl.s.d.Detach(sl.op) }

// requests is the two-sided half of a session.
type requests struct {
	turns   *turnstile.Turnstile // free slots
	credits *turnstile.Turnstile // requests that the server is ready to receive

	mu      sync.Mutex
	free    []*Slot
	slots   []*Slot // all, the one for Ping last
	recvs   []byte  // receive buffers, messageSize each
	recvMR  rdma.MR
	recvSGE []rdma.SGE
	recvWR  []rdma.RecvWR  // one per buffer, never changed
	unread  []atomic.Int32 // of each receive: messages in it that somebody reads, or will

	posted  atomic.Int64  // receives that the fabric holds
	drained chan struct{} // closed when, after the end, it holds none
	regrant atomic.Uint32 // receives for unasked messages to grant again
}

// Open waits for a slot and a credit. Every failure is a base.NotSent.
func (l *link) Open(p *base.Limit) (*Slot, error) {
	if !l.life.Enter() {
		return nil, base.NotSent(base.ErrLost)
	}
	if err := p.Enter(l.rq.turns, 1); err != nil {
		l.life.Leave()
		return nil, base.NotSent(err)
	}
	if !l.rq.credits.TryEnter(1) {
		l.wantCredits.Store(true)
		if err := p.Enter(l.rq.credits, 1); err != nil {
			l.rq.turns.Leave(1)
			l.life.Leave()
			return nil, base.NotSent(err)
		}
	}
	return l.takeSlot(p), nil
}

// TryOpen is open for requests that can be left out.
func (l *link) TryOpen(p *base.Limit) *Slot { return l.TryOpenLeaving(p, 0) }

// TryOpenLeaving is tryOpen that leaves some slots and credits to others.
func (l *link) TryOpenLeaving(p *base.Limit, left int) *Slot {
	if !l.life.Enter() {
		return nil
	}
	if l.rq.turns.TryEnterLeaving(1, left) {
		if l.rq.credits.TryEnterLeaving(1, left) {
			return l.takeSlot(p)
		}
		l.rq.turns.Leave(1)
	}
	l.life.Leave()
	return nil
}

// AskForCredits has the next message tell the server that calls wait for credits.
func (l *link) AskForCredits() { l.wantCredits.Store(true) }

func (l *link) takeSlot(p *base.Limit) *Slot {
	l.rq.mu.Lock()
	sl := l.rq.free[len(l.rq.free)-1]
	l.rq.free = l.rq.free[:len(l.rq.free)-1]
	l.rq.mu.Unlock()
	sl.arm(p.Until())
	return sl
}

// arm readies a slot for one request.
func (sl *Slot) arm(until int64) {
	sl.op = sl.s.d.NewReply()
	sl.op.OnDetached(sl.onLate)
	sl.parts.Store(2)
	sl.until.Store(until)
}

// ID is the request id to encode.
func (sl *Slot) ID() uint64 { return sl.op.ID() }

// Post sends msg, which was encoded into sl.buf. After an error the slot is
// gone; the error is a base.NotSent.
func (sl *Slot) Post(msg []byte) error {
	if err := sl.address(msg); err != nil {
		return err
	}
	if err := sl.s.send(sl); err != nil {
		sl.Cancel()
		return base.NotSent(postError(err))
	}
	return nil
}

// Queue is Post for a caller that has several requests: msg travels with the next post of the
// session, which the caller makes by PostQueued before it waits for any reply. If it does not,
// the request may stay here until another call posts.
func (sl *Slot) Queue(msg []byte) error {
	if err := sl.address(msg); err != nil {
		return err
	}
	sl.s.enqueue(sl)
	return nil
}

// address completes the header of a message and notes that its reply is due. After an error the
// slot is gone; the error is a base.NotSent.
func (sl *Slot) address(msg []byte) error {
	s := sl.s
	if len(msg) > len(sl.Buf) {
		panic(fmt.Sprintf("client: message of %d bytes in a buffer of %d", len(msg), len(sl.Buf)))
	}
	wire.SetVersion(msg, s.version)
	s.sentAt.Store(s.Clock.Coarse())
	if !sl.isPing() {
		s.askedAt.Store(s.Clock.Coarse())
	}
	if n := s.rq.regrant.Swap(0); n != 0 {
		wire.SetCredits(msg, uint16(n))
	}
	if s.wantCredits.CompareAndSwap(true, false) {
		wire.SetFlags(msg, wire.FlagWantCredits)
	}
	sl.sgl[0].Len = uint32(len(msg))
	sl.inflight.Store(sl.op.ID())
	if s.IsDown() { // looked at after inflight is set: see session.fail
		sl.Cancel()
		return base.NotSent(base.ErrLost)
	}
	return nil
}

// postError is why a QP took nothing: mostly because the connection has ended.
func postError(err error) error {
	for _, gone := range []error{rdma.ErrNotConnected, rdma.ErrClosed, rdma.ErrFlushed} {
		if errors.Is(err, gone) {
			return base.ErrLost
		}
	}
	return err
}

// Cancel takes back a request that could not be posted. The end of the session
// may complete the reply at the same moment, so it is detached, not released;
// either way lateReply runs once and the slot is free.
func (sl *Slot) Cancel() {
	s, id := sl.s, sl.op.ID()
	sl.inflight.Store(0)
	sl.parts.Add(-1) // no SEND will complete
	if !sl.isPing() {
		s.rq.credits.Leave(1)
	}
	s.d.Detach(sl.op)
	s.d.Complete(id, rdma.WC{Status: rdma.StatusWRFlushErr})
}

// Await waits for the reply. A context that ends leaves the slot to the reply,
// which may still come.
func (sl *Slot) Await(p *base.Limit) (Reply, error) {
	s := sl.s
	wc, err := s.d.Wait(p.Ctx, sl.op)
	if err != nil {
		return Reply{}, s.waitError(err)
	}
	return sl.take(wc)
}

// waitError is why the dispatcher did not wait any longer: the end of the
// caller's context, or of the completion queue, which is that of the session.
func (l *link) waitError(err error) error {
	if cause := l.d.Err(); cause == nil || !errors.Is(err, cause) {
		return err
	}
	l.life.Fail(fmt.Errorf("completion queue: %w", err))
	return base.ErrLost
}

// take turns the completion of a reply into the reply.
func (sl *Slot) take(wc rdma.WC) (Reply, error) {
	switch wc.Status {
	case rdma.StatusSuccess:
		h, body, recv := sl.s.delivered(wc)
		return Reply{h: h, Body: body, slot: sl, recv: recv}, nil
	case rdma.StatusRespTimeoutErr:
		return Reply{}, base.ErrLate // the slot waits for the late reply
	default:
		sl.over()
		return Reply{}, base.ErrLost
	}
}

// Call posts msg and waits for its reply, whose status is OK: any other
// becomes an error.
func (sl *Slot) Call(p *base.Limit, msg []byte) (Reply, error) {
	want := wire.Type(msg[1]).Reply()
	if err := sl.Post(msg); err != nil {
		return Reply{}, err
	}
	r, err := sl.Await(p)
	if err != nil {
		return r, err
	}
	return r.Check(want)
}

// over notes that the reply has come and was read, or will not come. The server READs nothing more
// for this request then, so what it holds is dropped now: the completion of the SEND may be
// polled much later, and a caller may use its Buffer again as soon as its put returns.
func (sl *Slot) over() {
	sl.drop()
	sl.part()
}

// drop lets go of what the server was to READ.
func (sl *Slot) drop() {
	if sl.held != nil {
		sl.held.Drop()
		sl.held = nil
	}
}

// part notes that the SEND has completed or that the reply is over.
func (sl *Slot) part() {
	if sl.parts.Add(-1) != 0 {
		return
	}
	s := sl.s
	sl.inflight.Store(0)
	sl.drop() // of a request that was not posted
	if sl.isPing() {
		s.pingTurn.Leave(1)
	} else {
		s.rq.mu.Lock()
		s.rq.free = append(s.rq.free, sl)
		s.rq.mu.Unlock()
		s.rq.turns.Leave(1)
	}
	s.Leave()
}

// isPing: the last slot is kept for Ping, which needs neither turn nor credit.
func (sl *Slot) isPing() bool { return sl.index == len(sl.s.rq.slots)-1 }

// sent runs when the SEND of sl, and with it those posted before it, has
// completed or was flushed.
func (sl *Slot) sent(rdma.WC) {
	for sl != nil {
		before := sl.before
		sl.before = nil
		sl.part()
		sl = before
	}
}

// lateReply runs when the reply of a caller that gave up has come, or will not.
func (sl *Slot) lateReply(wc rdma.WC) {
	if wc.Status == rdma.StatusSuccess {
		_, body, recv := sl.s.delivered(wc)
		if sl.isPing() {
			if m, err := wire.ParsePingReply(body); err == nil {
				sl.s.pong(m, sl.begun)
				sl.s.sawView(m.ViewVersion)
			}
		}
		sl.s.repost(recv)
	} else if wc.Status == rdma.StatusRespTimeoutErr {
		return // told by the watch; the reply itself is still to come
	}
	sl.over()
}

// expire tells waiters whose reply is overdue, and returns how many requests
// are under way.
func (l *link) expire(now int64) (inflight int) {
	for _, sl := range l.rq.slots {
		id := sl.inflight.Load()
		if id == 0 {
			continue
		}
		inflight++
		if until := sl.until.Load(); until != 0 && now > until && sl.late.Load() == 0 {
			// late first: a reply that meets a finished op must find the slot.
			sl.late.Store(id)
			if !l.d.Complete(id, rdma.WC{Status: rdma.StatusRespTimeoutErr}) {
				sl.late.CompareAndSwap(id, 0)
			}
		}
	}
	return inflight
}
