// Package deaf is an RNIC with nobody at the other end, for tests of a server's sessions: a
// test is the client, and says what completes.
package deaf

import (
	"cmp"
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// A Device is an RNIC with nobody at the other end: its queue pairs complete every
// post at once, receives when the test lets something arrive.
type Device struct {
	rdma.Device // methods not needed stay nil, as below
}

func (Device) Name() string { return "deaf" }
func (Device) Attr() rdma.DeviceAttr {
	return rdma.DeviceAttr{Fabric: "deaf", MaxQPWR: 1 << 16}
}
func (d Device) AllocPD() (rdma.PD, error) { return pd{}, nil }
func (d Device) CreateCQ(int) (rdma.CQ, error) {
	return &CQ{wake: make(chan struct{}, 1)}, nil
}

type pd struct{ rdma.PD }

func (pd) RegMR(b []byte, access rdma.Access) (rdma.MR, error) {
	return &mr{bytes: b, access: access}, nil
}
func (pd) CreateQP(c rdma.QPConfig) (rdma.QP, error) {
	return &QP{cq: c.SendCQ.(*CQ), done: make(chan struct{})}, nil
}
func (pd) Device() rdma.Device { return Device{} }
func (pd) Close() error        { return nil }

type mr struct {
	rdma.MR
	bytes  []byte
	access rdma.Access
}

func (m *mr) Bytes() []byte       { return m.bytes }
func (m *mr) Access() rdma.Access { return m.access }
func (m *mr) RKey() uint32        { return 0 }
func (m *mr) Close() error        { return nil }

// A CQ hands out what the test and the queue pairs put in.
type CQ struct {
	mu     sync.Mutex
	queue  []rdma.WC
	asleep bool // its lane has found nothing and sleeps
	wake   chan struct{}
}

func (c *CQ) put(wcs ...rdma.WC) {
	if len(wcs) == 0 {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, wcs...)
	c.asleep = false
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *CQ) Poll(wcs []rdma.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(wcs, c.queue)
	c.queue = c.queue[n:]
	return n, nil
}

func (c *CQ) Arm() error { return nil }

func (c *CQ) Wait(ctx context.Context) error {
	c.mu.Lock()
	c.asleep = len(c.queue) == 0
	c.mu.Unlock()
	select {
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *CQ) Close() error { return nil }

// rests says that the lane has handled all there was.
func (c *CQ) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asleep
}

// A QP takes every post and completes it at once, with nobody at the other
// end: READs fail, SENDs succeed. It checks that whatever a session sends is a
// message. It is connected until the test says otherwise, so that a session that has
// ended is there until endDeaf.
type QP struct {
	rdma.QP
	t    testing.TB
	cq   *CQ
	done chan struct{}
	once sync.Once

	secret          []byte
	connect, accept []byte     // what both ends said
	seal            *wire.Seal // of what arrives

	Mu    sync.Mutex
	Serve []byte // what READs find, if not nil: then they succeed
	Stuck bool   // SENDs do not complete
	held  []rdma.WC
	Recvs []rdma.RecvWR // posted, to be flushed by Close
	Types []wire.Type   // of what was sent
	// Credits were given by what was sent.
	Credits int
	Last    wire.Header // of what was sent last
	// Version is that of the session; 0: the newest that this program speaks. What arrives gets it, unless AsIs.
	Version uint8
	AsIs    bool
}

func (q *QP) PostSend(wrs []rdma.SendWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for _, wr := range wrs {
		if wr.Op == rdma.OpRDMARead {
			st := rdma.StatusRemAccessErr
			if sge := wr.SGL[0]; q.Serve != nil {
				copy(sge.MR.Bytes()[sge.Off:][:sge.Len], q.Serve)
				st = rdma.StatusSuccess
			}
			q.cq.put(rdma.WC{ID: wr.ID, Status: st})
			continue
		}
		sge := wr.SGL[0]
		msg := sge.MR.Bytes()[sge.Off:][:sge.Len]
		h, err := wire.ParseHeaderIn(msg, cmp.Or(q.Version, wire.VersionMax))
		if err != nil {
			q.t.Errorf("the server sends what is no message: %v: %x", err, msg)
		}
		if h.Type.Request() == wire.TypePack {
			if _, err := wire.ParsePack(h, wire.Body(msg)); err != nil {
				q.t.Errorf("the server sends what is no pack: %v: %x", err, msg)
			}
		}
		if h.Type != wire.TypeGoodbye && !h.Type.IsReply() {
			q.t.Errorf("the server sends %v", h)
		}
		q.Types, q.Last = append(q.Types, h.Type), h
		q.Credits += int(h.Credits)
		if wr.Flags&rdma.SendSignaled != 0 {
			if wc := (rdma.WC{ID: wr.ID, Status: rdma.StatusSuccess}); q.Stuck {
				q.held = append(q.held, wc)
			} else {
				q.cq.put(wc)
			}
		}
	}
	return len(wrs), nil
}

func (q *QP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for _, wr := range wrs {
		wr.SGL = append([]rdma.SGE(nil), wr.SGL...)
		q.Recvs = append(q.Recvs, wr)
	}
	return len(wrs), nil
}

// Close flushes the receives, as a fabric does.
func (q *QP) Close() error {
	q.Mu.Lock()
	recvs, held := q.Recvs, q.held
	q.Recvs, q.held = nil, nil
	q.Mu.Unlock()
	for i := range held {
		held[i].Status = rdma.StatusWRFlushErr
	}
	for _, wr := range recvs {
		held = append(held, rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
	}
	q.cq.put(held...)
	return nil
}

func (q *QP) SetAccess(rdma.Access) error { return nil }
func (q *QP) Disconnect() error           { return nil }
func (q *QP) Done() <-chan struct{}       { return q.done }
func (q *QP) Err() error                  { return rdma.ErrPeerGone }
func (q *QP) Info() rdma.ConnInfo         { return rdma.ConnInfo{ORD: 8, Path: rdma.Path{MTU: 4097}} }
func (q *QP) QPN() uint32                 { return 1 }

// Sent returns the types of the messages that the session has sent.
func (q *QP) Sent() []wire.Type {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return append([]wire.Type(nil), q.Types...)
}

// A Request asks for a connection with a QP.
type Request struct {
	rdma.ConnRequest
	accepted chan accepted
}

type accepted struct {
	qp     *QP
	accept []byte
}

// NewRequest makes one.
func NewRequest() Request { return Request{accepted: make(chan accepted, 1)} }

// Connect is the private data of all requests, and what stands for it and for that of the
// server's end where a Hello is signed before there is a session (QP.Sign).
var (
	Connect = []byte("c")
	Accept  = []byte("a")
)

// Accepted waits until the server accepts the request, whose client knows a secret.
func (r Request) Accepted(t testing.TB, secret []byte) *QP {
	a := <-r.accepted
	q := a.qp
	q.t, q.secret, q.connect, q.accept = t, secret, Connect, a.accept
	q.seal, _ = wire.NewSeals(secret, q.connect, q.accept)
	return q
}

// Open has the client say a Hello, and checks that it is answered.
func (q *QP) Open(t testing.TB, replySize uint32, idle func() bool) {
	t.Helper()
	hello := wire.AppendHello(nil, 1, wire.Hello{ReplySize: replySize, ClientID: [16]byte{1: 9}})
	wire.SetCredits(hello, 1) // for a Goodbye
	wire.SignHello(hello, q.secret, Connect, Accept)
	q.Feed(t, hello, idle)
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if len(q.Types) != 1 || q.Types[0] != wire.TypeHello.Reply() {
		t.Fatalf("it does not open: %v", q.Types)
	}
	q.Types = nil
}

// Feed lets one message arrive and waits until its handler is done: until idle says that no
// request is under way, and the lane sleeps. A Hello that is signed for Connect and Accept is
// signed anew for what both ends have said.
func (q *QP) Feed(t testing.TB, msg []byte, idle func() bool) {
	t.Helper()
	msg = append([]byte(nil), msg...)
	if len(msg) > wire.HeaderSize && wire.VerifyHello(wire.Body(msg), q.secret, Connect, Accept) {
		wire.SignHello(msg, q.secret, q.connect, q.accept)
	}
	q.Arrive(t, msg)
	deadline := time.Now().Add(20 * time.Second)
	for !q.cq.rests() || !idle() || !q.cq.rests() {
		if time.Now().After(deadline) {
			t.Fatalf("a handler does not end: %x", msg)
		}
		runtime.Gosched()
	}
}

// End ends the connection.
func (q *QP) End() { q.once.Do(func() { close(q.done) }) }

func (r Request) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (r Request) Accept(_ context.Context, qp rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	r.accepted <- accepted{qp.(*QP), p.PrivateData}
	return rdma.ConnInfo{}, nil
}

// Arrive lets one message arrive.
func (q *QP) Arrive(t testing.TB, msg []byte) {
	t.Helper()
	q.Mu.Lock()
	if len(q.Recvs) == 0 {
		q.Mu.Unlock()
		t.Fatalf("no receive is posted for %x", msg)
	}
	wr := q.Recvs[0]
	q.Recvs = q.Recvs[1:]
	q.Mu.Unlock()
	b := wr.SGL[0].MR.Bytes()[wr.SGL[0].Off:][:wr.SGL[0].Len]
	n := copy(b, msg)
	if n >= wire.HeaderSize && q.Version != 0 && !q.AsIs {
		wire.SetVersion(b, q.Version)
	}
	if n >= wire.HeaderSize {
		q.seal.Seal(b[:n])
	}
	q.cq.put(rdma.WC{ID: wr.ID, Status: rdma.StatusSuccess, ByteLen: uint32(n)})
}
