package server

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A deafQP takes every post and completes it at once, with nobody at the other
// end: READs fail, SENDs succeed. It checks that whatever a session sends is a
// message.
type deafQP struct {
	rdma.QP // methods not needed stay nil
	t       testing.TB
	lane    *lane
	done    chan struct{}
	once    sync.Once
	seal    *wire.Seal // of what feed lets arrive

	mu    sync.Mutex
	sends []uint64 // IDs of signaled SENDs to complete
	reads []uint64
	serve []byte   // what READs find, if not nil: then they succeed
	recvs []uint64 // posted, to be flushed by Close
	types []wire.Type
}

func (q *deafQP) PostSend(wrs []rdma.SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, wr := range wrs {
		if wr.Op == rdma.OpRDMARead {
			if sge := wr.SGL[0]; q.serve != nil {
				copy(sge.MR.Bytes()[sge.Off:][:sge.Len], q.serve)
			}
			q.reads = append(q.reads, wr.ID)
			continue
		}
		sge := wr.SGL[0]
		msg := sge.MR.Bytes()[sge.Off:][:sge.Len]
		h, err := wire.ParseHeader(msg)
		if err != nil {
			q.t.Errorf("the server sends what is no message: %v: %x", err, msg)
		}
		if h.Type != wire.TypeGoodbye && !h.Type.IsReply() {
			q.t.Errorf("the server sends %v", h)
		}
		q.types = append(q.types, h.Type)
		if wr.Flags&rdma.SendSignaled != 0 {
			q.sends = append(q.sends, wr.ID)
		}
	}
	return len(wrs), nil
}

func (q *deafQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, wr := range wrs {
		q.recvs = append(q.recvs, wr.ID)
	}
	return len(wrs), nil
}

// Close flushes the receives, as a fabric does.
func (q *deafQP) Close() error {
	q.Disconnect()
	q.mu.Lock()
	recvs := q.recvs
	q.recvs = nil
	q.mu.Unlock()
	q.lane.pollMu.Lock()
	defer q.lane.pollMu.Unlock()
	for _, id := range recvs {
		q.lane.complete(&rdma.WC{ID: id, Status: rdma.StatusWRFlushErr})
	}
	return nil
}

func (q *deafQP) SetAccess(rdma.Access) error { return nil }
func (q *deafQP) Disconnect() error           { q.once.Do(func() { close(q.done) }); return nil }
func (q *deafQP) Done() <-chan struct{}       { return q.done }
func (q *deafQP) Err() error                  { return rdma.ErrPeerGone }
func (q *deafQP) Info() rdma.ConnInfo         { return rdma.ConnInfo{ORD: 8} }
func (q *deafQP) QPN() uint32                 { return 1 }

// complete delivers what has been posted; it reports whether there was any.
func (q *deafQP) complete(l *lane) bool {
	q.mu.Lock()
	sends, reads := q.sends, q.reads
	found := rdma.StatusRemAccessErr
	if q.serve != nil {
		found = rdma.StatusSuccess
	}
	q.sends, q.reads = nil, nil
	q.mu.Unlock()
	l.pollMu.Lock()
	defer l.pollMu.Unlock()
	for _, id := range sends {
		l.complete(&rdma.WC{ID: id, Status: rdma.StatusSuccess})
	}
	for _, id := range reads {
		l.complete(&rdma.WC{ID: id, Status: found})
	}
	for _, s := range l.dirty {
		s.dirty = false
		s.flush()
	}
	l.dirty = l.dirty[:0]
	return len(sends)+len(reads) > 0
}

// deafSession makes an open session over a deafQP.
func deafSession(t testing.TB, srv *Server, open bool) (*session, *deafQP) {
	return deafSessionOf(t, srv, srv.logins.find(wire.Tenant{}), open)
}

// deafSessionOf makes one of a login that uses the space srv.
func deafSessionOf(t testing.TB, srv *Server, by *login, open bool) (*session, *deafQP) {
	l := srv.devices[0].lanes[0]
	q := &deafQP{t: t, lane: l, done: make(chan struct{})}
	l.sessions.Add(1)
	s := &session{
		srv: srv, lane: l, qp: q, peer: "fuzz", quiet: make(chan struct{}), fetchSem: make(chan struct{}, 2),
		connect: []byte("c"), accept: []byte("a"), connected: true, serverCredit: 1,
		login: by, closed: make(chan struct{}), drained: make(chan struct{}),
	}
	s.sealIn, s.sealOut = wire.NewSeals(by.Secret.Reveal(), s.connect, s.accept)
	q.seal, _ = wire.NewSeals(by.Secret.Reveal(), s.connect, s.accept)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.inflight.Store(1)
	s.heard.Store(srv.now()) // or the janitor finds it silent since the start
	s.allowed.Store(1)
	s.replySize = minReplySize
	var err error
	if s.setup, err = srv.root.admit(source{"fuzz", "fuzz"}); s.setup == nil {
		t.Fatal(err)
	}
	srv.remember(s)
	if open {
		s.state.Store(uint32(stateOpen))
		s.allowed.Store(8)
		if err := srv.opened(s); err != nil {
			t.Fatal(err)
		}
	}
	return s, q
}

