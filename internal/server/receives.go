package server

import "github.com/rdmakv/rdmakv/rdma"

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
// client says it had to wait. A client that is idle gives credits back (Ping);
// on a shared queue the receives behind them serve others.

// grow adds n receives to the session and returns how many there was room
// for. The caller grants as many credits. s.mu is held.
func (s *session) growLocked(n int) (got int) {
	if n <= 0 {
		return 0
	}
	if s.lane.srq != nil {
		return s.lane.promise(n, s)
	}
	got = min(n, s.spare)
	s.spare -= got
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
// receive on a queue of its own cannot be taken back: it stays for later.
func (s *session) shrinkLocked(n int) {
	s.owned -= n
	if s.lane.srq != nil {
		s.lane.unpromise(n)
		return
	}
	s.spare += n
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
		if s.lane.srq != nil {
			s.lane.repostShared(b)
		} else {
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
