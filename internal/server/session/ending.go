package session

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// How sessions end: at once (end), after what is queued has been sent (leave),
// or with the node (farewell). In each case watch clears up.

// A life is how far a session has come, from new over open to its end. The state only goes
// on, and the first cause of its end counts. Whatever waits for something on behalf of the
// session ends with ctx; buffers are free when quiet is closed.
type life struct {
	state atomic.Uint32 // sessionState
	ctx   context.Context
	stop  context.CancelFunc
	heard atomic.Int64 // when the last message came, as asked by group.clock
	asked int64        // when the last message but Pings came; guarded by lane.pollMu

	// inflight counts requests being handled and one for the session itself;
	// quiet is closed when it reaches zero.
	inflight atomic.Int32
	quiet    chan struct{}
	closed   chan struct{} // closed when its QP is, and no READ of the peer completes
	// drained is closed when, after that, no completion of its QP will come any more.
	drained chan struct{}

	// Guarded by session.mu.
	dead   bool       // nothing is posted any more
	why    base.Cause // the first cause; causeNone while it lives
	whyErr error      // with detail for the log; may be nil
}

// End makes the session die of a cause; the first one counts. It does not
// wait: watch clears up once the QP is in ERR.
func (s *Session) End(c base.Cause, err error) {
	s.mu.Lock()
	s.endLocked(c, err)
	s.mu.Unlock()
}

func (s *Session) endLocked(c base.Cause, err error) {
	if s.why == base.CauseNone {
		s.why, s.whyErr = c, err
	}
	s.state.Store(uint32(stateEnd))
	s.qp.Disconnect()
}

// leave ends the session after a Goodbye and whatever else is queued has been
// sent; the janitor cuts it off if the client does not take them.
func (s *Session) leave(c base.Cause, st wire.Status, detail string) {
	s.mu.Lock()
	if s.why != base.CauseNone {
		s.mu.Unlock()
		return
	}
	s.why = c
	s.state.Store(uint32(stateEnd))
	s.leaving = true
	s.goodbyeLocked(st, detail)
	s.mu.Unlock()
	s.Flush()
}

// farewell tells the client that this node is shutting down and goes on
// answering (with StatusClosing), so that requests already on their way do not
// end with an unknown outcome. A client disconnects when it has its answers.
func (s *Session) farewell() {
	s.mu.Lock()
	if s.why == base.CauseNone {
		s.why = base.CauseShutdown
		s.goodbyeLocked(wire.StatusClosing, "")
	}
	s.mu.Unlock()
	s.Flush()
}

// goodbyeLocked queues a Goodbye if the client is ready for one.
func (s *Session) goodbyeLocked(st wire.Status, detail string) {
	if s.serverCredit == 0 {
		return
	}
	s.serverCredit--
	if len(detail) > SmallReply-wire.HeaderSize {
		detail = detail[:SmallReply-wire.HeaderSize]
	}
	if b, err := s.lane.newReply(s, SmallReply); err == nil {
		b.N = len(wire.AppendGoodbye(b.Mem[:0], st, detail))
		s.out = append(s.out, b)
	}
}

// watch lives as long as the session and clears up after it. When ctx ends or
// the node is fenced, so does the session, however far it has come.
func (s *Session) watch(ctx context.Context) {
	setup := time.NewTimer(s.group.cfg.SetupTimeout)
	defer setup.Stop()
	lost := s.setup.lost.Done()
	for alive := true; alive; {
		select {
		case <-s.qp.Done():
			alive = false
		case <-setup.C:
			if sessionState(s.state.Load()) == stateNew {
				s.End(base.CauseSetup, nil)
			}
		case <-lost:
			s.End(base.CauseCrowded, nil)
			lost = nil
		case <-ctx.Done():
			s.End(base.CauseShutdown, nil)
			<-s.qp.Done()
			alive = false
		case <-s.group.Fence.Done():
			// Here, not in a list of the sessions that there are: one may be
			// on its way in, and would be given a lease by its Welcome.
			s.End(base.CauseShutdown, s.group.Fence.Err())
			<-s.qp.Done()
			alive = false
		}
	}
	s.finish()
}