// feed lets one message arrive and waits until its handler is done.
func feed(t testing.TB, s *session, q *deafQP, msg []byte) {
	l := s.lane
	b, err := l.recvs.get()
	if err != nil {
		t.Fatal(err)
	}
	b.n = copy(b.mem, msg)
	if b.n >= wire.HeaderSize {
		q.seal.Seal(b.mem[:b.n])
	}
	b.sess = s
	l.pollMu.Lock()
	l.receive(s, b)
	l.pollMu.Unlock()
	deadline := time.Now().Add(20 * time.Second)
	for q.complete(l) || s.inflight.Load() > 1 {
		if time.Now().After(deadline) {
			t.Fatalf("a handler does not end: %x", msg)
		}
		runtime.Gosched()
	}
	s.flush()
	q.complete(l)
}

// endDeaf finishes a deaf session and checks that it has left nothing behind.
func endDeaf(t testing.TB, s *session, q *deafQP) {
	q.Disconnect()
	s.finish()
	if n := len(s.sent) + len(s.out) + len(s.spent) + len(s.holds) + s.posted; n != 0 {
		t.Errorf("%d buffers, holds or receives left in the session", n)
	}
	for name, p := range map[string]*bufPool{"receives": s.lane.recvs, "small replies": s.lane.replies[0], "large replies": s.lane.replies[2]} {
		// The other session of the server may be on this lane.
		if _, used := p.count(); used > 16 {
			t.Errorf("%d %s in use", used, name)
		}
	}
}

// FuzzRequest feeds one arbitrary message to a session, then a Ping: whatever
// the first was, the server neither panics nor hangs nor leaks, and either
// answers or ends the session.
func FuzzRequest(f *testing.F) {
	key := []byte("key")
	srv := startServer(f, func(c *Config) { c.MaxPoll = time.Millisecond })
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: 1 << 16})
	wire.SignHello(hello, nil, []byte("c"), []byte("a"))
	for _, msg := range [][]byte{
		hello,
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key}),
		wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, ValueLen: 1 << 16, RKey: 1, Addr: 4096}),
		wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, Checksum: 0x2d06800538d394c2}),
		wire.AppendDelete(nil, 1, wire.Delete{Key: key}),
		wire.AppendGet(nil, 1, wire.Get{Key: key, MaxInline: 100}),
		wire.AppendGet(nil, 1, wire.Get{Key: key}),
		wire.AppendRelease(nil, 1, wire.Release{ID: 1}),
		wire.AppendExists(nil, 1, wire.Key{Key: key}),
		wire.AppendScan(nil, 1, wire.Scan{Prefix: []byte("k"), Limit: 2}),
		wire.AppendStats(nil, 1, wire.StatsRequest{}),
		wire.AppendViewRequest(nil, 1, wire.ViewRequest{}),
		wire.AppendPing(nil, 1, wire.Ping{Return: 3}),
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key, Terms: wire.Terms{If: wire.CondVersion, IfVersion: 9, TTLMicros: 5}}),
		wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key, Terms: wire.Terms{ID: wire.RequestID{Slot: 1, Seq: 2, AgeMillis: 3}}}),
		wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateIncrement, Delta: 1, Key: []byte("n")}),
		wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateTouch, Key: key, Terms: wire.Terms{TTLMicros: 1 << 40}}),
		wire.AppendBatch(nil, 1, wire.RequestID{}, 1, wire.AppendBatchPart(nil, wire.BatchPart{Key: key, Value: key})),
		wire.AppendBatch(nil, 1, wire.RequestID{}, 2, wire.AppendBatchPart(wire.AppendBatchPart(nil, wire.BatchPart{Key: key}), wire.BatchPart{Key: []byte("z"), Delete: true})),
		wire.AppendBatchLarge(nil, 1, wire.BatchLarge{Count: 3, Length: 1 << 10, RKey: 1, Addr: 4096}),
		wire.AppendWatch(nil, 1, wire.Watch{Prefix: key}),
		wire.AppendAdmin(nil, 1, wire.Admin{Op: wire.AdminRotate, Name: []byte("status")}),
		wire.AppendWatch(nil, 1, wire.Watch{From: wire.Cursor{Incarnation: srv.incarnation, Version: 1 << 40}, WaitMillis: 5, Values: true}),
		wire.AppendReport(nil, 1, wire.Touches(nil).Append(wire.Touch{Hash: 1, Count: 2}), []wire.Damage{{Shard: 1, Place: 1 << 20, Version: 1 << 40, Key: key}}),
	} {
		f.Add(msg, true)
		f.Add(msg, false)
	}
	p := dial(f, srv, peerOptions{})
	if err := p.put("key", "value"); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, msg []byte, open bool) {
		if len(msg) > srv.cfg.RequestSize {
			return // the fabric refuses it
		}
		s, q := deafSession(t, srv, open)
		feed(t, s, q, msg)
		feed(t, s, q, wire.AppendPing(nil, 99, wire.Ping{}))
		alive := sessionState(s.state.Load()) == stateOpen
		answered := len(q.types) > 0 && q.types[len(q.types)-1] == wire.TypePing.Reply()
		if alive != answered {
			t.Errorf("alive %v, Ping answered %v: %v", alive, answered, q.types)
		}
		endDeaf(t, s, q)
	})
}

