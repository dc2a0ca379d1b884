package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A fakeServer is a fabric and the server behind it in one, for what a real one
// would not do: answer nonsense, sample one READ at two moments, stop at a
// chosen instant. It speaks the handshake and the view; everything else is a
// hook. Its memory is one place space: region 0 (index) and region 1 (items).
type fakeServer struct {
	secret      []byte
	incarnation uint64
	mem         []byte // both regions, in place order

	mu sync.Mutex // guards mem against concurrent READs and what follows
	// onRead, if set, serves a READ instead of a plain copy.
	onRead func(place uint64, dst []byte)
	// onRequest answers a request: nil means the defaults, an empty reply that
	// nothing comes. The reply's id may be anything.
	onRequest func(h wire.Header, msg []byte) (reply []byte, handled bool)
	welcome   func(*wire.Welcome)
	accept    func(private []byte) []byte // changes the acceptance
	reject    []byte                      // refuse with this private data
	connect   func(context.Context) error // waits, or fails, before anything is answered

	direct        bool                   // its memory is mapped: rdma.DirectReader
	shards        uint32                 // 0: one
	others        map[string]*fakeServer // by address: who else can be connected to
	view, reclaim uint64
	qps           []*fakeQP
	dials         atomic.Int64
}

const (
	fakeRegion0 = 1 << 20
	fakeRegion1 = 2 << 20
	fakeRing    = 16 // entries
)

func newFakeServer(incarnation uint64) *fakeServer {
	f := &fakeServer{incarnation: incarnation, mem: make([]byte, fakeRegion0+fakeRegion1), view: 1}
	f.beat(1)
	return f
}

// header is that of region 0.
func (f *fakeServer) header() layout.RegionHeader {
	return layout.RegionHeader{
		Incarnation: f.incarnation, Seed: 42, Shards: 1,
		Region:     layout.Region{ID: 0, Kind: layout.KindIndex, Base: 0, Length: fakeRegion0},
		RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: fakeRing,
	}
}

// beat writes the beat with that counter.
func (f *fakeServer) beat(counter uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beatLocked(counter)
}

func (f *fakeServer) beatLocked(counter uint64) {
	layout.StoreBeat(f.mem, layout.Beat{
		Counter: counter, Incarnation: f.incarnation, ViewVersion: f.view, ReclaimVersion: f.reclaim,
	})
}

// change runs fn with the memory to itself.
func (f *fakeServer) change(fn func(mem []byte)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f.mem)
}

// retire puts a page on the reclaim list.
func (f *fakeServer) retire(p layout.Place, pages uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reclaim++
	layout.PutRetired(f.mem, f.header(), layout.Retired{Version: f.reclaim, Place: p, Pages: pages})
	layout.StoreReclaimVersion(f.mem, f.reclaim)
}

// The places of the fake index: a directory of one entry and one segment.
const (
	fakeDir     = layout.Place(64 << 10 / 8)
	fakeSegment = layout.Place(128 << 10 / 8)
	fakeItems   = layout.Place(fakeRegion0 / 8)
)

// buildIndex writes an empty segment at seg and makes the directory name it.
func (f *fakeServer) buildIndex(mem []byte, seg layout.Place) {
	f.emptySegment(mem, seg, 0)
	binary.LittleEndian.PutUint64(mem[fakeDir.Byte():], layout.MakeDirEntry(seg, 0, 0))
	binary.LittleEndian.PutUint64(mem[4096:], layout.MakeRoot(fakeDir, 0))
}

func (f *fakeServer) emptySegment(mem []byte, seg layout.Place, shard uint16) {
	clear(mem[seg.Byte() : seg.Byte()+uint64(layout.SegmentBytes(0))])
	for b := range layout.SegmentBuckets(0) {
		h := layout.MakeBucketHeader(0, 0, b, 0, shard, 0)
		binary.LittleEndian.PutUint64(mem[seg.Byte()+uint64(b)*layout.BucketSize:], uint64(h))
	}
}

// slotAt is the place of the first slot of the key's first main bucket.
func slotAt(seg layout.Place, key []byte) uint64 {
	a, _ := layout.HashKey(42, key).Mains(layout.SegmentGroups(0))
	return seg.Byte() + uint64(a.MainBucket())*layout.BucketSize + 8
}

