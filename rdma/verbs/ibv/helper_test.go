//go:build linux && cgo

package ibv

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test; none lasts that long.
const patience = 30 * time.Second

// inLab says that this machine ought to have an RDMA device: a test that finds
// none fails instead of skipping.
func inLab() bool { return os.Getenv("RDMAKV_LAB") != "" }

// anyDevice names a device with an active port.
func anyDevice(t testing.TB) string {
	t.Helper()
	list, err := Devices()
	if err == nil && len(list) > 0 {
		return list[0].Name
	}
	if inLab() {
		t.Fatalf("the lab has no RDMA device: %v, %v", list, err)
	}
	t.Skipf("no RDMA device: %v", err)
	return ""
}

func isInval(err error) bool { return isErrno(err, syscall.EINVAL) }

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func closing(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// openAny opens a device until the test ends.
func openAny(t testing.TB) *Context {
	t.Helper()
	c := must(Open(anyDevice(t)))(t)
	closing(t, c)
	return c
}

// pages maps n bytes for the time of the test.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// A bed is what most tests need: a device, a PD, memory and two connected QPs
// a and b on that one device, each with a CQ.
type bed struct {
	ctx      *Context
	pd       *PD
	mem      []byte
	mr       *MR
	ch       *CompChannel
	cqA, cqB *CQ
	a, b     *QP
	gid      GIDEntry
	mtu      MTU
}

const (
	memSize  = 64 << 10
	allRight = AccessLocalWrite | AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic
)

// options of a bed.
type options struct {
	channel  bool // b's CQ reports to a completion channel
	srq      *SRQ // of b
	pd       *PD  // to which srq belongs
	ctx      *Context
	access   Access // of the QPs; 0 means allRight
	depth    int    // 0 means 128
	rnrRetry uint8
}

func newBed(t testing.TB, o options) *bed {
	t.Helper()
	if o.access == 0 {
		o.access = allRight
	}
	if o.depth == 0 {
		o.depth = 128
	}
	b := &bed{ctx: o.ctx, pd: o.pd}
	if b.ctx == nil {
		b.ctx = openAny(t)
	}
	if b.pd == nil {
		b.pd = must(b.ctx.AllocPD())(t)
		closing(t, b.pd)
	}
	b.mem = pages(t, memSize)
	b.mr = must(b.pd.RegMR(uintptr(addrOf(b.mem)), memSize, allRight))(t)
	closing(t, b.mr)
	if o.channel {
		b.ch = must(b.ctx.CreateCompChannel())(t)
		closing(t, b.ch)
	}
	b.cqA = must(b.ctx.CreateCQ(2*o.depth, nil))(t)
	closing(t, b.cqA)
	b.cqB = must(b.ctx.CreateCQ(2*o.depth, b.ch))(t)
	closing(t, b.cqB)
	caps := QPCap{MaxSendWR: uint32(o.depth), MaxRecvWR: uint32(o.depth), MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 128}
	b.a = newQP(t, b.pd, QPInit{SendCQ: b.cqA, RecvCQ: b.cqA, Cap: caps})
	b.b = newQP(t, b.pd, QPInit{SendCQ: b.cqB, RecvCQ: b.cqB, Cap: caps, SRQ: o.srq})
	b.gid, b.mtu = choose(t, b.ctx)
	b.connect(t, b.a, b.b.Num(), o)
	b.connect(t, b.b, b.a.Num(), o)
	return b
}

func newQP(t testing.TB, pd *PD, init QPInit) *QP {
	t.Helper()
	q, caps, err := pd.CreateQP(init)
	if err != nil {
		t.Fatal(err)
	}
	if caps.MaxSendWR < init.Cap.MaxSendWR || caps.MaxInline < init.Cap.MaxInline {
		t.Errorf("asked for %+v and got %+v", init.Cap, caps)
	}
	closing(t, q)
	return q
}

// choose takes a GID of port 1: RoCE v2 and IPv4 if there is one.
func choose(t testing.TB, c *Context) (GIDEntry, MTU) {
	t.Helper()
	port := must(c.QueryPort(1))(t)
	table := must(c.GIDTable(1))(t)
	if port.State != PortActive || len(table) == 0 {
		t.Fatalf("port 1 of %s is %v and has the GIDs %v", c.Info().Name, port.State, table)
	}
	best := slices.IndexFunc(table, func(e GIDEntry) bool {
		return e.Type == GIDRoCEv2 && netip.AddrFrom16(e.GID).Is4In6()
	})
	return table[max(best, 0)], port.ActiveMTU
}

// connect moves q from RESET to RTS towards the QP with number peer on the
// same port, by hand.
func (b *bed) connect(t testing.TB, q *QP, peer uint32, o options) {
	t.Helper()
	steps := []struct {
		attr QPAttr
		mask QPAttrMask
	}{
		{QPAttr{State: QPSInit, Port: 1, AccessFlags: o.access},
			QPMaskState | QPMaskPKeyIndex | QPMaskPort | QPMaskAccessFlags},
		{QPAttr{State: QPSRTR, PathMTU: b.mtu, DestQPN: peer, RQPSN: 7, MaxDestRdAtomic: 16, MinRNRTimer: 1,
			AH: AHAttr{IsGlobal: true, DGID: b.gid.GID, SGIDIndex: uint8(b.gid.Index), HopLimit: 64, PortNum: 1}},
			QPMaskState | QPMaskAV | QPMaskPathMTU | QPMaskDestQPN | QPMaskRQPSN | QPMaskMaxDestRdAtomic | QPMaskMinRNRTimer},
		{QPAttr{State: QPSRTS, SQPSN: 7, MaxRdAtomic: 16, Timeout: 14, RetryCnt: 6, RNRRetry: o.rnrRetry},
			QPMaskState | QPMaskSQPSN | QPMaskMaxQPRdAtomic | QPMaskTimeout | QPMaskRetryCnt | QPMaskRNRRetry},
	}
	for _, s := range steps {
		if err := q.Modify(&s.attr, s.mask); err != nil {
			t.Fatalf("to %v: %v", s.attr.State, err)
		}
	}
}

// sge names n bytes at offset off of the bed's memory.
func (b *bed) sge(off, n int) [MaxSGE]SGE {
	return [MaxSGE]SGE{{Addr: addrOf(b.mem) + uint64(off), Len: uint32(n), LKey: b.mr.LKey}}
}

// read is a signaled READ of n bytes from offset from to offset to.
func (b *bed) read(id uint64, to, from, n int) SendWR {
	return SendWR{ID: id, Op: WRRDMARead, Flags: SendSignaled, RKey: b.mr.RKey,
		RemoteAddr: addrOf(b.mem) + uint64(from), NumSGE: 1, SGL: b.sge(to, n)}
}

func (b *bed) recv(id uint64, off, n int) RecvWR {
	return RecvWR{ID: id, NumSGE: 1, SGL: b.sge(off, n)}
}

func send(t testing.TB, q *QP, wrs ...SendWR) {
	t.Helper()
	if n, err := q.PostSend(wrs); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

func receive(t testing.TB, q *QP, wrs ...RecvWR) {
	t.Helper()
	if n, err := q.PostRecv(wrs); err != nil || n != len(wrs) {
		t.Fatalf("posted %d of %d: %v", n, len(wrs), err)
	}
}

// drain polls q until it gave n completions.
func drain(t testing.TB, q *CQ, n int) []WC {
	t.Helper()
	var all []WC
	wcs := make([]WC, n)
	for end := time.Now().Add(patience); len(all) < n; {
		got, err := q.Spin(wcs[:n-len(all)], MaxSpin)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, wcs[:got]...)
		if got == 0 && time.Now().After(end) {
			t.Fatalf("%d of %d completions came: %+v", len(all), n, all)
		}
	}
	return all
}

// one polls one completion, which has to have the status want.
func one(t testing.TB, q *CQ, want WCStatus) WC {
	t.Helper()
	wc := drain(t, q, 1)[0]
	if wc.Status != want {
		t.Fatalf("completion %+v, want status %v", wc, want)
	}
	return wc
}
