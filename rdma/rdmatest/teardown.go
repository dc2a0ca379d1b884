package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

func teardownChecks() []check {
	return []check{
		{"every order", checkEveryOrder},
		{"every order, connected", checkEveryOrderConnected},
		{"use after close", checkUseAfterClose},
		{"region closed under reads", checkRegionClosedUnderReads},
		{"sink closed under reads", checkSinkClosedUnderReads},
		{"sink freed after close", checkSinkFreedAfterClose},
		{"close from many goroutines", checkConcurrentClose},
		{"listener", checkListenerTeardown},
	}
}

// An object of the teardown tests, and the objects that must be closed before
// it.
type object struct {
	name  string
	users []string
	close func() error
}

// objects makes one of each on a fresh device, a user of the next ones.
func objects(t *testing.T, cfg *Config) (list []object, qp rdma.QP) {
	t.Helper()
	fail := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	dev, err := cfg.New(t).Open(context.Background(), cfg.Device)
	fail("Open", err)
	pd, err := dev.AllocPD()
	fail("AllocPD", err)
	cq, err := dev.CreateCQ(16)
	fail("CreateCQ", err)
	block, err := mem.Alloc(64, mem.Options{Kind: cfg.Memory, Shared: cfg.Shared, Tag: "rdmatest"})
	fail("Alloc", err)
	t.Cleanup(func() { _ = block.Free() })
	mr, err := pd.RegMR(block.Bytes(), rdma.AccessLocalWrite)
	fail("RegMR", err)
	conf := rdma.QPConfig{SendCQ: cq, RecvCQ: cq}
	if dev.Attr().Caps.Has(rdma.CapSRQ) {
		conf.SRQ, err = pd.CreateSRQ(16)
		fail("CreateSRQ", err)
		list = append(list, object{"SRQ", []string{"QP"}, conf.SRQ.Close})
	}
	qp, err = pd.CreateQP(conf)
	fail("CreateQP", err)
	return append(list,
		object{"QP", nil, qp.Close},
		object{"MR", nil, mr.Close},
		object{"CQ", []string{"QP"}, cq.Close},
		object{"PD", []string{"QP", "MR", "SRQ"}, pd.Close},
		object{"device", []string{"PD", "CQ"}, dev.Close},
	), qp
}

// tearDown closes list in this order, again and again until nothing is open,
// and compares each answer with the rule: ErrBusy exactly while a user is open.
func tearDown(t *testing.T, list []object) {
	t.Helper()
	open := map[string]bool{}
	var names []string
	for _, o := range list {
		open[o.name] = true
		names = append(names, o.name)
	}
	for range list {
		for _, o := range list {
			busy := slices.ContainsFunc(o.users, func(u string) bool { return open[u] })
			err := o.close()
			switch {
			case busy && !errors.Is(err, rdma.ErrBusy):
				t.Fatalf("order %v: closing the %s with users: %v, want ErrBusy", names, o.name, err)
			case !busy && err != nil:
				t.Fatalf("order %v: closing the %s: %v", names, o.name, err)
			case !busy:
				open[o.name] = false
			}
		}
	}
	for name, still := range open {
		if still {
			t.Fatalf("order %v: the %s is still open", names, name)
		}
	}
}

// shortOrders: with -short one order in so many is tried. Every object comes before and behind
// every other one all the same, which checkEveryOrder counts.
const shortOrders = 7

func checkEveryOrder(t *testing.T, cfg *Config) {
	first, _ := objects(t, cfg)
	n, pairs := 0, map[[2]int]bool{} // of objects, the one closed first before the other
	permutations(len(first), func(order []int) {
		if n++; testing.Short() && n%shortOrders != 0 {
			return
		}
		list, _ := objects(t, cfg)
		var arranged []object
		for at, i := range order {
			arranged = append(arranged, list[i])
			for _, later := range order[at+1:] {
				pairs[[2]int{i, later}] = true
			}
		}
		tearDown(t, arranged)
	})
	if want := len(first) * (len(first) - 1); len(pairs) != want {
		t.Errorf("%d pairs of objects were closed one before the other, want %d", len(pairs), want)
	}
	tearDown(t, first)
}

// checkEveryOrderConnected: the same while the QP is connected and has work
// outstanding, in every order of the QP among the others.
func checkEveryOrderConnected(t *testing.T, cfg *Config) {
	b := newEnd(t, cfg, "b")
	l := b.listen()
	for shift := range 6 {
		list, qa := objects(t, cfg)
		qb := b.qp(rdma.QPConfig{})
		p := &pair{b: b, qa: qa, qb: qb}
		if _, err := p.join(l, rdma.ConnParams{}, rdma.ConnParams{}); err != nil {
			t.Fatalf("connecting: %v", err)
		}
		b.recv(qb)
		slices.Reverse(list)
		list = append(list[shift%len(list):], list[:shift%len(list)]...)
		tearDown(t, list)
		b.expectDone(qb, rdma.ErrPeerGone)
		b.check("QP.Close", qb.Close())
	}
}

