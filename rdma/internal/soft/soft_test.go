package soft

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// The smallest fabric: its queue pairs never connect to anything, and flush as soon
// as they are told to hang up.
type device struct{ Device }

type pd struct{ PD }

type cq struct{ CQ }

type qp struct {
	QP
	busy bool // the fabric touches the program's memory
}

func (d *device) AllocPD() (rdma.PD, error) {
	p := new(pd)
	return p, p.Init(&d.Device, p)
}

func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	c := new(cq)
	return c, c.Init(&d.Device, depth)
}

func (d *device) Listen(context.Context, string) (rdma.Listener, error) {
	return nil, rdma.ErrNotSupported
}

func (p *pd) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	q := new(qp)
	return q, q.Init(&p.PD, q, cfg)
}

func (c *cq) Poll(wcs []rdma.WC) (int, error) { return c.Take(wcs) }

func (q *qp) PostSend(wrs []rdma.SendWR) (int, error) {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	n, _, err := q.PostLocked(wrs)
	return n, err
}

func (q *qp) Connect(context.Context, string, rdma.ConnParams) (rdma.ConnInfo, error) {
	return rdma.ConnInfo{}, rdma.ErrNotSupported
}

func (q *qp) HangUp() {
	if !q.busy {
		q.FlushLocked()
	}
}

// A rig is one object of each kind.
type rig struct {
	dev *device
	pd  *pd
	cq  *cq
	mr  *MR
}

var testKind = &Kind{Fabric: "test"}

func newRig(t *testing.T) *rig { return newRigOf(t, testKind) }

func newRigOf(t *testing.T, kind *Kind) *rig {
	t.Helper()
	a := Limits()
	a.MaxQP, a.MaxQPRdAtom, a.MaxQPInitRdAtom = 2, 4, 4
	dev := new(device)
	dev.Init(dev, kind, "test0", a, new(Numbers))
	p, err := dev.AllocPD()
	check(t, err)
	c, err := dev.CreateCQ(64)
	check(t, err)
	m, err := p.RegMR(make([]byte, 64), rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	check(t, err)
	r := &rig{dev, p.(*pd), c.(*cq), m.(*MR)}
	t.Cleanup(func() {
		for _, close := range []func() error{m.Close, c.Close, p.Close, dev.Close} {
			check(t, close())
		}
	})
	return r
}

// qp makes a QP in RTS, with up to 4 READs at a time.
func (r *rig) qp(t *testing.T, cfg rdma.QPConfig) *qp {
	t.Helper()
	cfg.SendCQ, cfg.RecvCQ = r.cq, r.cq
	made, err := r.pd.CreateQP(cfg)
	check(t, err)
	t.Cleanup(func() { check(t, made.Close()) })
	q := made.(*qp)
	q.Mu.Lock()
	defer q.Mu.Unlock()
	check(t, q.EstablishLocked(rdma.ConnInfo{}, 4, 4, rdma.QPRTS))
	return q
}

// completions takes what is queued, as ID and status.
func (r *rig) completions(t *testing.T) (got []rdma.WC) {
	t.Helper()
	wcs := make([]rdma.WC, 16)
	n, err := r.cq.Poll(wcs)
	check(t, err)
	for _, wc := range wcs[:n] {
		got = append(got, rdma.WC{ID: wc.ID, Status: wc.Status, VendorErr: wc.VendorErr})
	}
	return got
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRegionCloseWaits: MR.Close waits for an access under way and lets none begin;
// meanwhile the fabric has taken the region back from its peers.
func TestRegionCloseWaits(t *testing.T) {
	r := newRig(t)
	made, err := r.pd.RegMR(make([]byte, 64), rdma.AccessRemoteRead)
	check(t, err)
	m := made.(*MR)
	withdrawn := make(chan bool, 1)
	r.pd.Withdrawn = func(m *MR) { withdrawn <- r.dev.Regions.Get(m.LKey()) == nil && m.Closed() }
	for range 2 {
		if !m.Acquire() {
			t.Fatal("not acquired")
		}
	}
	closed := make(chan struct{})
	go func() { _ = made.Close(); close(closed) }()
	for !m.Closed() {
		runtime.Gosched()
	}
	if m.Acquire() {
		t.Fatal("acquired while closing")
	}
	if !<-withdrawn {
		t.Error("withdrawn before it was closed and out of the table")
	}
	m.Release()
	select {
	case <-closed:
		t.Fatal("closed with an access under way")
	default:
	}
	m.Release()
	<-closed
	check(t, made.Close())
	r.pd.Withdrawn = nil
}

// TestNumbersComeBack: a QP that is closed gives back its number and its place, and
// one that could not be made has taken neither.
func TestNumbersComeBack(t *testing.T) {
	r := newRig(t)
	cfg := rdma.QPConfig{SendCQ: r.cq, RecvCQ: r.cq}
	for range 3 {
		a, err := r.pd.CreateQP(cfg)
		check(t, err)
		b, err := r.pd.CreateQP(cfg)
		check(t, err)
		if a.QPN() == b.QPN() {
			t.Errorf("both QPs are %d", a.QPN())
		}
		if _, err := r.pd.CreateQP(cfg); !errors.Is(err, rdma.ErrLimit) {
			t.Errorf("a third QP: %v", err)
		}
		check(t, a.Close())
		check(t, b.Close())
	}
	if n := len(r.dev.numbers.used); n != 0 {
		t.Errorf("%d numbers are in use", n)
	}
	srq, err := r.pd.CreateSRQ(1)
	check(t, err)
	check(t, srq.Close())
	bad := cfg
	bad.SRQ = srq
	if _, err := r.pd.CreateQP(bad); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("a QP with a closed SRQ: %v", err)
	}
	other := newRig(t)
	bad = cfg
	bad.SendCQ = other.cq
	if _, err := r.pd.CreateQP(bad); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("a QP with a CQ of another device: %v", err)
	}
	if n := r.dev.qps.N(); n != 0 || len(r.cq.qps) != 0 {
		t.Errorf("%d QPs are counted, %d use the CQ", n, len(r.cq.qps))
	}
}

