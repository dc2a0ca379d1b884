package perf

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A stranger is a client that breaks the protocol.
type stranger struct {
	*end
	t    *testing.T
	ctx  context.Context
	into *region
}

func newStranger(t *testing.T, dev rdma.Device) *stranger {
	t.Helper()
	e, err := newEnd(dev, 700, 16, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	x := &stranger{end: e, t: t, ctx: ctxOf(t)}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	if x.into, err = e.region(64<<10, rdma.AccessLocalWrite); err != nil {
		t.Fatal(err)
	}
	if err := e.postReceives(16, controlSize); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *stranger) connect(addr string, private []byte) error {
	_, err := x.qp.Connect(x.ctx, addr, rdma.ConnParams{PrivateData: private})
	return err
}

// say sends bytes as they are.
func (x *stranger) say(msg []byte) {
	x.t.Helper()
	if err := x.send(x.ctx, func(dst []byte) []byte { return append(dst, msg...) }); err != nil {
		x.t.Fatal(err)
	}
}

// hear waits for one message.
func (x *stranger) hear() []byte {
	x.t.Helper()
	wc, err := x.next(x.ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	return bytes.Clone(x.received(wc))
}

// start connects and asks for a test.
func (x *stranger) start(addr string, h hello) ready {
	x.t.Helper()
	if err := x.connect(addr, header(nil, typeHello)); err != nil {
		x.t.Fatal(err)
	}
	x.say(h.append(nil))
	r, err := parseReady(x.hear())
	if err != nil || r.Status != statusOK {
		x.t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// try posts one request and returns how it ends.
func (x *stranger) try(op rdma.Opcode, addr uint64, rkey uint32, n int) error {
	x.t.Helper()
	wr := rdma.SendWR{ID: idData, Op: op, Flags: rdma.SendSignaled, Remote: rdma.RemoteAddr{Addr: addr, RKey: rkey},
		SGL: []rdma.SGE{{MR: x.into.mr, Len: uint32(n)}}}
	if err := x.post([]rdma.SendWR{wr}); err != nil {
		x.t.Fatal(err)
	}
	_, err := x.next(x.ctx)
	if err == nil && op == rdma.OpRDMAWrite {
		// A WRITE completes here before it is refused there.
		<-x.qp.Done()
		return x.qp.Err()
	}
	return err
}

// TestStrangers: a client that does not speak the protocol is refused with a
// reason, and the server goes on.
func TestStrangers(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{Setup: time.Second / 2, Idle: time.Second / 2})
	good := hello{Op: Send, Kind: Bandwidth, Size: 64, Depth: 4}

	t.Run("private data", func(t *testing.T) {
		for _, private := range [][]byte{nil, []byte("RKPF"), []byte("RKV1\x01\x01\x00\x00"), append(header(nil, typeHello)[:5], 9, 0, 0)} {
			if err := newStranger(t, dev).connect(h.addr, private); !errors.Is(err, rdma.ErrRejected) {
				t.Errorf("%q: %v", private, err)
			}
			h.next(t)
		}
	})
	t.Run("silence", func(t *testing.T) {
		x := newStranger(t, dev)
		if err := x.connect(h.addr, header(nil, typeHello)); err != nil {
			t.Fatal(err)
		}
		if got := h.next(t); !errors.Is(got.Err, rdma.ErrDeadline) {
			t.Errorf("%v", got.Err)
		}
		<-x.qp.Done()
	})
	t.Run("no hello", func(t *testing.T) {
		for _, msg := range [][]byte{nil, []byte("hello"), header(nil, typeHello), appendCount(nil, typeDone, 1), bytes.Repeat([]byte{0xff}, helloSize),
			hello{Op: 99, Kind: Latency, Size: 1, Depth: 1}.append(nil), hello{Op: Read, Kind: Bandwidth, Size: 1, Depth: MaxDepth + 1}.append(nil)} {
			x := newStranger(t, dev)
			if err := x.connect(h.addr, header(nil, typeHello)); err != nil {
				t.Fatal(err)
			}
			x.say(msg)
			r, err := parseReady(x.hear())
			if err != nil || r.Status != statusRefused || !strings.HasPrefix(r.Reason, "perf: ") {
				t.Errorf("%q: %+v, %v", msg, r, err)
			}
			_ = x.qp.Disconnect()
			if got := h.next(t); got.Err == nil {
				t.Errorf("%q: the server is content", msg)
			}
		}
	})
	t.Run("stalled", func(t *testing.T) {
		x := newStranger(t, dev)
		x.start(h.addr, good)
		if got := h.next(t); !errors.Is(got.Err, errStalled) {
			t.Errorf("%v", got.Err)
		}
	})
	t.Run("wrong length", func(t *testing.T) {
		x := newStranger(t, dev)
		x.start(h.addr, good)
		x.say(make([]byte, 65))
		if got := h.next(t); !errors.Is(got.Err, errRange) {
			t.Errorf("%v", got.Err)
		}
	})
	t.Run("wrong message", func(t *testing.T) {
		x := newStranger(t, dev)
		x.start(h.addr, good)
		x.say(result{}.append(nil))
		if got := h.next(t); got.Err == nil {
			t.Error("the server is content")
		}
	})
	if _, err := Run(ctxOf(t), dev, h.addr, Params{Op: Send, Kind: Bandwidth}, Options{}); err != nil {
		t.Errorf("after all this: %v", err)
	}
}

// TestRights: a client reaches the scratch buffer, in the way its test needs,
// while the test lasts, and nothing else.
func TestRights(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{})
	read := hello{Op: Read, Kind: Bandwidth, Size: 64, Depth: 4}
	write := hello{Op: Write, Kind: Bandwidth, Size: 64, Depth: 4}
	done := appendCount(nil, typeDone, 0)
	for _, c := range []struct {
		name string
		test hello
		do   func(x *stranger, r ready) error
	}{
		{"a WRITE in a READ test", read, func(x *stranger, r ready) error { return x.try(rdma.OpRDMAWrite, r.Addr, r.RKey, 8) }},
		{"a READ in a WRITE test", write, func(x *stranger, r ready) error { return x.try(rdma.OpRDMARead, r.Addr, r.RKey, 8) }},
		{"beyond the buffer", read, func(x *stranger, r ready) error {
			return x.try(rdma.OpRDMARead, r.Addr+uint64(r.Length)-4, r.RKey, 8)
		}},
		{"another key", read, func(x *stranger, r ready) error { return x.try(rdma.OpRDMARead, r.Addr, r.RKey+1, 8) }},
		{"a READ after the test", read, func(x *stranger, r ready) error {
			x.say(done)
			x.hear()
			return x.try(rdma.OpRDMARead, r.Addr, r.RKey, 8)
		}},
		{"a WRITE after the test", write, func(x *stranger, r ready) error {
			x.say(done)
			x.hear()
			return x.try(rdma.OpRDMAWrite, r.Addr, r.RKey, 8)
		}},
		{"the buffer of another test", read, func(x *stranger, r ready) error {
			y := newStranger(x.t, x.dev)
			y.start(h.addr, read)
			return y.try(rdma.OpRDMARead, r.Addr, r.RKey, 8)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newStranger(t, dev)
			r := x.start(h.addr, c.test)
			if uint64(r.Length) != uint64(4*stride(64)) {
				t.Errorf("the buffer has %d bytes", r.Length)
			}
			if err := c.do(x, r); !errors.Is(err, rdma.ErrAccess) {
				t.Errorf("%v, want it refused", err)
			}
		})
	}
}

// TestFloodIsCut: a client that sends more than it was given receives for loses
// its connection (iWARP) or waits (where the transport retries); either way the
// server keeps nothing of it.
func TestFloodIsCut(t *testing.T) {
	dev := open(t)
	h := serve(t, dev, Limits{})
	x := newStranger(t, dev)
	r := x.start(h.addr, hello{Op: Read, Kind: Latency, Size: 64, Depth: 1})
	for range 4 * r.Receives {
		wr := rdma.SendWR{ID: idData, Op: rdma.OpSend, SGL: []rdma.SGE{{MR: x.into.mr, Len: 64}}}
		if err := x.post([]rdma.SendWR{wr}); err != nil {
			break
		}
	}
	if got := h.next(t); got.Err == nil {
		t.Error("the server is content")
	}
}

// answers plays a server whose Ready is chosen by the test.
func answers(t *testing.T, dev rdma.Device, say ...[]byte) (addr string) {
	t.Helper()
	l, err := dev.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx := ctxOf(t)
	x := newStranger(t, dev)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req, err := l.Accept(ctx)
		if err != nil {
			return
		}
		if _, err := req.Accept(ctx, x.qp, rdma.ConnParams{}); err != nil {
			return
		}
		for _, msg := range say {
			if _, err := x.next(ctx); err != nil {
				return
			}
			if x.send(ctx, func(dst []byte) []byte { return append(dst, msg...) }) != nil {
				return
			}
		}
		<-x.qp.Done()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-gone
	})
	return l.Addr().String()
}

