// Package session is a client's connection to one incarnation of one server, with all
// that is only good as long as it lasts.
//
//	link    requests on slots (slots.go, outbox.go, receive.go), lists of READs
//	        (reads.go) and single ones (short.go), over one queue pair and one
//	        completion queue
//	life    the lease (lease.go), the server's time (servertime.go), the end
//	sight   the view with its rkeys (view.go, views.go), the directory, the cache of
//	        places, what the server is told of hits and of damage
//
// Connect makes a session; its owner, a peer, ticks it (Tick: what is overdue) and lets
// it work for itself (Keep: a beat, a newer view). Reads and writes use it by Open and
// Slot.Call, by NewReads and Reads.Run, and by ReadDirect where memory is mapped. They
// decide by Lease.Grant, loaded before the first READ, and Lease.Holds, asked after the
// last completion, whether what was READ may be believed.
//
// Lock order: the mutex of overdue before life.mu. All other locks are leaves: outbox.mu
// (let go of while posting), requests.mu, Lease.mu, ServerTime.mu, replaced.mu, Touches.mu,
// Groups.mu.
// No method of Owner is called with one of them held.
package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/places"
	"github.com/rdmakv/rdmakv/internal/turnstile"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A Session is one connection to one incarnation of a server, with everything
// that is only good as long as it lasts: the view with its rkeys, the lease,
// the directory and location caches, the credits. None of it outlives the
// session, so nothing of a former incarnation can be believed by mistake: the
// types see to it.
//
// It ends once, for one reason: fail says why and returns; teardown, in the
// goroutine that watches the queue pair, waits for the fabric to let go of every buffer and for
// callers to leave.
type Session struct {
	Options
	link
	life
	sight

	// What it is; not changed once it is in force.
	Device      *device.Device
	Addr        string         // as in Config.Servers
	Way         Way            // how it was reached
	Skipped     []base.Skipped // and how it was not
	Born        time.Time
	version     uint8 // of the messages
	SendOnly    bool  // no right to READ
	BySend      bool  // what is READ would not count by itself: gets are requests, unless Words
	Words       bool  // it counts by the words of voters
	Incarnation uint64
	Welcome     wire.Welcome
	ServerID    string // welcome.ServerID, copied
	Node        string // of a cluster: which node its server has proved to be; set by the owner

	lastTick memory // of the goroutine that ticks
}

// link is what a session sends and receives with: requests on slots (slots.go), lists
// of READs (reads.go), and what is known of both.
type link struct {
	life  *life // of the session
	clock *base.Clock

	QP     rdma.QP
	direct rdma.DirectReader     // qp, if its READs can be done without it
	ahead  rdma.DirectPrefetcher // the same, if it can be told of them before; or nil
	cq     rdma.CQ
	d      *wait.Dispatcher
	Short  Short // READs of one item, without a batch
	rq     requests
	mm     device.Messages // the slots and receives of rq

	sealIn atomic.Pointer[wire.Seal] // of what comes; the goroutine that polls the CQ opens it
	outbox outbox                    // of what is sent

	ReadSpace *turnstile.Turnstile // send queue space for READs
	pingTurn  *turnstile.Turnstile // one Ping at a time

	wantCredits atomic.Bool  // calls wait for credits: tell the server
	pinged      atomic.Int64 // coarse time of the last Ping
	heard       atomic.Int64 // coarse time of the last message from the server
	answered    atomic.Int64 // coarse time of the last reply that a caller took, Pings aside
	sentAt      atomic.Int64 // coarse time of the last request
	askedAt     atomic.Int64 // likewise, Pings aside

	readsPosted, readsDone atomic.Uint64 // lists of READs; endOverdue compares them
	overdue                overdue
}

