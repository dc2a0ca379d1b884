package server

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// How sessions end: at once (end), after what is queued has been sent (leave),
// or with the node (farewell). In each case watch clears up.

// end makes the session die of a cause; the first one counts. It does not
// wait: watch clears up once the QP is in ERR.
func (s *session) end(c cause, err error) {
	s.mu.Lock()
	s.endLocked(c, err)
	s.mu.Unlock()
}

func (s *session) endLocked(c cause, err error) {
	if s.why == causeNone {
		s.why, s.whyErr = c, err
	}
	s.state.Store(uint32(stateEnd))
	s.qp.Disconnect()
}

// leave ends the session after a Goodbye and whatever else is queued has been
// sent; the janitor cuts it off if the client does not take them.
func (s *session) leave(c cause, st wire.Status, detail string) {
	s.mu.Lock()
	if s.why != causeNone {
		s.mu.Unlock()
		return
	}
	s.why = c
	s.state.Store(uint32(stateEnd))
	s.leaving = true
	s.goodbyeLocked(st, detail)
	s.mu.Unlock()
	s.flush()
}

// farewell tells the client that this node is shutting down and goes on
// answering (with StatusClosing), so that requests already on their way do not
// end with an unknown outcome. A client disconnects when it has its answers.
func (s *session) farewell() {
	s.mu.Lock()
	if s.why == causeNone {
		s.why = causeShutdown
		s.goodbyeLocked(wire.StatusClosing, "")
	}
	s.mu.Unlock()
	s.flush()
}

// goodbyeLocked queues a Goodbye if the client is ready for one.
func (s *session) goodbyeLocked(st wire.Status, detail string) {
	if s.serverCredit == 0 {
		return
	}
	s.serverCredit--
	if len(detail) > smallReply-wire.HeaderSize {
		detail = detail[:smallReply-wire.HeaderSize]
	}
	if b, err := s.lane.newReply(s, smallReply); err == nil {
		b.n = len(wire.AppendGoodbye(b.mem[:0], st, detail))
		s.out = append(s.out, b)
	}
}

// watch lives as long as the session and clears up after it. When ctx ends or
// the node is fenced, so does the session, however far it has come.
func (s *session) watch(ctx context.Context) {
	setup := time.NewTimer(s.srv.cfg.SetupTimeout)
	defer setup.Stop()
	lost := s.setup.lost.Done()
	for alive := true; alive; {
		select {
		case <-s.qp.Done():
			alive = false
		case <-setup.C:
			if sessionState(s.state.Load()) == stateNew {
				s.end(causeSetup, nil)
			}
		case <-lost:
			s.end(causeCrowded, nil)
			lost = nil
		case <-ctx.Done():
			s.end(causeShutdown, nil)
			<-s.qp.Done()
			alive = false
		case <-s.srv.fenced:
			// Here, not in a list of the sessions that there are: one may be
			// on its way in, and would be given a lease by its Welcome.
			s.end(causeShutdown, s.srv.fenceErr)
			<-s.qp.Done()
			alive = false
		}
	}
	s.finish()
}

// finish releases what the session holds, in the one order that is safe: no
// new posts, the QP let go of every buffer, no completion left, no request
// left; then buffers and counts.
func (s *session) finish() {
	qpErr := s.qp.Err()
	s.mu.Lock()
	s.dead = true
	s.state.Store(uint32(stateEnd))
	if s.why == causeNone {
		s.why, s.whyErr = causeOf(qpErr), qpErr
	}
	out, spent := s.out, s.spent
	s.out, s.spent = nil, nil
	s.mu.Unlock()

	s.stop()
	s.qp.Close()
	close(s.closed)
	s.lane.drain()
	close(s.drained)
	s.srv.gate.drop(s)
	s.srv.grow.drop(s)
	s.srv.watches.drop(s)
	s.dropQueued()
	for _, b := range spent {
		s.discard(b)
	}
	for _, b := range out {
		s.lane.putReply(b)
	}
	s.exit()
	select {
	case <-s.quiet:
	case <-s.srv.fenced:
		gone := s.srv.storeDown
		if !s.srv.stoodDown.Load() {
			gone = s.srv.fenced
		}
		select {
		case <-s.quiet: // a store that is well calls back, into what is closed after the sessions
		case <-gone:
			// Durability is gone: the store will not call back for the writes it
			// has, and their memory stays theirs. The process is ending.
			s.srv.forget(s)
			return
		}
	}

	s.mu.Lock()
	for _, b := range s.sent {
		s.lane.putReply(b)
	}
	s.sent = nil
	holds := s.holds
	s.holds = nil
	owned := s.owned
	s.owned = 0
	s.chargeLocked(-s.charged)
	s.mu.Unlock()
	for _, h := range holds {
		h.release()
	}
	if s.lane.srq != nil {
		s.lane.unpromise(owned)
	}
	s.srv.forget(s)
}

// causeOf classes the error of a QP that died by itself.
func causeOf(err error) cause {
	switch {
	case errors.Is(err, rdma.ErrPeerGone), errors.Is(err, rdma.ErrClosed), err == nil:
		return causePeer
	case errors.Is(err, rdma.ErrAccess):
		return causeAccess
	case errors.Is(err, rdma.ErrReceiverNotReady):
		return causeCredits
	}
	return causeFabric
}