// TestEveryTypeInEveryState sends every type of message, whole and with an
// empty body, to a session in every state: what is not in the table below ends
// the session, and nothing panics.
func TestEveryTypeInEveryState(t *testing.T) {
	srv := startServer(t, nil)
	key := []byte("k")
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: 1 << 16})
	wire.SignHello(hello, nil, []byte("c"), []byte("a"))
	whole := map[wire.Type][]byte{
		wire.TypeHello:    hello,
		wire.TypeView:     wire.AppendViewRequest(nil, 1, wire.ViewRequest{}),
		wire.TypePut:      wire.AppendPut(nil, 1, wire.Put{Key: key, Value: key}),
		wire.TypePutLarge: wire.AppendPutLarge(nil, 1, wire.PutLarge{Key: key, Checksum: checksum(nil)}),
		wire.TypeDelete:   wire.AppendDelete(nil, 1, wire.Delete{Key: key}),
		wire.TypeGet:      wire.AppendGet(nil, 1, wire.Get{Key: key}),
		wire.TypeRelease:  wire.AppendRelease(nil, 1, wire.Release{}),
		wire.TypeExists:   wire.AppendExists(nil, 1, wire.Key{Key: key}),
		wire.TypeScan:     wire.AppendScan(nil, 1, wire.Scan{}),
		wire.TypeStats:    wire.AppendStats(nil, 1, wire.StatsRequest{}),
		wire.TypePing:     wire.AppendPing(nil, 1, wire.Ping{}),

		wire.TypeUpdate:     wire.AppendUpdate(nil, 1, wire.Update{Op: wire.UpdateTouch, Key: key}),
		wire.TypeBatch:      wire.AppendBatch(nil, 1, wire.RequestID{}, 1, wire.AppendBatchPart(nil, wire.BatchPart{Key: key})),
		wire.TypeBatchLarge: wire.AppendBatchLarge(nil, 1, wire.BatchLarge{Checksum: checksum(nil)}),
		wire.TypeWatch:      wire.AppendWatch(nil, 1, wire.Watch{}),
		wire.TypeFetch:      wire.AppendFetch(nil, 1, wire.Fetch{Hold: 1, Length: 8}),
		wire.TypeCluster:    wire.AppendClusterRequest(nil, 1, wire.ClusterRequest{}),
		wire.TypeMapChange:  wire.AppendMapChange(nil, 1, wire.MapChange{Step: wire.MapPrepare, Total: 1, Data: key}),
		wire.TypeReport:     wire.AppendReport(nil, 1, nil, nil),
		wire.TypeAdmin:      wire.AppendAdmin(nil, 1, wire.Admin{Op: wire.AdminRotate, Name: []byte("status")}),
	}
	for typ := range 256 {
		empty := wire.AppendReleaseReply(nil, 1) // a header and nothing else
		empty[1] = byte(typ)
		for _, msg := range [][]byte{empty, whole[wire.Type(typ)]} {
			for _, state := range []sessionState{stateNew, stateOpen, stateEnd} {
				for _, draining := range []bool{false, true} {
					if msg == nil {
						continue
					}
					s, q := deafSession(t, srv, state != stateNew)
					if state == stateEnd {
						s.state.Store(uint32(stateEnd))
					}
					srv.draining.Store(draining)
					feed(t, s, q, msg)
					srv.draining.Store(false)
					// Whole requests are answered in the state they belong to.
					// While the node drains it refuses them before it looks at
					// their bodies, Hello and Ping excepted.
					isWhole := len(msg) > wire.HeaderSize
					isRequest := whole[wire.Type(typ)] != nil
					proper := isRequest && state != stateEnd && (state == stateNew) == (wire.Type(typ) == wire.TypeHello)
					refused := draining && typ != int(wire.TypePing) && typ != int(wire.TypeHello)
					answered := proper && (isWhole || refused)
					last := wire.Type(0)
					if len(q.types) > 0 {
						last = q.types[len(q.types)-1]
					}
					switch {
					case answered && last != wire.Type(typ).Reply():
						t.Errorf("type %d in state %v, draining %v: %v instead of its reply", typ, state, draining, last)
					case !answered && state != stateEnd && last != wire.TypeGoodbye:
						t.Errorf("type %d in state %v, draining %v: %v instead of Goodbye", typ, state, draining, last)
					case state == stateEnd && len(q.types) != 0:
						t.Errorf("type %d in state %v: answered %v", typ, state, last)
					}
					endDeaf(t, s, q)
				}
			}
		}
	}
}
