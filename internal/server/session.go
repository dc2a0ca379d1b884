package server

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// sessionState is how far a session has come.
type sessionState uint32

const (
	stateNew  sessionState = iota // connected; only Hello is understood
	stateOpen                     // authenticated; READs are let through
	stateEnd                      // ending; nothing is understood
)

func (s sessionState) String() string {
	switch s {
	case stateNew:
		return "new"
	case stateOpen:
		return "open"
	}
	return "ending"
}

// A session is one client's connection.
type session struct {
	srv  *Server
	lane *lane
	qp   rdma.QP
	id   uint64
	peer string // address, for the log
	// setup is the place that it has until Hello, and has its source.
	setup *setup
	// login is who has opened it; set before its QP is connected.
	login  *login
	closed chan struct{} // closed when its QP is, and no READ of the peer completes
	// drained is closed when, after that, no completion of its QP will come any more.
	drained chan struct{}

	// Until Hello: what both ends said in private data, which its MAC covers.
	connect, accept []byte
	sealIn          *wire.Seal // of requests; guarded by lane.pollMu
	sealOut         *wire.Seal // of what is sent; guarded by mu, under which it is posted

	state atomic.Uint32 // sessionState
	ctx   context.Context
	stop  context.CancelFunc

	// allowed is how many requests the client may still send. The lane takes
	// one for each that arrives, flush gives one with each reply.
	allowed atomic.Int32
	pinging atomic.Bool  // a Ping is being answered
	heard   atomic.Int64 // when the last message came, Server.now
	bigHeld atomic.Int32 // large reply buffers
	// nextTouches is when touches are taken again, Server.now.
	nextTouches atomic.Int64
	began       int64
	// table is the oldest view version that the client's READs may still use; 0
	// until it has asked for one (rotate.go).
	table atomic.Uint64

	clusterText *clusterText // mapchange.go; guarded by mu
	mapParts    []byte       // likewise

	// inflight counts requests being handled and one for the session itself;
	// quiet is closed when it reaches zero.
	inflight atomic.Int32
	quiet    chan struct{}

	dirty   bool  // in lane.dirty; guarded by lane.pollMu
	asked   int64 // when the last message but Pings came, Server.now; guarded by lane.pollMu
	grouped bool  // in Server.group; guarded by Server.groupMu
	counted bool  // among Server.opens; guarded by Server.sessMu
	polls   int   // watches that wait; guarded by watches.mu
	// queues are its requests that wait for workers; each guarded by its pool's mu.
	queues [poolKinds]queue

	// Order of locks: lane.pollMu, then mu, then locks of pools and SRQ.
	mu           sync.Mutex
	connected    bool     // Accept has returned: the QP is in RTS
	early        *request // Hello that came before that
	dead         bool     // nothing is posted any more
	why          cause    // the first cause; causeNone while it lives
	whyErr       error    // with detail for the log; may be nil
	name         string   // from Hello
	clientID     [16]byte // from Hello, by login.client; not changed after it
	aside        bool     // from Connect: it knows wire.FeatureAside
	replySize    int      // largest message the client takes
	serverCredit int      // unasked messages the client is ready for
	owned        int      // receives (receives.go)
	spare        int      // own queue: posted beyond owned
	charged      int      // of both, in the tenant's share
	posted       int      // own queue: receives with the fabric
	spent        []*buf   // receives of answered requests, to be posted again
	out          []*buf   // replies to be posted, oldest first
	sent         []*buf   // replies posted and not completed, oldest first
	sentSince    int64    // when the oldest of sent was posted or the one before it completed
	leaving      bool     // disconnect once everything is sent
	holds        map[uint64]*hold
	nextHold     uint64
	stats        []byte        // the snapshot that StatsRequest pages through
	adminText    []byte        // the answer that Admin pages through
	sendWRs      []rdma.SendWR // scratch of a post, as are the next three
	sges         []rdma.SGE
	recvWR       [1]rdma.RecvWR
	recvSGE      [1]rdma.SGE

	backoff backoff // of refusals (backoff.go)

	fetchSem chan struct{} // bounds large puts that one client has READ at a time
}

// sessionList returns the sessions as they are now.
func (srv *Server) sessionList() []*session {
	srv.sessMu.Lock()
	defer srv.sessMu.Unlock()
	list := make([]*session, 0, len(srv.sessions))
	for _, s := range srv.sessions {
		list = append(list, s)
	}
	return list
}

// ended says whether nothing more is done for the session.
func (s *session) ended() bool { return sessionState(s.state.Load()) == stateEnd }