// TestHostileServer: a client survives whatever a server answers.
func TestHostileServer(t *testing.T) {
	dev := open(t)
	ok := ready{Receives: 4}.append(nil)
	for _, c := range []struct {
		name string
		p    Params
		say  [][]byte
		want string
	}{
		{"nothing", Params{Op: Read, Kind: Latency}, [][]byte{nil}, "length"},
		{"noise", Params{Op: Read, Kind: Latency}, [][]byte{bytes.Repeat([]byte{0xee}, readySize)}, "not a message"},
		{"no buffer", Params{Op: Read, Kind: Latency}, [][]byte{ok}, "scratch buffer of 0 bytes"},
		{"an escape sequence", Params{Op: Read, Kind: Latency}, [][]byte{append(ready{Status: statusRefused}.append(nil), "\x1b[2J"...)}, "out of range"},
		{"another version", Params{Op: Read, Kind: Latency}, [][]byte{append([]byte("RKPF\x02\x09\x00\x00"), make([]byte, 24)...)}, "version"},
		{"too many credits", Params{Op: Send, Kind: Bandwidth, Iterations: 4, Depth: 4}, [][]byte{ok, appendCount(nil, typeCredit, 1<<60)}, "given back"},
		{"a wrong account", Params{Op: Send, Kind: Bandwidth, Iterations: 4, Depth: 4}, [][]byte{ok, result{3, 192}.append(nil)}, ""},
		{"a wrong key", Params{Op: Read, Kind: Latency}, [][]byte{ready{Receives: 4, RKey: 77, Addr: 1, Length: 4096}.append(nil)}, "REM_ACCESS_ERR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(ctxOf(t), dev, answers(t, dev, c.say...), c.p, Options{Stall: 2 * time.Second})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error that says %q", err, c.want)
			}
		})
	}
}

