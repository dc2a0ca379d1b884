package iwarp

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// eventually waits for something that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// spinOne waits for one good completion by looking alone.
func (e *end) spinOne() rdma.WC {
	e.t.Helper()
	var wcs [1]rdma.WC
	for end := time.Now().Add(10 * time.Second); ; {
		n, err := e.cq.(rdma.Spinner).Spin(wcs[:], 50*time.Microsecond)
		check(e.t, err)
		if n == 1 {
			if wcs[0].Status != rdma.StatusSuccess {
				e.t.Fatalf("%+v: %v", wcs[0], e.qp.Err())
			}
			return wcs[0]
		}
		if time.Now().After(end) {
			e.t.Fatal("nothing came")
		}
	}
}

// readPair is a that may READ a region of b.
func readPair(t *testing.T, n int, o Options) (a, b *end, wr rdma.SendWR, sink []byte) {
	a, b = connected(t, pairConfig{b: o, bcfg: rdma.QPConfig{Access: rdma.AccessRemoteRead}})
	src, dst := b.mr(n, rdma.AccessRemoteRead), a.mr(n, rdma.AccessLocalWrite)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i * 7 >> 3)
	}
	return a, b, rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Len: uint32(n)}},
		Remote: rdma.RemoteAddr{RKey: src.RKey()}}, dst.Bytes()
}

// TestSpinReadsTheSocket: a waiter that looks gets its READ, small or large, and
// the responder that looks for the next one counts what came of it. On a busy
// machine both may have one processor between them: then the requester runs only
// once the responder has stopped looking, in vain each time. So the small ones
// are asked for until one look was worth it.
func TestSpinReadsTheSocket(t *testing.T) {
	for _, n := range []int{8, 104, 32 << 10, 1 << 20} {
		a, b, wr, sink := readPair(t, n, Options{Wait: wait.Poll})
		once := func() {
			clear(sink)
			a.send(wr)
			a.spinOne()
			if want := byte((n - 1) * 7 >> 3); sink[n-1] != want {
				t.Fatalf("%d bytes end with %d, want %d", n, sink[n-1], want)
			}
		}
		for range 50 {
			once()
		}
		if n > 104 {
			continue
		}
		eventually(t, fmt.Sprintf("the responder of %d bytes looks, and nothing comes of it", n), func() bool {
			once()
			s := b.dev.(*device).SpinStats()
			return s.Got > 0 && s.Time > 0
		})
	}
}

// TestNothingStaysUnread: after looking, a connection into which no goroutine
// looks any more announces what comes: to a waiter that arms, and without a
// waiter too.
func TestNothingStaysUnread(t *testing.T) {
	a, b, wr, _ := readPair(t, 64, Options{})
	buf := a.mr(64, rdma.AccessLocalWrite)
	say := rdma.SendWR{ID: 2, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: b.mr(8, 0), Len: 8}}}
	for range 20 {
		a.recv(rdma.RecvWR{ID: 3, SGL: []rdma.SGE{{MR: buf, Len: 64}}})
		a.send(wr)
		a.spinOne()
		b.send(say)
		if wc := a.waitOK(1)[0]; wc.ID != 3 {
			t.Fatalf("%+v", wc)
		}
		b.waitOK(1)

		a.recv(rdma.RecvWR{ID: 4, SGL: []rdma.SGE{{MR: buf, Len: 64}}})
		a.send(wr)
		a.spinOne()
		b.send(say)
		eventually(t, "a SEND lies in a muted socket", func() bool {
			var wcs [1]rdma.WC
			n, err := a.cq.Poll(wcs[:])
			check(t, err)
			return n == 1 && wcs[0].ID == 4
		})
		b.waitOK(1)
	}
	// And when nothing comes, no goroutine is kept busy with it.
	d := a.dev.(*device)
	for _, k := range []*keeper{&d.unmuter, &d.doubter} {
		eventually(t, "a keeper keeps on", func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.list) == 0
		})
	}
}

// TestEndWhileLooking: the end of a connection is found by the goroutine that
// looks, by the reader when none does, and by Close when both are there.
func TestEndWhileLooking(t *testing.T) {
	for _, looks := range []bool{true, false} {
		a, b, wr, _ := readPair(t, 64, Options{})
		a.send(wr)
		a.spinOne()
		check(t, b.qp.Disconnect())
		eventually(t, "the end is not seen", func() bool {
			if looks {
				var wcs [1]rdma.WC
				_, err := a.cq.(rdma.Spinner).Spin(wcs[:], 10*time.Microsecond)
				check(t, err)
			}
			return a.qp.State() == rdma.QPError
		})
		a.dead(rdma.ErrPeerGone)
	}
	a, _, wr, _ := readPair(t, 64, Options{})
	a.send(wr)
	a.spinOne()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var wcs [16]rdma.WC
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = a.cq.(rdma.Spinner).Spin(wcs[:], 20*time.Microsecond)
			}
		}
	}()
	check(t, a.qp.Close())
	close(stop)
	<-stopped
}

