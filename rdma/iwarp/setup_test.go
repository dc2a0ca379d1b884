package iwarp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// Every combination of revision and mode that two of us can have.
func TestSetupCombinations(t *testing.T) {
	for _, c := range []struct {
		a, b   Options
		detail string
	}{
		{Options{}, Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
		{Options{RTR: RTRRead}, Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length read"},
		{Options{RTR: RTRSend}, Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length send"},
		{Options{NoPeerToPeer: true}, Options{}, "MPA rev 2, CRC32C, no markers"},
		{Options{Revision: 1}, Options{}, "MPA rev 1, CRC32C, no markers"},
		{Options{NoCRC: true}, Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
		{Options{}, Options{NoCRC: true}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
		{Options{NoCRC: true}, Options{NoCRC: true}, "MPA rev 2, no CRC, no markers, peer-to-peer with zero-length write"},
		{Options{NoCRCWithin: true}, Options{}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
		{Options{}, Options{NoCRCWithin: true}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
		{Options{NoCRCWithin: true}, Options{NoCRCWithin: true}, "MPA rev 2, no CRC, no markers, peer-to-peer with zero-length write"},
		{Options{MaxPayload: 64}, Options{MaxPayload: 1000}, "MPA rev 2, CRC32C, no markers, peer-to-peer with zero-length write"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			a, b := connected(t, pairConfig{a: c.a, b: c.b, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
			if a.qp.Info().Detail != c.detail || b.qp.Info().Detail != c.detail {
				t.Errorf("details %q and %q, want %q", a.qp.Info().Detail, b.qp.Info().Detail, c.detail)
			}
			exchange(t, a, b)
		})
	}
}

// TestCRCBetweenMachines: what says that it needs no CRC within the machine wants one of a peer
// elsewhere, at either end.
func TestCRCBetweenMachines(t *testing.T) {
	o := Options{NoCRCWithin: true}.withDefaults()
	for _, within := range []bool{true, false} {
		req := o.request(within, 1, 1, nil)
		if req.CRC == within {
			t.Errorf("within %v: the request has CRC %v", within, req.CRC)
		}
		for _, asked := range []bool{true, false} {
			req.CRC = asked
			if rep, terms := o.answer(&req, within, 1, 1, nil); terms.crc != (asked || !within) || rep.CRC != terms.crc {
				t.Errorf("within %v, asked for %v: the answer has CRC %v, and means %v", within, asked, rep.CRC, terms.crc)
			}
		}
	}
}

// exchange moves 10,000 bytes each way by SEND, the initiator first, and once
// by READ.
func exchange(t *testing.T, a, b *end) {
	t.Helper()
	const n = 10000
	am, bm := a.mr(2*n, rdma.AccessLocalWrite), b.mr(2*n, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	fill(am.Bytes()[:n], 1)
	a.recv(rdma.RecvWR{ID: 1, SGL: []rdma.SGE{{MR: am, Off: n, Len: n}}})
	b.recv(rdma.RecvWR{ID: 1, SGL: []rdma.SGE{{MR: bm, Len: n}}})
	a.send(rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: am, Len: n}}})
	b.waitOK(1)
	b.send(rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: bm, Len: n}}})
	a.waitOK(1)
	if !bytes.Equal(am.Bytes()[:n], am.Bytes()[n:]) {
		t.Fatal("SENDs changed the bytes")
	}
	clear(am.Bytes()[n:])
	a.send(rdma.SendWR{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: am, Off: n, Len: n}}, Remote: rdma.RemoteAddr{RKey: bm.RKey()}})
	a.waitOK(1)
	if !bytes.Equal(am.Bytes()[:n], am.Bytes()[n:]) {
		t.Fatal("a READ changed the bytes")
	}
}

func TestDepthNegotiation(t *testing.T) {
	for _, c := range []struct {
		a, b         Options
		aparm, bparm rdma.ConnParams
		aird, aord   int
		bird, bord   int
	}{
		{aird: 128, aord: 128, bird: 128, bord: 128},
		{aparm: rdma.ConnParams{IRD: 3, ORD: 20}, bparm: rdma.ConnParams{IRD: 7, ORD: 9}, aird: 3, aord: 7, bird: 7, bord: 3},
		{aparm: rdma.ConnParams{IRD: 9, ORD: 5}, bparm: rdma.ConnParams{IRD: 7, ORD: 2}, aird: 2, aord: 5, bird: 5, bord: 2},
		{a: Options{Revision: 1}, aparm: rdma.ConnParams{IRD: 9, ORD: 5}, bparm: rdma.ConnParams{IRD: 7, ORD: 2}, aird: 9, aord: 5, bird: 7, bord: 2},
	} {
		a, b := connected(t, pairConfig{a: c.a, b: c.b, aparm: c.aparm, bparm: c.bparm})
		ai, bi := a.qp.Info(), b.qp.Info()
		if ai.IRD != c.aird || ai.ORD != c.aord || bi.IRD != c.bird || bi.ORD != c.bord {
			t.Errorf("%+v: a %d/%d b %d/%d", c, ai.IRD, ai.ORD, bi.IRD, bi.ORD)
		}
	}
}

func TestPrivateData(t *testing.T) {
	for _, rev := range []int{1, 2} {
		for _, n := range []int{0, 1, 56, 508} {
			x, y := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n)
			a, b := connected(t, pairConfig{a: Options{Revision: rev}, aparm: rdma.ConnParams{PrivateData: x}, bparm: rdma.ConnParams{PrivateData: y}})
			if !bytes.Equal(a.qp.Info().PrivateData, y) || !bytes.Equal(b.qp.Info().PrivateData, x) {
				t.Errorf("rev %d, %d bytes: private data changed", rev, n)
			}
		}
	}
	a := newEnd(t, New(Options{}), rdma.QPConfig{})
	defer a.close()
	if _, err := a.qp.Connect(t.Context(), "127.0.0.1:1", rdma.ConnParams{PrivateData: make([]byte, 509)}); !errors.Is(err, rdma.ErrInvalid) {
		t.Error(err)
	}
}