// permutations calls f with every order of n things.
func permutations(n int, f func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var rest func(k int)
	rest = func(k int) {
		if k == n {
			f(order)
			return
		}
		for i := k; i < n; i++ {
			order[k], order[i] = order[i], order[k]
			rest(k + 1)
			order[k], order[i] = order[i], order[k]
		}
	}
	rest(0)
}

func checkUseAfterClose(t *testing.T, cfg *Config) {
	ctx := context.Background()
	fab := cfg.New(t)
	dev, err := fab.Open(ctx, cfg.Device)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	cq2, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	block, err := mem.Alloc(64, mem.Options{Kind: cfg.Memory, Shared: cfg.Shared, Tag: "rdmatest"})
	if err != nil {
		t.Fatal(err)
	}
	defer block.Free()
	expect := func(what string, err error, want ...error) {
		t.Helper()
		if !isAny(err, want...) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	expect("Close of a CQ", cq2.Close(), nil)
	_, err = cq2.Poll(make([]rdma.WC, 1))
	expect("Poll of a closed CQ", err, rdma.ErrClosed)
	expect("Arm of a closed CQ", cq2.Arm(), rdma.ErrClosed)
	expect("Wait on a closed CQ", cq2.Wait(ctx), rdma.ErrClosed)
	_, err = pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq2})
	expect("CreateQP with a closed CQ", err, rdma.ErrClosed, rdma.ErrInvalid)
	expect("Close of the good CQ, which that left alone", cq.Close(), nil)
	expect("Close of the PD", pd.Close(), nil)
	_, err = pd.RegMR(block.Bytes(), rdma.AccessLocalWrite)
	expect("RegMR on a closed PD", err, rdma.ErrClosed)
	expect("Close of the device", dev.Close(), nil)
	_, err = dev.CreateCQ(16)
	expect("CreateCQ on a closed device", err, rdma.ErrClosed)
	_, err = dev.Listen(ctx, cfg.Listen)
	expect("Listen on a closed device", err, rdma.ErrClosed)
}

// checkConcurrentClose: everything that ends a connection, all at once.
func checkConcurrentClose(t *testing.T, cfg *Config) {
	for range 20 {
		p := newPair(t, cfg, pairOptions{})
		src, sink := p.b.region(4096, rdma.AccessRemoteRead), p.a.region(4096, rw(p.a))
		var wrs []rdma.SendWR
		for range 32 {
			wrs = append(wrs, read(sink, 0, src.remote(0), 4096))
		}
		p.a.recv(p.qa, sink.sge(0, 64))
		p.a.post(p.qa, wrs...)
		var wg sync.WaitGroup
		for _, f := range []func() error{p.qa.Close, p.qb.Close, p.qa.Disconnect, p.qb.Disconnect, p.qa.Close, src.mr.Close, p.qb.Close} {
			wg.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, qp := range []rdma.QP{p.qa, p.qb} {
			if qp.Err() == nil {
				t.Error("a closed QP has no Err")
			}
		}
	}
}

// checkListenerTeardown: a device with a listener is busy; closing the listener
// frees the port and refuses requests that the program has not taken.
func checkListenerTeardown(t *testing.T, cfg *Config) {
	e, a := newEnd(t, cfg, "b"), newEnd(t, cfg, "a")
	l := e.listen()
	if err := e.dev.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("closing a device with a listener: %v", err)
	}
	if _, err := e.dev.Listen(context.Background(), l.Addr().String()); err == nil {
		t.Error("two listeners on one address")
	} else if op := (*rdma.OpError)(nil); !errors.As(err, &op) || op.Addr == "" {
		t.Errorf("address in use: %v is no OpError with the address", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dialed := make(chan error, 1)
	qa := a.qp(rdma.QPConfig{})
	go func() {
		_, err := qa.Connect(ctx, l.Addr().String(), rdma.ConnParams{})
		dialed <- err
	}()
	accepting, taken := make(chan error, 1), make(chan rdma.ConnRequest, 1)
	go func() {
		req, err := l.Accept(ctx)
		taken <- req
		if err == nil {
			_, err = l.Accept(ctx)
		}
		accepting <- err
	}()
	req := <-taken // one request taken and unanswered, one Accept waiting
	if req == nil {
		t.Fatalf("Accept: %v", <-accepting)
	}
	e.check("Listener.Close", l.Close())
	e.check("Listener.Close again", l.Close())
	if err := <-accepting; !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept on a closed listener: %v", err)
	}
	// The program still owns the request although the listener is gone: it can
	// be refused.
	e.check("Reject", req.Reject(nil))
	if err := <-dialed; !isAny(err, rdma.ErrRejected, rdma.ErrPeerGone) {
		t.Errorf("the refused dial: %v", err)
	}
	again, err := e.dev.Listen(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatalf("the port of a closed listener is not free: %v", err)
	}
	e.check("Listener.Close", again.Close())
	for _, addr := range []string{"nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "256.256.256.256:0"} {
		if l, err := e.dev.Listen(context.Background(), addr); err == nil {
			_ = l.Close()
			t.Errorf("Listen(%q) succeeded on %v", addr, l.Addr())
		} else if op := (*rdma.OpError)(nil); !errors.As(err, &op) {
			t.Errorf("Listen(%q): %v is a %s, want an OpError", addr, err, fmt.Sprintf("%T", err))
		}
	}
}