// finish releases what the session holds, in the one order that is safe: no
// new posts, the QP let go of every buffer, no completion left, no request
// left; then buffers and counts.
func (s *Session) finish() {
	qpErr := s.qp.Err()
	s.mu.Lock()
	s.dead = true
	s.state.Store(uint32(stateEnd))
	if s.why == base.CauseNone {
		s.why, s.whyErr = base.CauseOf(qpErr), qpErr
	}
	out, spent := s.out, s.spent
	s.out, s.spent = nil, nil
	s.mu.Unlock()

	s.stop()
	s.qp.Close()
	close(s.closed)
	s.lane.drain()
	close(s.drained)
	s.group.Gate.drop(s)
	s.dropWaiting()
	for _, b := range spent {
		s.discard(b)
	}
	for _, b := range out {
		b.Free()
	}
	s.exit()
	select {
	case <-s.quiet:
	case <-s.group.Fence.Done():
		select {
		case <-s.quiet: // a store that is well calls back, into what is closed after the sessions
		case <-s.group.Fence.Silent():
			// Durability is gone: the store will not call back for the writes it
			// has, and their memory stays theirs. The process is ending.
			s.group.forget(s)
			return
		}
	}

	s.mu.Lock()
	for _, b := range s.sent {
		b.Free()
	}
	s.sent = nil
	owned := s.owned
	s.owned = 0
	s.chargeLocked(-s.charged)
	s.mu.Unlock()
	if conn := s.Conn(); conn != nil {
		conn.Close()
	}
	if s.lane.srq != nil {
		s.lane.unpromise(owned)
	}
	s.group.forget(s)
}

// Dismiss asks the client to connect again. What is under way is answered; it
// disconnects when it has its answers.
func (s *Session) Dismiss(c base.Cause, detail string) {
	s.mu.Lock()
	if s.why == base.CauseNone {
		s.why = c
		s.goodbyeLocked(wire.StatusClosing, detail)
	}
	s.mu.Unlock()
	s.Flush()
}

// DismissOrEnd is Dismiss of a client that must not stay: one that cannot be told now is disconnected.
func DismissOrEnd(s *Session, c base.Cause, detail string) {
	s.mu.Lock()
	mute := s.why == base.CauseNone && s.serverCredit == 0
	s.mu.Unlock()
	if mute {
		s.End(c, nil)
		return
	}
	s.Dismiss(c, detail)
}

// EndReader ends a client that READs and must not any more, at once: it has no rights when EndReader returns.
func EndReader(s *Session) {
	// An error means that the QP is not in a state to have rights.
	_ = s.qp.SetAccess(0)
	s.End(base.CauseTable, nil)
}

// NoReads says whether no READ of the client completes any more, because its QP is closed.
func NoReads(s *Session) bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// revokeGrace is how long a client may take its Goodbye.
const revokeGrace = 200 * time.Millisecond

// Revoke takes the session's right away, tells the client and ends it.
func (s *Session) Revoke() {
	// An error means that the QP is not in a state to have rights.
	_ = s.qp.SetAccess(0)
	s.leave(base.CauseRevoked, wire.StatusAuth, "access was revoked")
	// What the client has asked for is not begun any more; what is being done ends.
	s.stop()
	s.dropWaiting()
	grace := time.NewTimer(revokeGrace)
	defer grace.Stop()
	select {
	case <-s.qp.Done():
	case <-s.closed:
	case <-grace.C:
	}
	s.End(base.CauseRevoked, nil)
}

// dropWaiting ends the requests of an ending session that wait for something.
func (s *Session) dropWaiting() {
	if conn := s.Conn(); conn != nil {
		conn.Cancel()
	}
	if r, _ := s.takeHeld(); r != nil {
		r.Drop()
	}
}

// Conn returns the handler's side of the session; nil before Hello.
func (s *Session) Conn() Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}
