package perf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test on a busy machine.
const patience = time.Minute

// open opens the iwarp device; the test ends with all of its memory given back.
func open(t testing.TB) rdma.Device {
	t.Helper()
	dev, err := iwarp.New(iwarp.Options{}).Open(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
		if u := mem.Process().Of("perf"); u.Blocks != 0 {
			t.Errorf("%d blocks with %d bytes are left", u.Blocks, u.Bytes)
		}
	})
	return dev
}

// A host is a server under test and what it said of its tests.
type host struct {
	addr string
	each chan Test
	stop context.CancelFunc
	end  chan error
}

// serve starts a server; the test's end stops it.
func serve(t testing.TB, dev rdma.Device, limits Limits) *host {
	t.Helper()
	h := &host{each: make(chan Test, 64), end: make(chan error, 1)}
	s, err := Listen(context.Background(), dev, "127.0.0.1:0", limits, func(x Test) {
		select {
		case h.each <- x:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.addr = s.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.end <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-h.end; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return h
}

// next is what the server says of the next test.
func (h *host) next(t testing.TB) Test {
	t.Helper()
	select {
	case x := <-h.each:
		return x
	case <-time.After(patience):
		t.Fatal("the server says nothing")
		return Test{}
	}
}

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestEveryTest runs each test in each mode over real connections.
func TestEveryTest(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{})
	for _, name := range Tests() {
		op, kind, err := ParseTest(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []Params{
			{Size: 1, Iterations: 300},
			{Size: 64, Iterations: 500, Warmup: 50},
			{Size: 64, Iterations: 500, Events: true},
			{Size: 4096, Iterations: 300, Depth: 16, Batch: 16, SignalEvery: 16, Inline: -1},
			{Size: 64, Iterations: 1001, Warmup: 33, Depth: 16, Batch: 10, SignalEvery: 16},
			{Size: 64, Iterations: 5000, Depth: 700, Batch: 64, SignalEvery: 64, Inline: 64},
			{Size: 1<<20 + 13, Iterations: 20, Depth: 8},
			{Size: 200, Duration: 50 * time.Millisecond, Depth: 32, Batch: 7, SignalEvery: 20},
		} {
			p.Op, p.Kind = op, kind
			if testing.Short() {
				p.Iterations /= 10
			}
			if kind == Latency {
				p.Depth, p.Batch, p.SignalEvery = 0, 0, 0
			}
			if op == Write && kind == Latency {
				p.Events = false
			}
			t.Run(fmt.Sprintf("%s/%d/%v", name, p.Size, p.Events), func(t *testing.T) {
				var progress atomic.Uint64
				res, err := Run(ctxOf(t), dev, h.addr, p, Options{Progress: &progress})
				if err != nil {
					t.Fatal(err)
				}
				checkResult(t, p, res)
				x := h.next(t)
				if x.Err != nil || x.Name != name || x.Size != p.Size {
					t.Errorf("the server says %+v", x)
				}
				if all := res.Iterations + p.Warmup; op == Send && x.Messages != all || op == Write && kind == Latency && x.Messages != all {
					t.Errorf("the server saw %d messages of %d", x.Messages, all)
				}
			})
		}
	}
}

func checkResult(t *testing.T, p Params, r Result) {
	t.Helper()
	if p.Duration == 0 && r.Iterations != p.Iterations || p.Duration > 0 && (r.Iterations == 0 || r.Seconds < p.Duration.Seconds()) {
		t.Errorf("%d messages in %v s", r.Iterations, r.Seconds)
	}
	if r.Fabric != "iwarp" || r.Device != "iwarp0" || r.Path.Remote == "" || r.Meaning == "" || r.Mode == "" {
		t.Errorf("%+v", r)
	}
	switch l, f := r.Latency, r.Bandwidth; {
	case p.Kind == Latency && f == nil:
		if !(0 < l.Min && l.Min <= l.Typical && l.Typical <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.P999 && l.P999 <= l.Max*1.001 && l.Min <= l.Avg && l.Avg <= l.Max) {
			t.Errorf("%+v", l)
		}
		turn := r.Seconds * 1e6 / float64(r.Iterations)
		if p.Op != Read {
			turn /= 2
		}
		if l.Avg > turn*1.01 || l.Avg < turn/2 {
			t.Errorf("the average is %v us, the whole run %v us per message", l.Avg, turn)
		}
	case p.Kind == Bandwidth && l == nil:
		if rate := float64(r.Iterations) / r.Seconds; f.Rate < rate*0.99 || f.Rate > rate*1.01 {
			t.Errorf("rate %v, want %v", f.Rate, rate)
		}
		if mib := f.Rate * float64(p.Size) / (1 << 20); f.Average < mib*0.99 || f.Average > mib*1.01 || f.Peak < f.Average*0.99 {
			t.Errorf("%+v, want %v MiB/s", f, mib)
		}
	default:
		t.Errorf("%+v", r)
	}
}

// TestLimits: what a server does not take is refused, with the limit named.
func TestLimits(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{MaxSize: 4096, MaxDepth: 8, MaxTime: time.Minute})
	for _, c := range []struct {
		p    Params
		want string
	}{
		{Params{Op: Read, Kind: Latency, Size: 4097}, "4096"},
		{Params{Op: Send, Kind: Bandwidth, Depth: 9}, "takes 8"},
		{Params{Op: Write, Kind: Bandwidth, Depth: 8, Duration: 2 * time.Minute}, "1m0s"},
	} {
		_, err := Run(ctxOf(t), dev, h.addr, c.p, Options{})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want a refusal that says %q", c.p, err, c.want)
		}
		if x := h.next(t); x.Err == nil {
			t.Errorf("the server says %+v", x)
		}
	}
	if _, err := Run(ctxOf(t), dev, h.addr, Params{Op: Send, Kind: Latency, Iterations: 10}, Options{}); err != nil {
		t.Errorf("after the refusals: %v", err)
	}
}

// TestTooMany: one test more than allowed is refused before it has cost
// anything, and there is room again when one has ended.
func TestTooMany(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{MaxTests: 1})
	ctx, cancel := context.WithCancel(ctxOf(t))
	var progress atomic.Uint64
	first := make(chan error, 1)
	go func() {
		_, err := Run(ctx, dev, h.addr, Params{Op: Send, Kind: Bandwidth, Duration: time.Hour / 8}, Options{Progress: &progress})
		first <- err
	}()
	for progress.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err := Run(ctxOf(t), dev, h.addr, Params{Op: Read, Kind: Latency}, Options{})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "1 tests are running") {
		t.Errorf("a second test: %v", err)
	}
	h.next(t) // the refusal
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled test: %v", err)
	}
	if x := h.next(t); x.Err == nil {
		t.Errorf("the server says %+v of a client that went away", x)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		_, err := Run(ctxOf(t), dev, h.addr, Params{Op: Read, Kind: Latency, Iterations: 10}, Options{})
		if err == nil {
			break
		}
		if !errors.Is(err, ErrRefused) || time.Now().After(deadline) {
			t.Fatalf("after the first: %v", err)
		}
	}
}