// life is for how long a session is good: what it is believed for, and its end.
type life struct {
	Now        func() int64 // the lease clock: the peer's, or base.MonoNanos
	Lease      Lease
	Time       ServerTime
	beatWanted atomic.Bool // the keeper should READ a beat

	users   atomic.Int64  // slots in use, and teardown waits for them
	idle    chan struct{} // cap 1: users has become 0
	downNow atomic.Bool
	Down    chan struct{} // closed when the session takes no more work
	Gone    chan struct{} // closed when nothing of it is left

	mu    sync.Mutex
	cause error // why it is down
}

// sight is what a session knows of the server's memory and of its cluster.
type sight struct {
	view       atomic.Pointer[View]
	replaced   replaced
	viewWanted atomic.Uint64 // a view version that is known to exist
	toldView   atomic.Uint64 // what the last Ping said (views.go)
	looked     atomic.Int64  // coarse time at which a beat or Ping showed the view version
	refreshing atomic.Bool   // a view is being fetched

	Dir      *layout.Dir
	Cache    *places.Cache
	Touches  Touches
	suspects suspects

	Groups Groups

	newsDue   atomic.Bool // the server may see another cluster than it has told
	newsAsked atomic.Bool // it is being asked
}

// Options are what sessions of one peer have in common. All of it is shared and set
// before the first session.
type Options struct {
	Config  *base.Config
	Clock   *base.Clock
	Counts  *base.Counts
	Waits   *Waits
	Devices *device.Set
	Owner   Owner
	Log     *slog.Logger

	ClientID [16]byte    // random; outlives connections
	Name     []byte      // for the server's log
	World    world.World // the clock and the memory it is given, if not the machine's
}

// An Owner is what a session belongs to, and tells of what it cannot do itself. Its
// methods do not wait. No lock of the session is held when they are called.
type Owner interface {
	// Wake has Keep called soon.
	Wake()
	// Go runs f on a goroutine of its own, which the owner waits for before it
	// closes. ctx ends when the owner does.
	Go(f func(ctx context.Context))
	// Retire takes the session out of use, because the server is about to end it.
	Retire(*Session)
}

// Enter enters the session; false if it is down. Leave ends it.
func (s *life) Enter() bool {
	s.users.Add(1)
	if s.downNow.Load() { // looked at after the count: see teardown
		s.Leave()
		return false
	}
	return true
}

// Leave ends what Enter has begun.
func (s *life) Leave() {
	if s.users.Add(-1) == 0 && s.downNow.Load() {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// IsDown reports whether the session takes no more work.
func (s *life) IsDown() bool { return s.downNow.Load() }

// Fail ends the session for the given reason, once. It does not wait.
func (s *life) Fail(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return
	}
	s.cause = cause
	s.downNow.Store(true)
	close(s.Down)
}

// Why returns what ended the session.
func (s *life) Why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return base.ErrLost
	}
	return s.cause
}

// watchQP turns the end of the connection into the end of the session, and the end of
// the session into its teardown.
func (s *Session) watchQP() {
	select {
	case <-s.QP.Done():
		s.Fail(s.QP.Err())
	case <-s.Down:
	}
	s.teardown()
}

// drainPatience bounds the wait for a fabric that does not flush its receives, or
// its READs, although Close has returned: a broken fabric must not hang Close.
const drainPatience = 5 * time.Second