// FuzzMessages: no bytes break a parser, and what parses is what was encoded.
func FuzzMessages(f *testing.F) {
	f.Add(hello{Op: Read, Kind: Bandwidth, Size: 64, Depth: 128, RKey: 1, Addr: 2, Messages: 3, Time: 4, Events: true}.append(nil))
	f.Add(ready{Status: statusRefused, Receives: 1, RKey: 2, Length: 3, Addr: 4, Reason: "no"}.append(nil))
	f.Add(appendCount(nil, typeCredit, 5))
	f.Add(appendCount(nil, typeDone, 6))
	f.Add(result{7, 8}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			if !bytes.Equal(h.append(nil), b) {
				t.Errorf("Hello %+v encodes to %x, not %x", h, h.append(nil), b)
			}
			if h.Size > MaxSize || h.Depth > MaxDepth {
				t.Errorf("%+v", h)
			}
		}
		if r, err := parseReady(b); err == nil && !bytes.Equal(r.append(nil), b) {
			t.Errorf("Ready %+v encodes to %x, not %x", r, r.append(nil), b)
		}
		for _, typ := range []byte{typeCredit, typeDone} {
			if n, err := parseCount(b, typ); err == nil && !bytes.Equal(appendCount(nil, typ, n), b) {
				t.Errorf("count %d", n)
			}
		}
		if r, err := parseResult(b); err == nil && !bytes.Equal(r.append(nil), b) {
			t.Errorf("Result %+v", r)
		}
		if len(b) > 0 && b[0] == 0 && typeOf(b) != 0 {
			t.Error("payload passes for a control message")
		}
	})
}