// putItem writes a live item and a slot for it.
func (f *fakeServer) putItem(mem []byte, seg, at layout.Place, key, value []byte, v layout.Version) {
	it := layout.Item{Version: v, Key: key, Value: value}
	size := layout.ItemSize(len(key), len(value), false)
	layout.WriteItem(mem[at.Byte():at.Byte()+uint64(size)], f.incarnation, at, it, layout.Pending)
	layout.SetState(mem[at.Byte():], v, layout.Live)
	class, _ := layout.ClassFor(size)
	slot := layout.MakeSlot(layout.HashKey(42, key).Fingerprint(), class, at)
	binary.LittleEndian.PutUint64(mem[slotAt(seg, key):], uint64(slot))
}

// reply answers a request as a server would.
func (f *fakeServer) reply(h wire.Header, msg []byte) []byte {
	if f.onRequest != nil {
		if reply, handled := f.onRequest(h, msg); handled {
			return reply
		}
	}
	var out []byte
	switch h.Type {
	case wire.TypeHello:
		w := wire.Welcome{
			Session: 1, Incarnation: f.incarnation, Lease: 2 * time.Second, Beat: 200 * time.Millisecond,
			Keepalive: time.Hour, Idle: 2 * time.Hour, ViewVersion: f.view, ReclaimVersion: f.reclaim,
			MaxValue: layout.MaxValueLen, MaxKey: layout.MaxKeyLen, RequestSize: messageSize, ReplySize: messageSize,
			Shards: max(f.shards, 1), Regions: 2, ServerID: []byte("fake"),
		}
		f.mu.Lock()
		change := f.welcome
		f.mu.Unlock()
		if change != nil {
			change(&w)
		}
		out = wire.AppendWelcome(nil, h.ID, w)
		wire.SetCredits(out, 8)
		return out
	case wire.TypeView:
		out = wire.AppendViewReply(nil, h.ID, wire.ViewReply{
			Incarnation: f.incarnation, Seed: 42, Version: f.view, ReclaimVersion: f.reclaim,
			Shards: max(f.shards, 1), RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: fakeRing, Total: 2,
		}, []wire.Region{
			{ID: 0, Kind: uint8(layout.KindIndex), Base: 0, Length: fakeRegion0, Addr: 0, RKey: 1},
			{ID: 1, Kind: uint8(layout.KindItems), Base: fakeRegion0 / 8, Length: fakeRegion1, Addr: fakeRegion0, RKey: 1},
		})
	case wire.TypePing:
		return wire.AppendPingReply(nil, h.ID, wire.PingReply{})
	case wire.TypePut:
		out = wire.AppendWriteReply(nil, wire.TypePut, h.ID, wire.WriteReply{Version: 1, Applied: true})
	default:
		out = wire.AppendError(nil, h.Type, h.ID, wire.StatusInternal, "not in this fake")
	}
	wire.SetCredits(out, 1)
	return out
}

// config is a client's, with a clock of the test's own.
func (f *fakeServer) config(clock *fakeClock) Config {
	cfg := Config{
		Servers: []string{"fake:1"}, Fabric: f, Secret: f.secret, HeapMemory: true, LeaseKeep: -1,
		Logger: testLogger("client"), MaxInflight: 4, CacheEntries: 64, DialOnce: true,
	}
	if clock != nil {
		cfg.clock = clock.now
	}
	return cfg
}