func TestReject(t *testing.T) {
	for _, rev := range []int{1, 2} {
		a, b := newEnd(t, New(Options{Revision: rev}), rdma.QPConfig{}), newEnd(t, New(Options{}), rdma.QPConfig{})
		l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
		check(t, err)
		go func() {
			r, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			_ = r.Reject([]byte("not you"))
			if err := r.Reject(nil); err == nil {
				t.Error("rejected twice")
			}
		}()
		info, err := a.qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
		if !errors.Is(err, rdma.ErrRejected) || string(info.PrivateData) != "not you" {
			t.Fatalf("%v, %q", err, info.PrivateData)
		}
		if a.qp.State() != rdma.QPError {
			t.Error(a.qp.State())
		}
		check(t, l.Close())
		a.close()
		b.close()
	}
}

// Replies that an initiator refuses, and the Terminate that the peer gets.
func TestBadReply(t *testing.T) {
	base := func(req proto.Frame) proto.Frame {
		o := Options{}.withDefaults()
		rep, _ := o.answer(&req, true, 16, 16, nil)
		return rep
	}
	for _, c := range []struct {
		name string
		rep  func(req proto.Frame) []byte
		code proto.Code
	}{
		{"markers", func(r proto.Frame) []byte { f := base(r); f.Markers = true; return f.Append(nil) }, proto.CodeMPAFrame},
		{"revision 1", func(r proto.Frame) []byte { f := base(r); f.Revision, f.Enhanced = 1, false; return f.Append(nil) }, proto.CodeMPAFrame},
		{"not enhanced", func(r proto.Frame) []byte { f := base(r); f.Enhanced = false; return f.Append(nil) }, proto.CodeMPAFrame},
		{"more ORD than offered", func(r proto.Frame) []byte { f := base(r); f.ORD = r.IRD + 1; return f.Append(nil) }, proto.CodeIRD},
		{"no RTR", func(r proto.Frame) []byte { f := base(r); f.RTR = 0; return f.Append(nil) }, proto.CodeRTR},
		{"RTR not offered", func(r proto.Frame) []byte { f := base(r); f.RTR = RTRSend; return f.Append(nil) }, proto.CodeRTR},
		{"not peer-to-peer", func(r proto.Frame) []byte { f := base(r); f.PeerToPeer = false; return f.Append(nil) }, proto.CodeRTR},
		{"request key", func(r proto.Frame) []byte { f := base(r); f.Reply = false; return f.Append(nil) }, 0},
		{"private data too long", func(r proto.Frame) []byte { f := base(r); b := f.Append(nil); b[proto.FrameHeaderLen-2] = 3; return b }, 0},
		{"enhanced without control", func(r proto.Frame) []byte {
			f := base(r)
			b := f.Append(nil)
			b[proto.FrameHeaderLen-1] = 3
			return b
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newEnd(t, New(Options{}), rdma.QPConfig{})
			defer a.close()
			p, err := acceptRaw(t, a, rdma.ConnParams{}, c.rep)
			if !errors.Is(err, rdma.ErrProtocol) {
				t.Fatal(err)
			}
			if c.code != 0 {
				if got := p.terminated(); got.Code != c.code {
					t.Fatalf("%v, want %v", got.Code, c.code)
				}
			}
		})
	}
}