// TestParams: parameters that make no sense are refused before any peer is
// asked.
func TestParams(t *testing.T) {
	dev := open(t)
	for _, p := range []Params{
		{}, {Op: Read}, {Op: Read, Kind: 7}, {Op: 9, Kind: Latency},
		{Op: Read, Kind: Latency, Size: -1}, {Op: Read, Kind: Latency, Size: MaxSize + 1},
		{Op: Read, Kind: Bandwidth, Depth: -1}, {Op: Read, Kind: Bandwidth, Depth: MaxDepth + 1},
		{Op: Read, Kind: Latency, Batch: 2}, {Op: Read, Kind: Bandwidth, Depth: 4, Batch: 5},
		{Op: Read, Kind: Bandwidth, Depth: 4, SignalEvery: 5},
		{Op: Write, Kind: Latency, Events: true},
		{Op: Read, Kind: Latency, Iterations: MaxIterations + 1},
		{Op: Read, Kind: Latency, Duration: -1},
	} {
		if _, err := Run(ctxOf(t), dev, "127.0.0.1:1", p, Options{}); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, name := range Tests() {
		o, k, err := ParseTest(name)
		if err != nil || (Params{Op: o, Kind: k}).Name() != name {
			t.Errorf("%s: %v %v %v", name, o, k, err)
		}
	}
	if _, _, err := ParseTest("read"); err == nil || !strings.Contains(err.Error(), "send_bw") {
		t.Errorf("an unknown test: %v", err)
	}
}

// lesser is a device that lacks WRITE.
type lesser struct{ rdma.Device }

func (l lesser) Attr() rdma.DeviceAttr {
	a := l.Device.Attr()
	a.Caps &^= rdma.CapWrite
	return a
}

// TestCapabilities: a device without WRITE says so, on either side.
func TestCapabilities(t *testing.T) {
	dev := open(t)
	if _, err := Run(ctxOf(t), lesser{dev}, "127.0.0.1:1", Params{Op: Write, Kind: Latency}, Options{}); !errors.Is(err, rdma.ErrNotSupported) {
		t.Errorf("no WRITE here: %v", err)
	}
	h := serve(t, lesser{dev}, Limits{})
	_, err := Run(ctxOf(t), dev, h.addr, Params{Op: Write, Kind: Bandwidth}, Options{})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "WRITE") {
		t.Errorf("no WRITE at the server: %v", err)
	}
}

// TestNobodyThere: a closed port is an error of the connection's.
func TestNobodyThere(t *testing.T) {
	dev := open(t)
	if _, err := Run(ctxOf(t), dev, "127.0.0.1:1", Params{Op: Read, Kind: Latency}, Options{}); !errors.Is(err, rdma.ErrPeerGone) && !errors.Is(err, rdma.ErrRejected) {
		t.Errorf("%v", err)
	}
}

// TestServerStops: a test ends, soon and with an error, when the server goes.
func TestServerStops(t *testing.T) {
	dev := open(t)
	for _, name := range Tests() {
		op, kind, _ := ParseTest(name)
		for _, events := range []bool{false, true} {
			if events && op == Write && kind == Latency {
				continue
			}
			h := serve(t, dev, Limits{})
			var progress atomic.Uint64
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctxOf(t), dev, h.addr, Params{Op: op, Kind: kind, Duration: 5 * time.Minute, Events: events}, Options{Progress: &progress})
				done <- err
			}()
			for progress.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			h.stop()
			select {
			case err := <-done:
				if err == nil {
					t.Errorf("%s, events %v: a test without a server ended well", name, events)
				}
			case <-time.After(patience):
				t.Fatalf("%s, events %v: the client hangs", name, events)
			}
		}
	}
}