// TestManyConnectionsAreNotLookedAt: a CQ with many of them only polls.
func TestManyConnectionsAreNotLookedAt(t *testing.T) {
	a, _, wr, _ := readPair(t, 64, Options{})
	var more []rdma.QP
	for range lookQPs {
		q, err := a.pd.CreateQP(rdma.QPConfig{SendCQ: a.cq, RecvCQ: a.cq})
		check(t, err)
		more = append(more, q)
	}
	a.send(wr)
	a.spinOne()
	if a.qp.(*qp).look.muted.Load() {
		t.Error("one of many was looked at")
	}
	for _, q := range more {
		check(t, q.Close())
	}
	a.send(wr)
	a.spinOne()
}

// TestDirectResponse: long responses reach their sink however they are cut, and
// a wrong checksum behind them is found.
func TestDirectResponse(t *testing.T) {
	const n = 40 << 10
	want := bytes.Repeat([]byte("abcdefg"), n/7+1)[:n]
	for _, cut := range []int{1, 15, 16, 17, 100, directMin, n - 1, n + 16, n + 19} {
		for _, wrong := range []bool{false, true} {
			a := newEnd(t, New(Options{}), rdma.QPConfig{})
			p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
			check(t, err)
			p.must() // the RTR frame
			dst := a.mr(n+64, rdma.AccessLocalWrite)
			read := rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Off: 32, Len: n}}}
			a.send(read, read)
			for i := range 2 {
				_, body := p.must()
				r, ok := proto.ParseReadRequest(body)
				if !ok || r.Size != n {
					t.Fatalf("%+v", r)
				}
				b := p.frame(proto.AppendTagged(nil, proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), want)
				if wrong && i == 1 {
					b[len(b)-1] ^= 1
				}
				p.write(b[:cut])
				time.Sleep(2 * time.Millisecond)
				p.write(b[cut:])
			}
			if wcs := a.wait(1); wcs[0].Status != rdma.StatusSuccess {
				t.Fatalf("cut at %d: %+v, %v", cut, wcs[0], a.qp.Err())
			}
			wc := a.wait(1)[0]
			switch {
			case wrong && wc.Status == rdma.StatusSuccess:
				t.Fatalf("cut at %d: a wrong CRC was taken", cut)
			case wrong:
				if term := p.terminated(); term.Code != proto.CodeCRC {
					t.Fatalf("cut at %d: %v", cut, term.Code)
				}
			case wc.Status != rdma.StatusSuccess:
				t.Fatalf("cut at %d: %+v, %v", cut, wc, a.qp.Err())
			}
			got := dst.Bytes()
			if !bytes.Equal(got[32:32+n], want) || !bytes.Equal(got[:32], make([]byte, 32)) || !bytes.Equal(got[32+n:], make([]byte, 32)) {
				t.Fatalf("cut at %d: the bytes differ", cut)
			}
			_ = p.conn.Close() // else a lingers for it
			a.close()
		}
	}
}

// TestDirectSinkCloses: a peer that stops in the middle of a response does not
// keep the region of its sink, and what comes for it later ends the connection.
func TestDirectSinkCloses(t *testing.T) {
	const n = 32 << 10
	a := newEnd(t, New(Options{}), rdma.QPConfig{})
	p, err := acceptRaw(t, a, rdma.ConnParams{}, nil)
	check(t, err)
	p.must()
	dst, err := a.pd.RegMR(make([]byte, n), rdma.AccessLocalWrite)
	check(t, err)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: dst, Len: n}}})
	_, body := p.must()
	r, _ := proto.ParseReadRequest(body)
	b := p.frame(proto.AppendTagged(nil, proto.OpReadResponse, true, r.SinkSTag, r.SinkTO), bytes.Repeat([]byte{1}, n))
	p.write(b[:1000])
	eventually(t, "the begin of the response was not placed", func() bool {
		q := a.qp.(*qp)
		q.rx.mu.Lock()
		defer q.rx.mu.Unlock()
		return q.rx.direct.left > 0
	})
	check(t, dst.Close())
	p.write(b[1000:])
	if wc := a.wait(1)[0]; wc.Status != rdma.StatusLocProtErr {
		t.Errorf("%+v", wc)
	}
	a.dead(rdma.ErrLocal)
	_ = p.conn.Close()
	a.close()
}

// TestResetBehindBytes: the end of a connection is noticed if it was reset behind its last
// bytes, and the reader was woken once for both. With one processor no goroutine asks the
// netpoller between the peer's write and its reset.
func TestResetBehindBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 20 {
		b := newEnd(t, New(Options{}), rdma.QPConfig{})
		b.recv(rdma.RecvWR{ID: 1})
		p := dialRaw(t, b, plainRequest(), rtrWrite(true))
		check(t, p.conn.(*net.TCPConn).SetLinger(0))
		time.Sleep(3 * keepEvery) // the reader sleeps
		p.send(proto.AppendUntagged(nil, proto.OpSend, true, proto.QueueSend, 1, 0))
		check(t, p.conn.Close())
		select {
		case <-b.qp.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the QP has not noticed the reset")
		}
		b.close()
	}
}
