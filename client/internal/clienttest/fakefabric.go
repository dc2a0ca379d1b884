package clienttest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/store/layout"
)

// The fabric of a fake server: the least that the client needs of one.

func (f *Server) Name() string                                       { return "fake" }
func (f *Server) Devices(context.Context) ([]rdma.DeviceInfo, error) { return nil, nil }
func (f *Server) Open(context.Context, string) (rdma.Device, error)  { return fakeDevice{f}, nil }

type fakeDevice struct{ f *Server }

func (d fakeDevice) Name() string { return "fake0" }
func (d fakeDevice) Attr() rdma.DeviceAttr {
	attr := rdma.DeviceAttr{Fabric: "fake", MaxQPWR: 1 << 16, MaxCQE: 1 << 20}
	if d.f.Sinks.On {
		attr.Caps |= rdma.CapSpinRead
	}
	return attr
}
func (d fakeDevice) AllocPD() (rdma.PD, error) { return fakePD(d), nil }
func (d fakeDevice) CreateCQ(int) (rdma.CQ, error) {
	if d.f.Sinks.On {
		return spinCQ{newFakeCQ()}, nil
	}
	return newFakeCQ(), nil
}
func (d fakeDevice) Close() error { return nil }
func (d fakeDevice) Listen(context.Context, string) (rdma.Listener, error) {
	return nil, rdma.ErrNotSupported
}

type fakePD struct{ f *Server }

func (p fakePD) Device() rdma.Device             { return fakeDevice(p) }
func (p fakePD) CreateSRQ(int) (rdma.SRQ, error) { return nil, rdma.ErrNotSupported }
func (p fakePD) Close() error                    { return nil }
func (p fakePD) RegMR(b []byte, a rdma.Access) (rdma.MR, error) {
	return &fakeMR{pd: p, b: b, a: a}, nil
}
func (p fakePD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	cq, ok := cfg.SendCQ.(*CQ)
	if !ok {
		cq = cfg.SendCQ.(spinCQ).CQ
	}
	q := &QP{f: p.f, pd: p, CQ: cq, done: make(chan struct{})}
	switch {
	case p.f.Direct:
		return directQP{q}, nil
	case p.f.Sinks.On:
		return &sinkQP{QP: q}, nil
	}
	return q, nil
}

type fakeMR struct {
	pd fakePD
	b  []byte
	a  rdma.Access
}

func (m *fakeMR) PD() rdma.PD         { return m.pd }
func (m *fakeMR) Bytes() []byte       { return m.b }
func (m *fakeMR) Addr() uint64        { return 1 << 40 }
func (m *fakeMR) Len() uint64         { return uint64(len(m.b)) }
func (m *fakeMR) LKey() uint32        { return 1 }
func (m *fakeMR) RKey() uint32        { return 1 }
func (m *fakeMR) Access() rdma.Access { return m.a }
func (m *fakeMR) Close() error        { return nil }

type CQ struct {
	Mu    sync.Mutex
	wcs   []rdma.WC
	armed bool
	Fault error // what Poll fails with
	event chan struct{}
	close sync.Once
	gone  chan struct{} // closed with the queue
}

func newFakeCQ() *CQ { return &CQ{event: make(chan struct{}, 1), gone: make(chan struct{})} }

func (c *CQ) push(wc rdma.WC) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.wcs = append(c.wcs, wc)
	if c.armed {
		c.armed = false
		select {
		case c.event <- struct{}{}:
		default:
		}
	}
}

func (c *CQ) Poll(wcs []rdma.WC) (int, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Fault != nil {
		return 0, c.Fault
	}
	n := copy(wcs, c.wcs)
	c.wcs = c.wcs[n:]
	return n, nil
}

func (c *CQ) Arm() error {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.armed = true
	return nil
}