// TestFlush: a dead QP completes what is queued in order: the oldest request that
// was not carried out has the cause's status and says why, those behind it and those
// that were carried out behind an older READ are flushed; then the receive that was
// being filled, then the others. What is posted later is flushed without a status.
func TestFlush(t *testing.T) {
	r := newRig(t)
	q := r.qp(t, rdma.QPConfig{})
	var wrs []rdma.SendWR
	for id := range uint64(4) {
		wrs = append(wrs, rdma.SendWR{ID: 1 + id, Op: rdma.OpRDMARead})
	}
	_, err := q.PostSend(wrs)
	check(t, err)
	_, err = q.PostRecv([]rdma.RecvWR{{ID: 11}, {ID: 12}})
	check(t, err)
	q.Mu.Lock()
	q.SQ.Next = q.SQ.Tail
	q.SQ.At(q.SQ.Head + 1).Done = true // behind the first, which is not
	q.Inbox.Receiving = q.RQ.Take(&q.Inbox.Recv)
	q.busy = true
	q.FailLocked(Cause{Err: rdma.ErrAccess, Send: rdma.StatusRemAccessErr, Recv: rdma.StatusLocLenErr, Vendor: 7})
	q.FailLocked(Cause{Err: rdma.ErrPeerGone, Send: rdma.StatusRetryExcErr})
	q.Mu.Unlock()
	if got := r.completions(t); len(got) != 0 {
		t.Fatalf("flushed while somebody is at work: %+v", got)
	}
	_, err = q.PostSend([]rdma.SendWR{{ID: 5, Op: rdma.OpSend}})
	check(t, err)
	q.Mu.Lock()
	q.FlushLocked()
	q.FlushLocked()
	q.Mu.Unlock()
	const flushed = rdma.StatusWRFlushErr
	want := []rdma.WC{
		{ID: 1, Status: rdma.StatusRemAccessErr, VendorErr: 7}, {ID: 2, Status: flushed}, {ID: 3, Status: flushed},
		{ID: 4, Status: flushed}, {ID: 5, Status: flushed},
		{ID: 11, Status: rdma.StatusLocLenErr, VendorErr: 7}, {ID: 12, Status: flushed},
	}
	if got := r.completions(t); !slices.Equal(got, want) {
		t.Errorf("completions %+v,\nwant %+v", got, want)
	}
	_, err = q.PostSend([]rdma.SendWR{{ID: 6, Op: rdma.OpSend}})
	check(t, err)
	_, err = q.PostRecv([]rdma.RecvWR{{ID: 13}})
	check(t, err)
	if got, want := r.completions(t), []rdma.WC{{ID: 6, Status: flushed}, {ID: 13, Status: flushed}}; !slices.Equal(got, want) {
		t.Errorf("completions of what was posted later %+v, want %+v", got, want)
	}
	if !errors.Is(q.Err(), rdma.ErrAccess) {
		t.Errorf("Err is %v: the first cause stands", q.Err())
	}
}

// TestRetire: completions come in order and none before its time, for those that
// want one, however many are done at once.
func TestRetire(t *testing.T) {
	r := newRig(t)
	q := r.qp(t, rdma.QPConfig{})
	q.Mu.Lock()
	defer q.Mu.Unlock()
	retire := func() (ids []uint64) {
		q.RetireLocked()
		for {
			wcs := r.completions(t)
			if len(wcs) == 0 {
				return ids
			}
			for _, wc := range wcs {
				ids = append(ids, wc.ID)
			}
		}
	}
	id := uint64(0)
	for _, n := range []int{1, 2, 3, 16, 17, 40} {
		var want []uint64
		for i := range n {
			wr := rdma.SendWR{ID: id, Op: rdma.OpSend}
			if i%3 != 1 {
				wr.Flags = rdma.SendSignaled
				want = append(want, id)
			}
			id++
			if _, live, err := q.PostLocked([]rdma.SendWR{wr}); !live || err != nil {
				t.Fatalf("posted: %v, %v", live, err)
			}
		}
		if got := retire(); got != nil {
			t.Fatalf("%v completed before they were sent", got)
		}
		for q.SQ.Next++; q.SQ.Next != q.SQ.Tail; q.SQ.Next++ {
			q.SQ.At(q.SQ.Next).Done = true
		}
		if got := retire(); got != nil {
			t.Fatalf("%v completed before the first of them", got)
		}
		q.SQ.At(q.SQ.Head).Done = true
		if got := retire(); !slices.Equal(got, want) {
			t.Fatalf("%d requests: completions of %v, want %v", n, got, want)
		}
	}
}