// enter counts a request that is being handled. The caller is the lane, on
// whose side the session is not finished yet.
func (s *session) enter() { s.inflight.Add(1) }

func (s *session) exit() {
	if s.inflight.Add(-1) == 0 {
		close(s.quiet)
	}
}

// tooEarly keeps a Hello that came while the QP is in RTR: the client may send
// as soon as it is connected, but rights can be granted and replies sent only
// in RTS.
func (s *session) tooEarly(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected && !s.dead {
		s.early = r
		return true
	}
	return false
}

// nowConnected is called when the QP is in RTS, or will never be.
func (s *session) nowConnected() {
	s.mu.Lock()
	s.connected = true
	r := s.early
	s.early = nil
	s.mu.Unlock()
	if r != nil {
		r.hello()
	}
	s.flush()
}

// enqueue hands over a reply and the receive of the request that it answers;
// either may be nil. The reply is sent by the next flush.
func (s *session) enqueue(reply, receive *buf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		if reply != nil {
			s.lane.putReply(reply)
		}
		if receive != nil {
			s.discard(receive)
		}
		return
	}
	if reply != nil {
		s.out = append(s.out, reply)
	}
	if receive != nil {
		s.spent = append(s.spent, receive)
	}
}

// flush posts receives again and then as many replies as the send queue has
// room for, with one doorbell. Any goroutine may call it.
func (s *session) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	s.repostLocked()
	if !s.connected {
		return // nothing can be sent yet; nowConnected flushes
	}
	n := min(len(s.out), s.lane.dev.sendDepth-len(s.sent))
	if n > 0 {
		s.postLocked(n)
	}
	if s.leaving && len(s.out) == 0 && len(s.sent) == 0 {
		s.qp.Disconnect()
	}
}

// postLocked posts the n oldest replies. Only the last is signaled: sends of a
// QP complete in order, so its completion stands for all.
func (s *session) postLocked(n int) {
	s.sendWRs, s.sges = s.sendWRs[:0], s.sges[:0]
	if cap(s.sges) < n {
		s.sges = make([]rdma.SGE, 0, 2*n)
	}
	for i, b := range s.out[:n] {
		grant := b.grant
		if b.wantMore && !s.lane.scarce() { // double, up to the bound and one for Ping
			grant += s.growLocked(s.withinShare(min(max(s.owned, 4), s.srv.cfg.Credits+1-s.owned)))
		}
		if grant > 0 && s.backoff.owed > 0 {
			s.backoff.owed--
			grant++
		}
		if grant > 0 && s.overShareLocked() {
			s.shrinkLocked(1) // it was spent, and is not renewed
			grant--
		}
		if grant > 0 {
			wire.SetCredits(b.mem, uint16(grant))
			s.allowed.Add(int32(grant)) // before the post: the client may be quick
		}
		if b.isPing {
			s.pinging.Store(false)
		}
		s.sealOut.Seal(b.mem[:b.n]) // the last touch
		s.sges = append(s.sges, b.sge(b.n))
		wr := rdma.SendWR{ID: s.lane.sendID(b), Op: rdma.OpSend, SGL: s.sges[i : i+1 : i+1]}
		if i == n-1 {
			wr.Flags = rdma.SendSignaled
		}
		s.sendWRs = append(s.sendWRs, wr)
		b.sess = s
		s.srv.met.bytesOut.Add(int64(b.n))
	}
	if len(s.sent) == 0 {
		s.sentSince = s.srv.now()
	}
	s.sent = append(s.sent, s.out[:n]...)
	clear(s.out[copy(s.out, s.out[n:]):])
	s.out = s.out[:len(s.out)-n]
	if taken, err := s.qp.PostSend(s.sendWRs); taken < n {
		// Room was reserved, so the QP itself refuses: it is not connected
		// any more. Buffers in sent return at the end of the session.
		s.endLocked(causePost, err)
	}
}

// sendDone releases b and every reply posted before it, and posts what waited
// for room.
func (s *session) sendDone(b *buf) {
	s.mu.Lock()
	n := 0
	for i, o := range s.sent {
		if o == b {
			n = i + 1
			break
		}
	}
	for _, o := range s.sent[:n] {
		s.lane.putReply(o)
	}
	clear(s.sent[copy(s.sent, s.sent[n:]):])
	s.sent = s.sent[:len(s.sent)-n]
	s.sentSince = s.srv.now()
	more := len(s.out) > 0 || s.leaving
	s.mu.Unlock()
	if more {
		s.lane.touch(s)
	}
}