func (c *CQ) Wait(ctx context.Context) error {
	select {
	case <-c.event:
		return nil
	case <-c.gone:
		return rdma.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all waits, as a fabric must.
func (c *CQ) Close() error {
	c.close.Do(func() { close(c.gone) })
	return nil
}

// A QP serves what is posted at once, in the poster's goroutine, unless the
// server holds completions back.
type QP struct {
	f  *Server
	pd fakePD
	CQ *CQ

	Mu     sync.Mutex
	recvs  []rdma.RecvWR
	access rdma.Access
	info   rdma.ConnInfo
	in     *wire.Seal // of what the client sends
	Out    *wire.Seal
	err    error
	done   chan struct{}
	Held   []rdma.WC // completions of READs held back
	hold   bool
	late   []lateRead // into sinks
}

func (q *QP) QPN() uint32           { return 1 }
func (q *QP) PD() rdma.PD           { return q.pd }
func (q *QP) State() rdma.QPState   { return rdma.QPRTS }
func (q *QP) Info() rdma.ConnInfo   { return q.info }
func (q *QP) Done() <-chan struct{} { return q.done }
func (q *QP) Access() rdma.Access   { q.Mu.Lock(); defer q.Mu.Unlock(); return q.access }
func (q *QP) SetAccess(a rdma.Access) error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.access = a
	return nil
}
func (q *QP) Err() error {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.err
}

func (q *QP) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	if other := q.f.Others[addr]; other != nil {
		q.f = other
	}
	q.f.Mu.Lock()
	q.f.QPs = append(q.f.QPs, q)
	q.f.Mu.Unlock()
	q.f.Dials.Add(1)
	if q.f.Connect != nil {
		if err := q.f.Connect(ctx); err != nil {
			return rdma.ConnInfo{}, &rdma.OpError{Op: "connect", Fabric: "fake", Err: err}
		}
	}
	if q.f.Reject != nil {
		return rdma.ConnInfo{PrivateData: q.f.Reject}, &rdma.OpError{Op: "connect", Fabric: "fake", Err: rdma.ErrRejected}
	}
	a := wire.Accept{Version: wire.VersionMax, Incarnation: q.f.Incarnation}
	if q.f.Packs {
		a.Features = wire.FeaturePack
	}
	rand.Read(a.Nonce[:])
	private := wire.AppendAccept(nil, q.f.Secret, p.PrivateData, a)
	if q.f.Accept != nil {
		private = q.f.Accept(private)
	}
	q.in, q.Out = wire.NewSeals(q.f.Secret, p.PrivateData, wire.Unpad(private, wire.AcceptSize))
	q.info = rdma.ConnInfo{PrivateData: private, LocalAddr: &net.TCPAddr{}, RemoteAddr: &net.TCPAddr{}}
	return q.info, nil
}

func (q *QP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	for _, wr := range wrs {
		wr.SGL = append([]rdma.SGE(nil), wr.SGL...)
		if q.err != nil {
			q.CQ.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
			continue
		}
		if slices.ContainsFunc(q.recvs, func(r rdma.RecvWR) bool { return r.ID == wr.ID }) {
			panic(fmt.Sprintf("clienttest: receive %#x is posted, and was posted again", wr.ID))
		}
		q.recvs = append(q.recvs, wr)
	}
	return len(wrs), nil
}

func (q *QP) PostSend(wrs []rdma.SendWR) (int, error) {
	if q.f.OnPost != nil {
		q.f.OnPost(wrs)
	}
	for _, wr := range wrs {
		q.Mu.Lock()
		dead, hold := q.err != nil, q.hold
		q.Mu.Unlock()
		switch {
		case dead:
			if wr.ID != 0 {
				q.CQ.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
			}
			continue
		case wr.Op == rdma.OpSend:
			if q.f.LateSends.Load() {
				q.Mu.Lock()
				q.Held = append(q.Held, rdma.WC{ID: wr.ID, Op: wr.Op})
				q.Mu.Unlock()
			} else {
				q.CQ.push(rdma.WC{ID: wr.ID, Op: wr.Op})
			}
			s := wr.SGL[0]
			msg := append([]byte(nil), s.MR.Bytes()[s.Off:s.Off+uint64(s.Len)]...)
			err := q.in.Open(msg) // the client posts under a lock
			h := wire.Header{}
			if err == nil {
				h, err = wire.ParseHeader(msg)
			}
			if err != nil {
				q.Die(err)
				continue
			}
			q.answer(h, msg)
		default:
			s := wr.SGL[0]
			dst := s.MR.Bytes()[s.Off : s.Off+uint64(s.Len)]
			q.f.Mu.Lock()
			if q.f.OnRead != nil {
				q.f.OnRead(wr.Remote.Addr, dst)
			} else {
				copy(dst, q.f.Mem[wr.Remote.Addr:])
			}
			q.f.Mu.Unlock()
			if wr.Flags&rdma.SendSignaled == 0 {
				continue
			}
			if hold {
				q.Mu.Lock()
				q.Held = append(q.Held, rdma.WC{ID: wr.ID, Op: wr.Op, ByteLen: s.Len})
				q.Mu.Unlock()
				continue
			}
			q.CQ.push(rdma.WC{ID: wr.ID, Op: wr.Op, ByteLen: s.Len})
		}
	}
	return len(wrs), nil
}

