package rdmatest

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// An end is one machine: a fabric, a device, a PD, one CQ for everything, and
// the books of what was posted.
type end struct {
	t    testing.TB
	cfg  *Config
	name string
	fab  rdma.Fabric
	dev  rdma.Device
	pd   rdma.PD
	cq   rdma.CQ
	attr rdma.DeviceAttr

	mu     sync.Mutex
	last   uint64              // last ID given out
	posted map[uint64]posting  // every work request taken by a queue
	got    map[uint64]rdma.WC  // every completion polled
	order  []uint64            // their IDs as they came
	srq    map[uint64]struct{} // posted to an SRQ: may vanish with it

	signalAll bool // the QPs are created so: every send completes
}

const cqDepth = 8192

// newEnd opens a device. Everything made through the end is closed, and its
// books are balanced, when the test ends.
func newEnd(t testing.TB, cfg *Config, name string) *end {
	t.Helper()
	return newEndOn(t, cfg, name, cfg.New(t), cqDepth)
}

func newEndOn(t testing.TB, cfg *Config, name string, fab rdma.Fabric, depth int) *end {
	t.Helper()
	e := &end{t: t, cfg: cfg, name: name, fab: fab,
		posted: make(map[uint64]posting), got: make(map[uint64]rdma.WC), srq: make(map[uint64]struct{})}
	var err error
	e.dev, err = e.fab.Open(context.Background(), cfg.Device)
	e.check("Open", err)
	e.closeLater("device", e.dev.Close)
	e.attr = e.dev.Attr()
	e.pd, err = e.dev.AllocPD()
	e.check("AllocPD", err)
	e.closeLater("PD", e.pd.Close)
	e.cq, err = e.dev.CreateCQ(min(depth, e.attr.MaxCQE))
	e.check("CreateCQ", err)
	e.closeLater("CQ", func() error {
		e.balance() // the QPs are closed by now: their completions are all here
		return e.cq.Close()
	})
	return e
}

func (e *end) check(what string, err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatalf("%s: %s: %v", e.name, what, err)
	}
}

// closeLater closes something at the end of the test, last made first.
func (e *end) closeLater(what string, f func() error) {
	e.t.Cleanup(func() {
		if err := f(); err != nil {
			e.t.Errorf("%s: closing the %s: %v", e.name, what, err)
		}
	})
}

func (e *end) has(c rdma.Caps) bool { return e.attr.Caps.Has(c) }

// A region is registered memory of an end.
type region struct {
	block *mem.Block
	mr    rdma.MR
}

// region allocates and registers. It is closed and freed at the end of the
// test, unless the test does so itself.
func (e *end) region(size int, access rdma.Access) *region {
	e.t.Helper()
	return e.regionIn(e.pd, size, access)
}

func (e *end) regionIn(pd rdma.PD, size int, access rdma.Access) *region {
	e.t.Helper()
	block, err := mem.Alloc(size, mem.Options{Kind: e.cfg.Memory, Shared: e.cfg.Shared, Tag: "rdmatest"})
	e.check("Alloc", err)
	e.closeLater("block", block.Free)
	mr, err := pd.RegMR(block.Bytes(), access)
	e.check("RegMR", err)
	e.closeLater("MR", mr.Close)
	return &region{block: block, mr: mr}
}

func (r *region) bytes() []byte { return r.block.Bytes() }

func (r *region) sge(off, n int) rdma.SGE {
	return rdma.SGE{MR: r.mr, Off: uint64(off), Len: uint32(n)}
}

func (r *region) remote(off int) rdma.RemoteAddr {
	return rdma.RemoteAddr{Addr: r.mr.Addr() + uint64(off), RKey: r.mr.RKey()}
}

// fill writes a pattern that tells places and seeds apart.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8)*31 ^ seed
	}
}

// expectBytes compares without printing megabytes.
func expectBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: first of %d bytes that differs is %d: %#x, want %#x", what, len(got), i, got[i], want[i])
			return
		}
	}
}

// qp creates a queue pair on the end's CQ.
func (e *end) qp(cfg rdma.QPConfig) rdma.QP {
	e.t.Helper()
	if cfg.SendCQ == nil {
		cfg.SendCQ = e.cq
	}
	if cfg.RecvCQ == nil {
		cfg.RecvCQ = e.cq
	}
	qp, err := e.pd.CreateQP(cfg)
	e.check("CreateQP", err)
	e.closeLater("QP", qp.Close)
	return qp
}

func (e *end) listen() rdma.Listener {
	e.t.Helper()
	l, err := e.dev.Listen(context.Background(), e.cfg.Listen)
	e.check("Listen", err)
	e.closeLater("listener", l.Close)
	return l
}

// eventually waits for a state that nothing announces, such as a goroutine
// that is about to be gone.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !f() {
		if time.Now().After(deadline) {
			t.Errorf("after %v still not so: %s", patience, what)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