// teardown runs once, after fail. The order matters: replies that have already
// arrived are delivered before the rest is told that the session is lost, and
// memory goes only when neither fabric nor caller can touch it.
func (s *Session) teardown() {
	defer close(s.Gone)
	lost := base.ErrLost
	s.rq.turns.Close(lost)
	s.rq.credits.Close(lost)
	s.ReadSpace.Close(lost)
	s.pingTurn.Close(lost)
	s.QP.Close() // flushes; every completion is on the CQ when it returns
	if s.rq.posted.Load() == 0 {
		s.drainedAll()
	}
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	if s.d.Err() == nil { // a completion queue that has failed is not polled
		select {
		case <-s.rq.drained:
		case <-timer.C:
			s.Log.Error("fabric did not flush all receives", "server", s.Addr)
		}
	}
	for _, sl := range s.rq.slots {
		if id := sl.inflight.Load(); id != 0 {
			s.d.Complete(id, rdma.WC{Status: rdma.StatusWRFlushErr})
			if late := sl.late.Swap(0); late != 0 {
				sl.over() // its waiter left long ago
			}
		}
	}
	// A caller that waits for a READ which the fabric has lost sleeps in the queue,
	// so the end of the queue wakes it.
	wake := time.AfterFunc(drainPatience, func() {
		s.Log.Error("fabric did not flush all READs", "server", s.Addr)
		_ = s.cq.Close() // destroy says what is wrong with it
	})
	s.d.Close() // flushes what is left: SENDs, READs given up on
	wake.Stop()
	s.Short.close()
	for s.users.Load() != 0 {
		<-s.idle
	}
	s.destroy()
}

// drainedAll notes that the fabric holds no receive; it counts only at the end.
func (l *link) drainedAll() {
	if !l.life.IsDown() {
		return
	}
	l.life.mu.Lock()
	defer l.life.mu.Unlock()
	select {
	case <-l.rq.drained:
	default:
		close(l.rq.drained)
	}
}

// destroy frees what build made, as far as it came.
func (s *Session) destroy() {
	var errs []error
	if s.QP != nil {
		errs = append(errs, s.QP.Close())
	}
	if s.d != nil {
		errs = append(errs, s.d.Close())
		s.Waits.end(s.d)
	}
	if s.cq != nil {
		errs = append(errs, s.cq.Close())
	}
	errs = append(errs, s.Short.free())
	switch {
	case s.mm.MR == nil:
	case s.rq.posted.Load() != 0: // the fabric has lost some of it: no other session may have it
		errs = append(errs, s.mm.Close())
	default:
		errs = append(errs, s.Devices.PutMessages(s.Device, s.mm))
	}
	s.Devices.Leave(s.Device)
	if err := errors.Join(errs...); err != nil {
		s.Log.Error("closing a connection", "server", s.Addr, "err", err)
	}
}

// goodbye: the server will end the session. Requests under way are still
// answered; new ones wait for the next session.
func (s *Session) goodbye(h wire.Header, body []byte) {
	s.Log.Info("server ends the session", "server", s.Addr, "why", wire.ParseGoodbye(h, body))
	s.Owner.Retire(s)
}

// Info describes the session for people.
func (s *Session) Info() base.ServerInfo {
	conn, attr := s.QP.Info(), s.Device.Dev.Attr()
	p := conn.Path
	if p.Device == "" {
		p.Device = s.Device.Dev.Name()
	}
	return base.ServerInfo{
		Address: s.Addr, ID: s.ServerID, Node: s.Node, Incarnation: s.Incarnation, Session: s.Welcome.Session,
		Protocol: s.version, Shards: int(s.Welcome.Shards),
		MaxKey: int(s.Welcome.MaxKey), MaxValue: int64(s.Welcome.MaxValue),
		LeaseOff:  s.Lease.Off,
		Transport: conn.Detail, Fabric: attr.Fabric, Software: s.Device.Software, Device: p.Device,
		Port: p.Port, GID: p.GID, GIDIndex: p.GIDIndex, GIDType: p.GIDType,
		PeerGID: p.PeerGID, LID: p.LID, MTU: p.MTU,
		Why: s.Way.Why, Skipped: s.Skipped,
	}
}

