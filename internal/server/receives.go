package server

import (
	"math"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// Receives and credits.
//
// A session owns as many receives as its client may have messages under way:
// its credits, and one for a Ping, which needs none. "Owned" means: posted, or
// holding a request that is being handled. A receive returns to the fabric
// before the reply that carries its credit is posted, so
//
//	receives posted ≥ credits that clients hold
//
// at any moment, per session where each has a queue of its own, per lane where
// they share one. A client that sends more than its credits is cut off.
//
// Growth is by demand: a session begins with a few and gets more when its
// client says it had to wait. A client that is idle gives credits back (Ping),
// and the receives behind them serve others: on a shared queue at once, else as
// messages arrive in them. The protocol has no way to take a credit from a client
// that does not give it back. So what one tenant's sessions have beyond their first
// receives is bounded by a share while others use the space; beyond the share, when
// it has shrunk, a credit is not renewed by the reply to the request that spent it;
// and one that keeps what it does not use while receives are scarce is shown out.

// receiveShare is how many receives the sessions of one tenant may have grown to.
func (srv *Server) receiveShare() int64 {
	if !srv.shared() {
		return math.MaxInt64
	}
	return max(1, srv.cfg.ReceiveBytes/int64(srv.cfg.RequestSize)/shareParts)
}

// chargeLocked counts n receives of the session for its tenant; n may be negative.
// The first one of a session, which it has before its tenant is known, is not
// counted. s.mu is held.
func (s *session) chargeLocked(n int) {
	if s.login != nil {
		s.charged += n
		s.login.receives.Add(int64(n))
	}
}

// withinShare returns how many of n receives are within the tenant's share.
func (s *session) withinShare(n int) int {
	if s.login == nil {
		return n
	}
	left := s.srv.creditShare.Load() - s.login.receives.Load()
	if int64(n) <= left {
		return n
	}
	s.srv.loginHit(s.login, limitLoginReceives)
	return int(max(left, 0))
}

// overShareLocked says that the session has grown and its tenant has more than his
// share: a credit of it is not renewed. s.mu is held.
func (s *session) overShareLocked() bool {
	return s.owned > s.srv.cfg.InitialCredits+1 && s.login != nil && s.login.receives.Load() > s.srv.creditShare.Load()
}

// grow adds n receives to the session and returns how many there was room
// for. The caller grants as many credits. s.mu is held.
func (s *session) growLocked(n int) (got int) {
	if n <= 0 {
		return 0
	}
	if s.lane.srq != nil {
		got = s.lane.promise(n, s)
		s.chargeLocked(got)
		return got
	}
	got = min(n, s.spare)
	s.spare -= got
	defer func(had int) { s.chargeLocked(got - had) }(got)
	for got < n {
		b, err := s.lane.recvs.get()
		if err != nil {
			break
		}
		b.sess = s
		if !s.postRecvLocked(b) {
			break
		}
		got++
	}
	s.owned += got
	return got
}

// shrinkLocked takes n credits back from the client, which gave them up. A
// receive on a queue of its own cannot be taken back until something arrives in it.
func (s *session) shrinkLocked(n int) {
	s.owned -= n
	if s.lane.srq != nil {
		s.lane.unpromise(n)
		s.chargeLocked(-n)
		return
	}
	s.spare += n
}

// keeps ends a session whose client, beside Pings, has sent nothing for as long as
// the server waits for idle ones, and still has credits that it does not use while
// others find too few: the protocol has it give them back. It runs on the lane.
func (s *session) keeps(now int64) bool {
	s.mu.Lock()
	owned := s.owned
	s.mu.Unlock()
	// In flight are the session itself and this Ping.
	if owned <= s.srv.cfg.InitialCredits+1 || s.inflight.Load() > 2 || now-s.asked <= int64(s.srv.cfg.Idle) || !s.lane.scarce() {
		return false
	}
	s.srv.loginHit(s.login, limitReceives)
	s.leave(causeIdle, wire.StatusIdle, "it keeps credits that it does not use and that others need")
	return true
}

// postRecvLocked gives one buffer to the fabric. On failure the QP is dying
// and the buffer goes back to its pool. s.mu is held; no SRQ.
func (s *session) postRecvLocked(b *buf) bool {
	s.recvSGE[0] = b.sge(len(b.mem))
	s.recvWR[0] = rdma.RecvWR{ID: workID(workRecv, b.idx), SGL: s.recvSGE[:]}
	s.posted++ // before: the completion may come at once
	if n, err := s.qp.PostRecv(s.recvWR[:]); n == 0 {
		s.posted--
		s.lane.recvs.put(b)
		s.endLocked(causePost, err)
		return false
	}
	return true
}

// repostLocked returns the receives of answered requests to the fabric.
func (s *session) repostLocked() {
	for i, b := range s.spent {
		switch {
		case s.lane.srq != nil:
			s.lane.repostShared(b)
		case s.spare > 0: // its credit was given back: others may have it
			s.spare--
			s.chargeLocked(-1)
			s.lane.recvs.put(b)
		default:
			s.postRecvLocked(b)
		}
		s.spent[i] = nil
	}
	s.spent = s.spent[:0]
}

// discard returns the receive of a request whose session is dead.
func (s *session) discard(b *buf) {
	if s.lane.srq != nil {
		s.lane.repostShared(b)
		return
	}
	s.lane.recvs.put(b)
}

// promise reserves up to n receives of the shared queue, posting more where
// too few exist.
func (l *lane) promise(n int, s *session) (got int) {
	l.sharedMu.Lock()
	defer l.sharedMu.Unlock()
	for got < n {
		if l.promised == l.existing {
			b, err := l.recvs.get()
			if err != nil {
				break
			}
			if !l.postSharedLocked(b) {
				l.recvs.put(b)
				break
			}
			l.existing++
		}
		l.promised++
		got++
	}
	s.owned += got
	return got
}

func (l *lane) unpromise(n int) {
	l.sharedMu.Lock()
	l.promised -= n
	l.sharedMu.Unlock()
}

// repostShared returns a receive to the shared queue. The queue was made with
// room for every buffer, so it cannot fail while the lane lives.
func (l *lane) repostShared(b *buf) {
	b.sess, b.n = nil, 0
	l.sharedMu.Lock()
	defer l.sharedMu.Unlock()
	if !l.postSharedLocked(b) {
		l.existing--
		l.recvs.put(b)
	}
}

func (l *lane) postSharedLocked(b *buf) bool {
	l.recvSGE[0] = b.sge(len(b.mem))
	l.recvWR[0] = rdma.RecvWR{ID: workID(workRecv, b.idx), SGL: l.recvSGE[:]}
	n, _ := l.srq.PostRecv(l.recvWR[:])
	return n == 1
}

// sessionOf finds the session of a completion on the shared queue; nil if it
// has ended.
func (l *lane) sessionOf(qpn uint32) *session {
	l.sharedMu.Lock()
	defer l.sharedMu.Unlock()
	return l.byQPN[qpn]
}