// Requests that a listener refuses before the program sees them.
func TestBadRequest(t *testing.T) {
	b := newEnd(t, New(Options{}), rdma.QPConfig{})
	defer b.close()
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	for _, c := range []struct {
		name, reason string // no reason: the socket is closed without a word
		bytes        func() []byte
	}{
		{"markers", "markers", func() []byte { f := plainRequest(); f.Markers = true; return f.Append(nil) }},
		{"revision 3", "revision 3", func() []byte { f := plainRequest(); f.Revision = 3; return f.Append(nil) }},
		{"revision 0", "revision 0", func() []byte { f := plainRequest(); f.Revision = 0; return f.Append(nil) }},
		{"revision 2 plain", "without enhanced", func() []byte { f := plainRequest(); f.Enhanced = false; return f.Append(nil) }},
		{"wrong key", "", func() []byte { f := plainRequest(); f.Reply = true; return f.Append(nil) }},
		{"HTTP", "", func() []byte { return []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") }},
		{"too much private data", "", func() []byte {
			f := plainRequest()
			b := f.Append(nil)
			b[proto.FrameHeaderLen-2] = 2
			b[proto.FrameHeaderLen-1] = 1
			return b
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", l.Addr().String())
			check(t, err)
			defer conn.Close()
			check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			_, err = conn.Write(c.bytes())
			check(t, err)
			got, _ := io.ReadAll(conn) // a reset is as good as an end
			if c.reason == "" {
				if len(got) != 0 {
					t.Fatalf("answered %q", got)
				}
				return
			}
			rep, err := proto.ParseFrame(got, true)
			check(t, err)
			if !rep.Reject || !strings.Contains(string(rep.Private), c.reason) {
				t.Fatalf("%+v %q", rep, rep.Private)
			}
		})
	}
}

// A peer that says nothing is dropped when its time is over; so is a request
// that the program does not answer.
func TestSetupTimeouts(t *testing.T) {
	b := newEnd(t, New(Options{SetupTimeout: 50 * time.Millisecond}), rdma.QPConfig{})
	defer b.close()
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	defer func() { check(t, l.Close()) }()
	request := plainRequest()
	whole := request.Append(nil)
	for _, sent := range [][]byte{nil, whole[:16], whole} {
		conn, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = conn.Write(sent)
		check(t, err)
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Fatalf("after %d bytes: %v", len(sent), err)
		}
		conn.Close()
	}
	// An initiator whose peer is silent; one whose peer never begins.
	a := newEnd(t, New(Options{SetupTimeout: 50 * time.Millisecond}), rdma.QPConfig{})
	defer a.close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	if _, err := a.qp.Connect(t.Context(), silent.Addr().String(), rdma.ConnParams{}); !errors.Is(err, rdma.ErrDeadline) {
		t.Fatal(err)
	}
	// Its request is dropped, too, if this goroutine takes or answers it too late: then another one
	// is made.
	for end, dropped := time.Now().Add(time.Minute), true; dropped; {
		conn, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		_, err = conn.Write(whole)
		check(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		r, err := l.Accept(ctx)
		for err == nil && r.RemoteAddr().String() != conn.LocalAddr().String() {
			r, err = l.Accept(ctx)
		}
		cancel()
		if dropped = errors.Is(err, context.DeadlineExceeded); dropped {
			check(t, conn.Close())
		} else {
			check(t, err)
			qp, err := b.pd.CreateQP(rdma.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
			check(t, err)
			_, err = r.Accept(t.Context(), qp, rdma.ConnParams{})
			if dropped = errors.Is(err, rdma.ErrNotConnected); !dropped && !errors.Is(err, rdma.ErrDeadline) {
				t.Fatalf("no RTR frame: %v", err)
			}
			check(t, conn.Close())
			check(t, qp.Close())
		}
		if dropped && time.Now().After(end) {
			t.Fatal("no request is accepted in time")
		}
	}
}

// A peer that has what it wants at once and goes was connected: Accept says so, however
// late its goroutine runs.
func TestAcceptOfABriefPeer(t *testing.T) {
	f := New(Options{})
	for range 200 {
		b := newEnd(t, f, rdma.QPConfig{})
		l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
		check(t, err)
		conn, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		req := plainRequest()
		_, err = conn.Write(req.Append(nil))
		check(t, err)
		r, err := l.Accept(t.Context())
		check(t, err)
		res := make(chan error, 1)
		go func() {
			_, err := r.Accept(t.Context(), b.qp, rdma.ConnParams{})
			res <- err
		}()
		_, err = readMPA(conn, true)
		check(t, err)
		_, err = conn.Write(rtrWrite(true))
		check(t, err)
		check(t, conn.Close())
		if err := <-res; err != nil {
			t.Fatalf("a peer that was ready and went: %v", err)
		}
		b.dead(rdma.ErrPeerGone)
		b.close()
		check(t, l.Close())
	}
}

func TestConnectErrors(t *testing.T) {
	f := New(Options{})
	fresh := func() *end { return newEnd(t, f, rdma.QPConfig{}) }
	a := fresh()
	defer a.close()
	if _, err := a.qp.Connect(t.Context(), "127.0.0.1:1", rdma.ConnParams{}); !errors.Is(err, rdma.ErrPeerGone) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := a.qp.Connect(t.Context(), "127.0.0.1:1", rdma.ConnParams{}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("connected twice: %v", err)
	}
	b := fresh()
	defer b.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.qp.Connect(ctx, "127.0.0.1:1", rdma.ConnParams{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	c := fresh()
	defer c.close()
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.qp.Connect(ctx, silent.Addr().String(), rdma.ConnParams{}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, rdma.ErrDeadline) {
		t.Errorf("deadline: %v", err)
	}
	d := fresh()
	done := make(chan error, 1)
	go func() {
		_, err := d.qp.Connect(t.Context(), silent.Addr().String(), rdma.ConnParams{})
		done <- err
	}()
	d.close()
	if err := <-done; !errors.Is(err, rdma.ErrClosed) && !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("connected on a closed QP: %v", err)
	}
}

// A flood of silent connections does not keep honest ones out.
func TestPendingBound(t *testing.T) {
	f := New(Options{MaxPending: 8})
	b := newEnd(t, f, rdma.QPConfig{})
	l, err := b.dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	var flood []net.Conn
	for range 100 {
		c, err := net.Dial("tcp", l.Addr().String())
		check(t, err)
		flood = append(flood, c)
	}
	a := newEnd(t, New(Options{}), rdma.QPConfig{})
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err == nil {
			_, err = r.Accept(t.Context(), b.qp, rdma.ConnParams{})
		}
		done <- err
	}()
	_, err = a.qp.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
	check(t, err)
	check(t, <-done)
	f.pending.mu.Lock()
	n := len(f.pending.set)
	f.pending.mu.Unlock()
	if n > 8 {
		t.Errorf("%d set-ups pending, the limit is 8", n)
	}
	for _, c := range flood {
		c.Close()
	}
	check(t, l.Close())
	a.close()
	b.close()
}

// A thousand connections, each used.
func TestThousandConnections(t *testing.T) {
	const n = 1000
	f := New(Options{})
	dev, err := f.Open(t.Context(), "")
	check(t, err)
	pd, err := dev.AllocPD()
	check(t, err)
	cq, err := dev.CreateCQ(4 * n)
	check(t, err)
	l, err := dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	src, err := pd.RegMR(make([]byte, 4096), rdma.AccessRemoteRead)
	check(t, err)
	dst, err := pd.RegMR(make([]byte, 8*n), rdma.AccessLocalWrite)
	check(t, err)
	fill(src.Bytes(), 3)
	cfg := rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead}
	var qps [2 * n]rdma.QP
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			q, err := pd.CreateQP(cfg)
			if err == nil {
				qps[i] = q
				_, err = q.Connect(t.Context(), l.Addr().String(), rdma.ConnParams{})
			}
			if err != nil {
				t.Error(err)
			}
		})
		r, err := l.Accept(t.Context())
		check(t, err)
		wg.Go(func() {
			q, err := pd.CreateQP(cfg)
			if err == nil {
				qps[n+i] = q
				_, err = r.Accept(t.Context(), q, rdma.ConnParams{})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i := range n {
		_, err := qps[i].PostSend([]rdma.SendWR{{ID: uint64(i), Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
			SGL: []rdma.SGE{{MR: dst, Off: uint64(8 * i), Len: 8}}, Remote: rdma.RemoteAddr{RKey: src.RKey(), Addr: uint64(i % 500 * 8)}}})
		check(t, err)
	}
	e := &end{t: t, cq: cq, qp: qps[0]}
	e.waitOK(n)
	for i := range n {
		if !bytes.Equal(dst.Bytes()[8*i:8*i+8], src.Bytes()[i%500*8:i%500*8+8]) {
			t.Fatalf("connection %d read something else", i)
		}
	}
	for _, q := range qps {
		wg.Go(func() { check(t, q.Close()) })
	}
	wg.Wait()
	for _, c := range []io.Closer{l, src, dst, cq, pd, dev} {
		check(t, c.Close())
	}
}
