package session

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/internal/server/auth"
	"github.com/rdmakv/rdmakv/internal/server/work"
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

// A Session is one client's connection.
//
// Order of locks: lane.pollMu, then mu, then locks of pools and SRQ.
type Session struct {
	group *Group
	lane  *Lane
	qp    rdma.QP
	ID    uint64
	Peer  string // address, for the log
	// setup is the place that it has until Hello, and has its source.
	setup *Place
	// Login is that of the client which has opened it; set before its QP is connected.
	Login *auth.Login

	mu sync.Mutex

	handshake
	client
	credits
	outbox
	life

	line     work.Line     // its requests that wait for workers
	backoff  backoff       // of refusals
	conn     Conn          // from Hello on; written under mu, before the session is open
	fetchSem chan struct{} // bounds large puts that one client has READ at a time

	dirty   bool // in lane.dirty; guarded by lane.pollMu
	grouped bool // in flusher.group; guarded by flusher.mu
	counted bool // among registry.opens; guarded by registry.mu
}

// A client is what a session has been told of its client. It does not change once the
// session is open.
type client struct {
	Name      string   // from Hello
	ClientID  [16]byte // from Hello, by login.Client
	Aside     bool     // from Connect: it knows wire.FeatureAside
	Packs     bool     // likewise wire.FeaturePack
	Parts     bool     // from Connect: it knows wire.FeatureParts
	ReplySize int      // largest message the client takes
	OneSided  bool     // READs are let through, rkeys are told: the login may READ, and the space allows it (Env.Replicated)
	knows     bool     // from Connect: it knows wire.FeatureWords
	anew      bool     // likewise wire.FeatureAnew

	greeted atomic.Bool // its Hello has come
	words   atomic.Bool // what it READs counts by the words of voters alone, and it knows that
}

// Greeted says whether the client's Hello has come. Before, it has no right, and what it is given then follows from what is in force when it comes.
func (c *client) Greeted() bool { return c.greeted.Load() }

// Words says whether what the client READs counts by the words of voters alone. Of a session that is being set up it may be false still.
func (c *client) Words() bool { return c.words.Load() }

// An outbox is the replies of a session, in the order in which they were queued. A reply is
// in out until flush posts it, and in sent until it has completed, or until the end of the
// session: only then may its buffer be used again. It is guarded by session.mu, but for
// bigHeld.
type outbox struct {
	out       []*Buffer     // to be posted, oldest first
	sent      []*Buffer     // posted and not completed, oldest first
	sentSince int64         // when the oldest of sent was posted or the one before it completed
	leaving   bool          // disconnect once everything is sent
	sendWRs   []rdma.SendWR // scratch of a post, as is sges
	sges      []rdma.SGE
	bigHeld   atomic.Int32 // large reply buffers that the session has
}

// Ended says whether nothing more is done for the session.
func (l *life) Ended() bool { return sessionState(l.state.Load()) == stateEnd }

// enter counts a request that is being handled. The caller is the lane, on
// whose side the session is not finished yet.
func (l *life) enter() { l.inflight.Add(1) }

func (l *life) exit() {
	if l.inflight.Add(-1) == 0 {
		close(l.quiet)
	}
}

// Context ends with the session: at the latest when its queue pair is closed.
func (l *life) Context() context.Context { return l.ctx }

// Closed is closed when the queue pair is, and no READ of the peer completes any more.
func (l *life) Closed() <-chan struct{} { return l.closed }

// Line is the session's line for workers.
func (s *Session) Line() *work.Line { return &s.line }

// Rail is what the session has come by.
func (s *Session) Rail() *Rail { return s.lane.rail }

// NewBuffer returns a buffer for a message of n bytes to the client. errPoolFull: there is
// none now.
func (s *Session) NewBuffer(n int) (*Buffer, error) { return s.lane.newReply(s, n) }

// pooling is a session as a pool sees it.
type pooling Session

func (s *pooling) Ended() bool { return (*Session)(s).Ended() }
func (s *pooling) Flush()      { (*Session)(s).Flush() }

// tooEarly keeps a Hello that came while the QP is in RTR: the client may send
// as soon as it is connected, but rights can be granted and replies sent only
// in RTS.
func (s *Session) tooEarly(r *Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.connected && !s.dead {
		s.early = r
		return true
	}
	return false
}

// nowConnected is called when the QP is in RTS, or will never be.
func (s *Session) nowConnected() {
	s.mu.Lock()
	s.connected = true
	r := s.early
	s.early = nil
	s.mu.Unlock()
	if r != nil {
		r.hello()
	}
	s.Flush()
}

// enqueue hands over a reply and the receive of the request that it answers;
// either may be nil. The reply is sent by the next flush.
func (s *Session) enqueue(reply, receive *Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		if reply != nil {
			reply.Free()
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

// Flush posts receives again and then as many replies as the send queue has
// room for, with one doorbell. Any goroutine may call it.
func (s *Session) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	s.repostLocked()
	if !s.connected {
		return // nothing can be sent yet; nowConnected flushes
	}
	n := min(len(s.out), s.lane.rail.sendDepth-len(s.sent))
	if n > 0 {
		s.postLocked(n)
	}
	if s.leaving && len(s.out) == 0 && len(s.sent) == 0 {
		s.qp.Disconnect()
	}
}

// sendDone releases b and every reply posted before it, and posts what waited
// for room.
func (s *Session) sendDone(b *Buffer) {
	s.mu.Lock()
	n := 0
	for i, o := range s.sent {
		if o == b {
			n = i + 1
			break
		}
	}
	for _, o := range s.sent[:n] {
		o.Free()
	}
	clear(s.sent[copy(s.sent, s.sent[n:]):])
	s.sent = s.sent[:len(s.sent)-n]
	s.sentSince = s.group.Clock.Now()
	more := len(s.out) > 0 || s.leaving
	s.mu.Unlock()
	if more {
		s.lane.touch(s)
	}
}

// A Handler gives messages their meaning. A session moves messages: it checks seals,
// credits and bounds, and knows nothing of keys, stores or clusters but what is here.
type Handler interface {
	// Open makes the handler's side of a session whose client has proved that it
	// knows its secret, and says what the Welcome tells of the space. The session
	// fills in what is its own. An error ends the session: the space gives no leases
	// any more.
	Open(s *Session) (Conn, wire.Welcome, error)
}

// A Conn is the handler's side of one session.
type Conn interface {
	// Handle handles a request, which ends with one call of its reply, answer,
	// confirm, fail or drop, now or later, on any goroutine. It runs on the lane, and
	// does not wait. An answer that is given on the lane, or in the callback of a
	// write, is sent with others; a handler that gives it anywhere else flushes the session.
	Handle(r *Request)
	// Tick lets go what has run out at a moment (base.Clock.Now). It is called for as long
	// as the session is there, every now and then.
	Tick(now int64)
	// Cancel ends all requests that wait for something. The session is ending: it takes
	// no more requests, and its context is over. It is called again when the queue pair
	// is closed, for those that began to wait meanwhile.
	Cancel()
	// Close lets go of everything else. No request is under way any more. It is not
	// called for a session that is given up with requests under way, because the space
	// has lost its disk and the store does not call back for them.
	Close()
}

// A Scratch is what a handler keeps with the receive buffer of a request, so that
// requests cost no allocation. It is the handler's, and stays with the buffer.
type Scratch interface {
	// Reset drops what it refers to: its request has ended.
	Reset()
}
