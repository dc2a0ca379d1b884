package session

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/server/base"
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

// credits is what a session owns of receives, and what its client may send. It is guarded
// by session.mu, but for what is atomic. See above for what holds of them.
type credits struct {
	// allowed is how many requests the client may still send. The lane takes
	// one for each that arrives, flush gives one with each reply.
	allowed      atomic.Int32
	pinging      atomic.Bool    // a Ping is being answered
	serverCredit int            // unasked messages the client is ready for
	owned        int            // receives
	spare        int            // own queue: posted beyond owned
	charged      int            // of both, in the tenant's share
	posted       int            // own queue: receives with the fabric
	spent        []*Buffer      // receives of answered requests, to be posted again
	recvWR       [1]rdma.RecvWR // scratch of a post, as is recvSGE
	recvSGE      [1]rdma.SGE
}

// chargeLocked counts n receives of the session for its tenant; n may be negative.
// The first one of a session, which it has before its tenant is known, is not
// counted. s.mu is held.
func (s *Session) chargeLocked(n int) {
	if s.Login != nil {
		s.charged += n
		s.Login.Receives.Add(int64(n))
	}
}

// withinShare returns how many of n receives are within the tenant's share.
func (s *Session) withinShare(n int) int {
	if s.Login == nil {
		return n
	}
	left := s.group.share.Load() - s.Login.Receives.Load()
	if int64(n) <= left {
		return n
	}
	s.Login.Hit(s.group.Bounds, base.BoundLoginReceives)
	return int(max(left, 0))
}

// overShareLocked says that the session has grown and its tenant has more than its
// share: a credit of it is not renewed. s.mu is held.
func (s *Session) overShareLocked() bool {
	return s.owned > s.group.cfg.InitialCredits+1 && s.Login != nil && s.Login.Receives.Load() > s.group.share.Load()
}

// grow adds n receives to the session and returns how many there was room
// for. The caller grants as many credits. s.mu is held.
func (s *Session) growLocked(n int) (got int) {
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
func (s *Session) shrinkLocked(n int) {
	s.owned -= n
	if s.lane.srq != nil {
		s.lane.unpromise(n)
		s.chargeLocked(-n)
		return
	}
	s.spare += n
}

// GiveBack takes back n credits that the client returns; an error if it has not so many.
func (s *Session) GiveBack(n int32) error {
	if n == 0 {
		return nil
	}
	if s.allowed.Add(-n) < 0 {
		return fmt.Errorf("%d credits returned, which it does not have", n)
	}
	s.mu.Lock()
	s.shrinkLocked(int(n))
	s.mu.Unlock()
	return nil
}

// Receives returns how many receives the session has: one for a Ping, and one for each
// request that its client may have under way.
func (s *Session) Receives() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned
}

// Keeps ends a session whose client, beside Pings, has sent nothing for as long as
// the server waits for idle ones, and still has credits that it does not use while
// others find too few: the protocol has it give them back. It runs on the lane.
func (s *Session) Keeps(now int64) bool {
	owned := s.Receives()
	// In flight are the session itself and this Ping.
	if owned <= s.group.cfg.InitialCredits+1 || s.inflight.Load() > 2 || now-s.asked <= int64(s.group.cfg.Idle) || !s.lane.scarce() {
		return false
	}
	s.Login.Hit(s.group.Bounds, base.BoundReceives)
	s.leave(base.CauseIdle, wire.StatusIdle, "it keeps credits that it does not use and that others need")
	return true
}

// postRecvLocked gives one buffer to the fabric. On failure the QP is dying
// and the buffer goes back to its pool. s.mu is held; no SRQ.
func (s *Session) postRecvLocked(b *Buffer) bool {
	s.recvSGE[0] = b.sge(len(b.Mem))
	s.recvWR[0] = rdma.RecvWR{ID: workID(workRecv, b.idx), SGL: s.recvSGE[:]}
	s.posted++ // before: the completion may come at once
	if n, err := s.qp.PostRecv(s.recvWR[:]); n == 0 {
		s.posted--
		s.lane.recvs.put(b)
		s.endLocked(base.CausePost, err)
		return false
	}
	return true
}

// repostLocked returns the receives of answered requests to the fabric.
func (s *Session) repostLocked() {
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
func (s *Session) discard(b *Buffer) {
	if s.lane.srq != nil {
		s.lane.repostShared(b)
		return
	}
	s.lane.recvs.put(b)
}

// promise reserves up to n receives of the shared queue, posting more where
// too few exist.
func (l *Lane) promise(n int, s *Session) (got int) {
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

func (l *Lane) unpromise(n int) {
	l.sharedMu.Lock()
	l.promised -= n
	l.sharedMu.Unlock()
}

// repostShared returns a receive to the shared queue. The queue was made with
// room for every buffer, so it cannot fail while the lane lives.
func (l *Lane) repostShared(b *Buffer) {
	b.sess, b.N = nil, 0
	l.sharedMu.Lock()
	defer l.sharedMu.Unlock()
	if !l.postSharedLocked(b) {
		l.existing--
		l.recvs.put(b)
	}
}

func (l *Lane) postSharedLocked(b *Buffer) bool {
	l.recvSGE[0] = b.sge(len(b.Mem))
	l.recvWR[0] = rdma.RecvWR{ID: workID(workRecv, b.idx), SGL: l.recvSGE[:]}
	n, _ := l.srq.PostRecv(l.recvWR[:])
	return n == 1
}

// sessionOf finds the session of a completion on the shared queue; nil if it
// has ended.
func (l *Lane) sessionOf(qpn uint32) *Session {
	l.sharedMu.Lock()
	defer l.sharedMu.Unlock()
	return l.byQPN[qpn]
}