// State is how things stand with the session now.
func (s *Session) State() base.NodeState {
	st := base.NodeState{
		Connected: true, ViewVersion: s.view.Load().Version, Incarnation: s.Incarnation,
		Regions: len(s.view.Load().Regions), CachedPlaces: s.Cache.Len(), CacheBytes: s.Cache.Size(),
	}
	deadline := s.Lease.Grant().deadline
	if s.Lease.Off {
		st.Leased = true
	} else if left := deadline - s.Now(); left > 0 {
		st.Leased, st.LeaseLeft = true, time.Duration(left)
	}
	slots, waitSlots := s.rq.turns.State()
	credits, waitCredits := s.rq.credits.State()
	_, waitReads := s.ReadSpace.State()
	st.Credits, st.Inflight = credits, s.Config.MaxInflight-slots
	st.Waiting = waitSlots + waitCredits + waitReads
	return st
}

// AwaitEnd waits until the session is down, or the call's time is over.
func (s *Session) AwaitEnd(p *base.Limit) {
	ctx, cancel := p.Bounded()
	defer cancel()
	select {
	case <-s.Down:
	case <-s.QP.Done(): // watchQP is on its way
		s.Fail(s.QP.Err())
	case <-ctx.Done():
	}
}

// Announce says in the log what the session runs over, and why.
func (s *Session) Announce() {
	log, info := s.Log, s.Info()
	log.Info("connected", "server", s.Addr, "id", s.ServerID, "incarnation", s.Incarnation,
		"session", s.Welcome.Session, "fabric", info.Fabric, "device", info.Device, "why", info.Why, "transport", info.Transport)
	for _, sk := range s.Skipped {
		if sk.Device == "" { // nothing to be expected of it
			log.Info("fabric not used", "server", s.Addr, "fabric", sk.Fabric, "why", sk.Reason)
		} else {
			log.Warn("fabric not used", "server", s.Addr, "fabric", sk.Fabric, "device", sk.Device, "why", sk.Reason, "instead", info.Fabric)
		}
	}
	if info.LeaseOff {
		log.Warn("the server runs without leases (lease: off): what is read is believed for as long as its device answers", "server", s.Addr)
	}
}

// Mapped reports whether the server's memory can be READ by a copy that the caller
// does itself (readDirect).
func (l *link) Mapped() bool { return l.direct != nil }

// Quiet is how long the server has answered no request, Pings aside.
func (l *link) Quiet() time.Duration { return time.Duration(l.clock.Coarse() - l.answered.Load()) }

// Heard is when the last message of the server came, on the coarse clock.
func (l *link) Heard() int64 { return l.heard.Load() }

// View is the view in force.
func (l *sight) View() *View { return l.view.Load() }

// Usage is how things stand with a session, for tools and tests.
type Usage struct {
	SlotsFree, CreditsFree, ReadsFree int    // that calls could take at once
	PingsWaiting                      int    // calls that wait for their turn to ping
	ReadsPosted                       uint64 // lists of READs, ever
	Finished                          uint64 // completions that were waited for, ever
	ViewsKept                         int    // that were replaced, and READs may go by still
	ViewTold                          uint64 // the oldest view in use, as the server was told
	Suspects                          int    // items that wait to be examined
	Pinged                            int64  // coarse time of the last Ping
	TimeHigh                          uint64 // the server's time now is at most this, microseconds since 1970
}

// Usage is how things stand now.
func (s *Session) Usage() (u Usage) {
	u.SlotsFree, _ = s.rq.turns.State()
	u.CreditsFree, _ = s.rq.credits.State()
	u.ReadsFree, _ = s.ReadSpace.State()
	_, u.PingsWaiting = s.pingTurn.State()
	u.ReadsPosted, u.Finished = s.readsPosted.Load(), s.d.Stats().Finished
	s.replaced.mu.Lock()
	u.ViewsKept = len(s.replaced.list)
	s.replaced.mu.Unlock()
	u.ViewTold, u.Suspects, u.Pinged = s.toldView.Load(), len(s.suspects.queue), s.pinged.Load()
	u.TimeHigh = s.Time.high.Load().carry(s.Now())
	return u
}

// Renew READs a beat now, and what the lease needs because of it.
func (s *Session) Renew(ctx context.Context) {
	s.beatWanted.Store(true)
	keepLease(ctx, s)
}