func (f *fakeServer) dial(t testing.TB, clock *fakeClock, change func(*Config)) *Client {
	t.Helper()
	cfg := f.config(clock)
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A fakeClock is the lease clock of a test.
type fakeClock struct{ nanos atomic.Int64 }

func newFakeClock() *fakeClock {
	c := new(fakeClock)
	c.nanos.Store(int64(time.Hour))
	return c
}

func (c *fakeClock) now() int64              { return c.nanos.Load() }
func (c *fakeClock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// What follows is the fabric: the least that the client needs of one.

func (f *fakeServer) Name() string                                       { return "fake" }
func (f *fakeServer) Devices(context.Context) ([]rdma.DeviceInfo, error) { return nil, nil }
func (f *fakeServer) Open(context.Context, string) (rdma.Device, error)  { return fakeDevice{f}, nil }

type fakeDevice struct{ f *fakeServer }

func (d fakeDevice) Name() string { return "fake0" }
func (d fakeDevice) Attr() rdma.DeviceAttr {
	return rdma.DeviceAttr{Fabric: "fake", MaxQPWR: 1 << 16, MaxCQE: 1 << 20}
}
func (d fakeDevice) AllocPD() (rdma.PD, error)     { return fakePD(d), nil }
func (d fakeDevice) CreateCQ(int) (rdma.CQ, error) { return newFakeCQ(), nil }
func (d fakeDevice) Close() error                  { return nil }
func (d fakeDevice) Listen(context.Context, string) (rdma.Listener, error) {
	return nil, rdma.ErrNotSupported
}

type fakePD struct{ f *fakeServer }

func (p fakePD) Device() rdma.Device             { return fakeDevice(p) }
func (p fakePD) CreateSRQ(int) (rdma.SRQ, error) { return nil, rdma.ErrNotSupported }
func (p fakePD) Close() error                    { return nil }
func (p fakePD) RegMR(b []byte, a rdma.Access) (rdma.MR, error) {
	return &fakeMR{pd: p, b: b, a: a}, nil
}
func (p fakePD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := &fakeQP{f: p.f, pd: p, cq: cfg.SendCQ.(*fakeCQ), done: make(chan struct{})}
	if p.f.direct {
		return directQP{q}, nil
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

type fakeCQ struct {
	mu    sync.Mutex
	wcs   []rdma.WC
	armed bool
	fault error // what Poll fails with
	event chan struct{}
}

func newFakeCQ() *fakeCQ { return &fakeCQ{event: make(chan struct{}, 1)} }

func (c *fakeCQ) push(wc rdma.WC) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wcs = append(c.wcs, wc)
	if c.armed {
		c.armed = false
		select {
		case c.event <- struct{}{}:
		default:
		}
	}
}

func (c *fakeCQ) Poll(wcs []rdma.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return 0, c.fault
	}
	n := copy(wcs, c.wcs)
	c.wcs = c.wcs[n:]
	return n, nil
}

func (c *fakeCQ) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = true
	return nil
}

func (c *fakeCQ) Wait(ctx context.Context) error {
	select {
	case <-c.event:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeCQ) Close() error { return nil }

// A fakeQP serves what is posted at once, in the poster's goroutine, unless the
// server holds completions back.
type fakeQP struct {
	f  *fakeServer
	pd fakePD
	cq *fakeCQ

	mu     sync.Mutex
	recvs  []rdma.RecvWR
	access rdma.Access
	info   rdma.ConnInfo
	in     *wire.Seal // of what the client sends
	out    *wire.Seal
	err    error
	done   chan struct{}
	held   []rdma.WC // completions of READs held back
	hold   bool
}

func (q *fakeQP) QPN() uint32           { return 1 }
func (q *fakeQP) PD() rdma.PD           { return q.pd }
func (q *fakeQP) State() rdma.QPState   { return rdma.QPRTS }
func (q *fakeQP) Info() rdma.ConnInfo   { return q.info }
func (q *fakeQP) Done() <-chan struct{} { return q.done }
func (q *fakeQP) Access() rdma.Access   { q.mu.Lock(); defer q.mu.Unlock(); return q.access }
func (q *fakeQP) SetAccess(a rdma.Access) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.access = a
	return nil
}
func (q *fakeQP) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *fakeQP) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	if other := q.f.others[addr]; other != nil {
		q.f = other
	}
	q.f.mu.Lock()
	q.f.qps = append(q.f.qps, q)
	q.f.mu.Unlock()
	q.f.dials.Add(1)
	if q.f.connect != nil {
		if err := q.f.connect(ctx); err != nil {
			return rdma.ConnInfo{}, &rdma.OpError{Op: "connect", Fabric: "fake", Err: err}
		}
	}
	if q.f.reject != nil {
		return rdma.ConnInfo{PrivateData: q.f.reject}, &rdma.OpError{Op: "connect", Fabric: "fake", Err: rdma.ErrRejected}
	}
	a := wire.Accept{Version: wire.VersionMax, Incarnation: q.f.incarnation}
	rand.Read(a.Nonce[:])
	private := wire.AppendAccept(nil, q.f.secret, p.PrivateData, a)
	if q.f.accept != nil {
		private = q.f.accept(private)
	}
	q.in, q.out = wire.NewSeals(q.f.secret, p.PrivateData, wire.Unpad(private, wire.AcceptSize))
	q.info = rdma.ConnInfo{PrivateData: private, LocalAddr: &net.TCPAddr{}, RemoteAddr: &net.TCPAddr{}}
	return q.info, nil
}

func (q *fakeQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, wr := range wrs {
		wr.SGL = append([]rdma.SGE(nil), wr.SGL...)
		if q.err != nil {
			q.cq.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
			continue
		}
		q.recvs = append(q.recvs, wr)
	}
	return len(wrs), nil
}