// answer answers a message: a pack with a pack, if all its requests are answered.
func (q *QP) answer(h wire.Header, msg []byte) {
	if h.Type != wire.TypePack {
		if reply := q.f.reply(h, msg); len(reply) > 0 {
			q.Deliver(reply)
		}
		return
	}
	n, err := wire.ParsePack(h, wire.Body(msg))
	if err == nil && !q.f.Packs {
		err = wire.ErrType
	}
	if err != nil {
		q.Die(err)
		return
	}
	q.f.PacksIn.Add(1)
	var replies [][]byte
	for pack := wire.Body(msg); len(pack) > 0; {
		h, body, rest, _ := wire.NextPacked(pack)
		m := append(append([]byte(nil), pack[:len(pack)-len(rest)-len(body)]...), make([]byte, wire.SequenceSize+wire.TagSize)...)
		if reply := q.f.reply(h, append(m, body...)); len(reply) > 0 {
			replies = append(replies, reply)
		}
		pack = rest
	}
	if len(replies) == n {
		q.Deliver(Pack(replies...))
		return
	}
	for _, r := range replies {
		q.Deliver(r)
	}
}

// Pack is one message of several replies.
func Pack(replies ...[]byte) []byte {
	out := wire.BeginPack(nil, wire.ReplyBit)
	for _, r := range replies {
		out = wire.AppendPacked(out, r)
	}
	return out
}

// A directQP is a fakeQP of a server whose memory is mapped.
type directQP struct{ *QP }

func (q directQP) ReadDirect(sink []byte, remote rdma.RemoteAddr) rdma.Status {
	if q.Err() != nil {
		return rdma.StatusWRFlushErr
	}
	q.f.Mu.Lock()
	defer q.f.Mu.Unlock()
	switch {
	case len(sink)%8 != 0 || remote.Addr%8 != 0 || mem.Skew(sink, 0) != 0:
		panic(fmt.Sprintf("a READ of %d bytes at %d that is not of words", len(sink), remote.Addr))
	case q.f.Unmapped != nil && q.f.Unmapped():
		return rdma.StatusLocQPOpErr
	case q.f.OnRead != nil:
		q.f.OnRead(remote.Addr, sink)
	default:
		copy(sink, q.f.Mem[remote.Addr:])
	}
	return rdma.StatusSuccess
}

// Deliver is a SEND from the server.
func (q *QP) Deliver(msg []byte) {
	q.Mu.Lock()
	if q.err != nil {
		q.Mu.Unlock()
		return
	}
	if len(q.recvs) == 0 {
		q.Mu.Unlock()
		q.Die(rdma.ErrReceiverNotReady)
		return
	}
	defer q.Mu.Unlock() // the seals and the completions are in one order
	if msg = append([]byte(nil), msg...); len(msg) >= wire.HeaderSize {
		q.Out.Seal(msg)
	}
	q.landLocked(msg)
}

// Land is a SEND as it is, from a server or from another sender.
func (q *QP) Land(msg []byte) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.landLocked(msg)
}

func (q *QP) landLocked(msg []byte) {
	wr := q.recvs[0]
	q.recvs = q.recvs[1:]
	s := wr.SGL[0]
	n := copy(s.MR.Bytes()[s.Off:s.Off+uint64(s.Len)], msg)
	q.CQ.push(rdma.WC{ID: wr.ID, Op: rdma.OpRecv, ByteLen: uint32(n)})
}

// Release lets held completions go.
func (q *QP) Release() {
	q.Mu.Lock()
	held := q.Held
	q.Held, q.hold = nil, false
	q.Mu.Unlock()
	for _, wc := range held {
		q.CQ.push(wc)
	}
}

func (q *QP) HoldReads() {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.hold = true
}

// Die moves the QP to ERR and flushes.
func (q *QP) Die(err error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.err != nil {
		return
	}
	q.err = err
	close(q.done)
	for _, wc := range q.Held {
		q.CQ.push(rdma.WC{ID: wc.ID, Status: rdma.StatusWRFlushErr})
	}
	for _, wr := range q.recvs {
		q.CQ.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
	}
	for _, r := range q.late {
		q.CQ.push(rdma.WC{ID: r.id, Status: rdma.StatusWRFlushErr})
	}
	q.Held, q.recvs, q.late = nil, nil, nil
}

func (q *QP) Disconnect() error { q.Die(rdma.ErrClosed); return nil }
func (q *QP) Close() error      { q.Die(rdma.ErrClosed); return nil }

// LastQP is the connection made last.
func (f *Server) LastQP() *QP {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.QPs[len(f.QPs)-1]
}

// BeatOf is the beat that stands in the server's memory.
func BeatOf(f *Server) layout.Beat {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	b, err := layout.ParseBeat(f.Mem[layout.BeatOffset:], f.Incarnation)
	if err != nil {
		panic(err)
	}
	return b
}