// TestPostsRefused: what a post says first when more than one thing is wrong.
func TestPostsRefused(t *testing.T) {
	r := newRig(t)
	foreign, err := newRigOf(t, &Kind{Fabric: "other"}).pd.RegMR(make([]byte, 8), 0)
	check(t, err)
	t.Cleanup(func() { check(t, foreign.Close()) })
	srq, err := r.pd.CreateSRQ(1)
	check(t, err)
	made, err := r.pd.CreateQP(rdma.QPConfig{SendCQ: r.cq, RecvCQ: r.cq, SRQ: srq, Cap: rdma.QPCap{MaxSendWR: 1, MaxInline: 8}})
	check(t, err)
	q := made.(*qp)
	post := func(what string, want error, wrs ...rdma.SendWR) {
		t.Helper()
		if n, err := q.PostSend(wrs); n != 0 || !errors.Is(err, want) {
			t.Errorf("%s: %d, %v; want %v", what, n, err, want)
		}
	}
	nonsense := rdma.SendWR{Op: rdma.OpRecv}
	post("in INIT, nothing", rdma.ErrNotConnected)
	post("in INIT, nonsense", rdma.ErrNotConnected, nonsense)
	q.Mu.Lock()
	check(t, q.EstablishLocked(rdma.ConnInfo{}, 0, 0, rdma.QPRTR))
	q.Mu.Unlock()
	post("in RTR", rdma.ErrNotConnected, rdma.SendWR{Op: rdma.OpSend})
	q.Mu.Lock()
	check(t, q.ReadyLocked())
	q.Mu.Unlock()
	list := []rdma.SGE{{MR: foreign, Len: 8}}
	post("a READ where there are none", rdma.ErrInvalid, rdma.SendWR{Op: rdma.OpRDMARead})
	post("an atomic", rdma.ErrNotSupported, rdma.SendWR{Op: rdma.OpAtomicFetchAdd, SGL: list})
	post("a foreign region", rdma.ErrInvalid, rdma.SendWR{Op: rdma.OpSend, SGL: list})
	post("no region", rdma.ErrInvalid, rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: (*MR)(nil)}}})
	post("inline with a list", rdma.ErrInvalid, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendInline, SGL: []rdma.SGE{{MR: r.mr}}})
	post("inline, too long", rdma.ErrInvalid, rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendInline, Inline: make([]byte, 9)})
	if n, err := q.PostSend([]rdma.SendWR{{Op: rdma.OpSend}, nonsense}); n != 1 || !errors.Is(err, rdma.ErrQueueFull) {
		t.Errorf("one more than the queue takes: %d, %v", n, err)
	}
	if _, err := q.PostRecv(nil); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("PostRecv beside an SRQ: %v", err)
	}
	check(t, q.Close())
	post("closed", rdma.ErrNotConnected, rdma.SendWR{Op: rdma.OpSend})
	if _, err := q.PostRecv(nil); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("PostRecv beside an SRQ, closed: %v", err)
	}
	check(t, srq.Close())
	if _, err := srq.PostRecv([]rdma.RecvWR{{}}); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("a closed SRQ: %v", err)
	}
	r.completions(t)
}

// TestEvents: waiting on a CQ: an event for what comes after Arm only; one event one
// waiter; the context ends it.
func TestEvents(t *testing.T) {
	c := newRig(t).cq
	wait := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return c.Wait(ctx)
	}
	c.Push(rdma.WC{ID: 1})
	check(t, c.Arm())
	if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a completion from before Arm raised an event: %v", err)
	}
	c.Push(rdma.WC{ID: 2})
	check(t, c.Arm())
	c.Push(rdma.WC{ID: 3}, rdma.WC{ID: 4})
	c.Push(rdma.WC{ID: 5})
	check(t, c.Wait(t.Context()))
	check(t, c.Wait(t.Context()))
	if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third event: %v", err)
	}
	check(t, c.Close())
	if err := c.Wait(t.Context()); !errors.Is(err, rdma.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := c.Poll(make([]rdma.WC, 1)); !errors.Is(err, rdma.ErrClosed) {
		t.Fatal(err)
	}
}

// TestNoSpinner: each fabric says itself whether its CQ can spin, and for how long
// spinning is useful. A type that embeds CQ must not inherit an answer.
func TestNoSpinner(t *testing.T) {
	var c rdma.CQ = newRig(t).cq
	if _, ok := c.(rdma.Spinner); ok {
		t.Error("CQ is a Spinner")
	}
	if _, ok := c.(interface{ DefaultSpin() time.Duration }); ok {
		t.Error("CQ says how long to spin")
	}
}