func (q *fakeQP) PostSend(wrs []rdma.SendWR) (int, error) {
	for _, wr := range wrs {
		q.mu.Lock()
		dead, hold := q.err != nil, q.hold
		q.mu.Unlock()
		switch {
		case dead:
			if wr.ID != 0 {
				q.cq.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
			}
			continue
		case wr.Op == rdma.OpSend:
			q.cq.push(rdma.WC{ID: wr.ID, Op: wr.Op})
			s := wr.SGL[0]
			msg := append([]byte(nil), s.MR.Bytes()[s.Off:s.Off+uint64(s.Len)]...)
			err := q.in.Open(msg) // the client posts under a lock
			h := wire.Header{}
			if err == nil {
				h, err = wire.ParseHeader(msg)
			}
			if err != nil {
				q.die(err)
				continue
			}
			if reply := q.f.reply(h, msg); len(reply) > 0 {
				q.deliver(reply)
			}
		default:
			s := wr.SGL[0]
			dst := s.MR.Bytes()[s.Off : s.Off+uint64(s.Len)]
			q.f.mu.Lock()
			if q.f.onRead != nil {
				q.f.onRead(wr.Remote.Addr, dst)
			} else {
				copy(dst, q.f.mem[wr.Remote.Addr:])
			}
			q.f.mu.Unlock()
			if wr.Flags&rdma.SendSignaled == 0 {
				continue
			}
			if hold {
				q.mu.Lock()
				q.held = append(q.held, rdma.WC{ID: wr.ID, Op: wr.Op, ByteLen: s.Len})
				q.mu.Unlock()
				continue
			}
			q.cq.push(rdma.WC{ID: wr.ID, Op: wr.Op, ByteLen: s.Len})
		}
	}
	return len(wrs), nil
}

// A directQP is a fakeQP of a server whose memory is mapped.
type directQP struct{ *fakeQP }

func (q directQP) ReadDirect(sink []byte, remote rdma.RemoteAddr) rdma.Status {
	if q.Err() != nil {
		return rdma.StatusWRFlushErr
	}
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	if q.f.onRead != nil {
		q.f.onRead(remote.Addr, sink)
	} else {
		copy(sink, q.f.mem[remote.Addr:])
	}
	return rdma.StatusSuccess
}

// deliver is a SEND from the server.
func (q *fakeQP) deliver(msg []byte) {
	q.mu.Lock()
	if q.err != nil {
		q.mu.Unlock()
		return
	}
	if len(q.recvs) == 0 {
		q.mu.Unlock()
		q.die(rdma.ErrReceiverNotReady)
		return
	}
	defer q.mu.Unlock() // the seals and the completions are in one order
	if msg = append([]byte(nil), msg...); len(msg) >= wire.HeaderSize {
		q.out.Seal(msg)
	}
	q.landLocked(msg)
}

// land is a SEND as it is, whoever made it.
func (q *fakeQP) land(msg []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.landLocked(msg)
}

func (q *fakeQP) landLocked(msg []byte) {
	wr := q.recvs[0]
	q.recvs = q.recvs[1:]
	s := wr.SGL[0]
	n := copy(s.MR.Bytes()[s.Off:s.Off+uint64(s.Len)], msg)
	q.cq.push(rdma.WC{ID: wr.ID, Op: rdma.OpRecv, ByteLen: uint32(n)})
}

// release lets held completions go.
func (q *fakeQP) release() {
	q.mu.Lock()
	held := q.held
	q.held, q.hold = nil, false
	q.mu.Unlock()
	for _, wc := range held {
		q.cq.push(wc)
	}
}

func (q *fakeQP) holdReads() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hold = true
}

// die moves the QP to ERR and flushes.
func (q *fakeQP) die(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	q.err = err
	close(q.done)
	for _, wc := range q.held {
		q.cq.push(rdma.WC{ID: wc.ID, Status: rdma.StatusWRFlushErr})
	}
	for _, wr := range q.recvs {
		q.cq.push(rdma.WC{ID: wr.ID, Status: rdma.StatusWRFlushErr})
	}
	q.held, q.recvs = nil, nil
}

func (q *fakeQP) Disconnect() error { q.die(rdma.ErrClosed); return nil }
func (q *fakeQP) Close() error      { q.die(rdma.ErrClosed); return nil }

// lastQP is the connection made last.
func (f *fakeServer) lastQP() *fakeQP {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.qps[len(f.qps)-1]
}

// beatOf is the beat that stands in the server's memory.
func beatOf(f *fakeServer) layout.Beat {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, err := layout.ParseBeat(f.mem[layout.BeatOffset:], f.incarnation)
	if err != nil {
		panic(err)
	}
	return b
}
