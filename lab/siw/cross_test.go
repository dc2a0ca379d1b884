package siw_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// One end is our RNIC in user space, the other the kernel's siw through package
// verbs; what goes well.

// sizes cover nothing, one word, a page, what fills several FPDUs, and what
// fills the socket's buffers.
var sizes = []int{0, 8, 4096, 100_000, 4 << 20}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8)*31 ^ seed
	}
}

func sge(mr rdma.MR, n int) []rdma.SGE { return []rdma.SGE{{MR: mr, Len: uint32(n)}} }

func TestRead(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		for _, n := range sizes {
			src := to.region(to.pd, max(n, 8), rdma.AccessRemoteRead)
			sink := from.sink(max(n, 8))
			fill(src.Bytes(), byte(n))
			wc := from.ok(from.post(rdma.SendWR{Op: rdma.OpRDMARead, SGL: sge(sink, n), Remote: rdma.RemoteAddr{Addr: src.Addr(), RKey: src.RKey()}}))
			if int(wc.ByteLen) != n || !bytes.Equal(sink.Bytes()[:n], src.Bytes()[:n]) {
				t.Errorf("READ of %d bytes: completion says %d, bytes equal: %v", n, wc.ByteLen, bytes.Equal(sink.Bytes()[:n], src.Bytes()[:n]))
			}
		}
	})
}

// TestWrite: a WRITE is known to be placed when a SEND behind it has come.
func TestWrite(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		flag := to.region(to.pd, 64, rdma.AccessLocalWrite)
		for _, n := range sizes {
			src := from.region(from.pd, max(n, 8), 0)
			sink := to.region(to.pd, max(n, 8), rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
			fill(src.Bytes(), byte(n))
			came := to.recv(flag)
			from.ok(from.post(rdma.SendWR{Op: rdma.OpRDMAWrite, SGL: sge(src, n), Remote: rdma.RemoteAddr{Addr: sink.Addr(), RKey: sink.RKey()}}))
			from.ok(from.post(rdma.SendWR{Op: rdma.OpSend, SGL: sge(src, 8)}))
			to.ok(came)
			if !bytes.Equal(sink.Bytes()[:n], src.Bytes()[:n]) {
				t.Errorf("WRITE of %d bytes: other bytes", n)
			}
		}
	})
}

func TestSend(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		for _, n := range sizes {
			src := from.region(from.pd, max(n, 8), 0)
			sink := to.region(to.pd, max(n, 8), rdma.AccessLocalWrite)
			fill(src.Bytes(), byte(n))
			came := to.recv(sink)
			from.ok(from.post(rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendSolicited, SGL: sge(src, n)}))
			if wc := to.ok(came); int(wc.ByteLen) != n || !bytes.Equal(sink.Bytes()[:n], src.Bytes()[:n]) {
				t.Errorf("SEND of %d bytes: %d came", n, wc.ByteLen)
			}
		}
		if limit := from.dev.Attr().MaxInline; limit > 0 {
			sink := to.region(to.pd, 64, rdma.AccessLocalWrite)
			came := to.recv(sink)
			from.ok(from.post(rdma.SendWR{Op: rdma.OpSend, Flags: rdma.SendInline, Inline: []byte("inline")}))
			if wc := to.ok(came); string(sink.Bytes()[:wc.ByteLen]) != "inline" {
				t.Errorf("inline SEND brought %q", sink.Bytes()[:wc.ByteLen])
			}
		}
		// Two pieces at each end, cut in different places.
		src, sink := from.region(from.pd, 100, 0), to.region(to.pd, 100, rdma.AccessLocalWrite)
		fill(src.Bytes(), 1)
		to.next++
		came := to.next
		_, err := to.qp.PostRecv([]rdma.RecvWR{{ID: came, SGL: []rdma.SGE{{MR: sink, Len: 10}, {MR: sink, Off: 10, Len: 90}}}})
		to.check("PostRecv", err)
		from.ok(from.post(rdma.SendWR{Op: rdma.OpSend, SGL: []rdma.SGE{{MR: src, Len: 77}, {MR: src, Off: 77, Len: 23}}}))
		to.ok(came)
		if !bytes.Equal(src.Bytes(), sink.Bytes()) {
			t.Error("scattered SEND: other bytes")
		}
	})
}

// TestManyReads keeps more READs posted than may be in flight, for a while.
func TestManyReads(t *testing.T) {
	eachPair(t, func(t *testing.T, at port, dialer, acceptor maker) {
		x := ends(t, at, dialer, acceptor, iwarp.Options{})
		if err := x.connect(at, rdma.ConnParams{IRD: 16, ORD: 16}, rdma.ConnParams{IRD: 8, ORD: 8}); err != nil {
			t.Fatal(err)
		}
		// siw as the acceptor serves as many READs as the dialer asks for,
		// whatever its own program has said.
		want := 8
		if acceptor == kernel {
			want = 16
		}
		if x.infoA.ORD != want {
			t.Errorf("the dialer may have %d READs in flight, want %d", x.infoA.ORD, want)
		}
		const n, slots, rounds = 64, 128, 20
		src := x.b.region(x.b.pd, n*slots, rdma.AccessRemoteRead)
		sink := x.a.sink(n * slots)
		fill(src.Bytes(), 3)
		for range rounds {
			clear(sink.Bytes())
			wrs := make([]rdma.SendWR, slots)
			for i := range wrs {
				x.a.next++
				j := (i * 37) % slots // every slot once, in another order
				wrs[i] = rdma.SendWR{ID: x.a.next, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
					SGL:    []rdma.SGE{{MR: sink, Off: uint64(j * n), Len: n}},
					Remote: rdma.RemoteAddr{Addr: src.Addr() + uint64(j*n), RKey: src.RKey()}}
			}
			_, err := x.a.qp.PostSend(wrs)
			x.a.check("PostSend", err)
			for i := range wrs {
				x.a.ok(wrs[i].ID)
			}
			if !bytes.Equal(sink.Bytes(), src.Bytes()) {
				t.Fatal("other bytes")
			}
		}
	})
}

// TestSetUp: revisions of MPA, checksums and private data. A connection that
// siw begins is always revision 2; package lab/siw's variants do otherwise.
func TestSetUp(t *testing.T) {
	eachPair(t, func(t *testing.T, at port, dialer, acceptor maker) {
		for _, h := range []struct {
			name string
			opts iwarp.Options
		}{
			{"rev 2", iwarp.Options{}},
			{"no CRC", iwarp.Options{NoCRC: true}},
			{"RTR READ", iwarp.Options{RTR: iwarp.RTRRead}},
			{"rev 1", iwarp.Options{Revision: 1}},
			{"rev 1, no CRC", iwarp.Options{Revision: 1, NoCRC: true}},
		} {
			t.Run(h.name, func(t *testing.T) {
				x := ends(t, at, dialer, acceptor, h.opts)
				question, answer := make([]byte, rdma.PrivateDataMax), make([]byte, 148)
				fill(question, 1)
				fill(answer, 2)
				if err := x.connect(at, rdma.ConnParams{PrivateData: question, IRD: 4, ORD: 4}, rdma.ConnParams{PrivateData: answer, IRD: 4, ORD: 4}); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x.infoA.PrivateData, answer) {
					t.Errorf("the dialer got % x", x.infoA.PrivateData)
				}
				if x.infoA.ORD != 4 || x.infoA.IRD != 4 || x.infoB.ORD != 4 || x.infoB.IRD != 4 {
					t.Errorf("depths %+v and %+v, want 4", x.infoA, x.infoB)
				}
				src, sink := x.b.region(x.b.pd, 8192, rdma.AccessRemoteRead), x.a.sink(8192)
				fill(src.Bytes(), 9)
				x.a.ok(x.a.post(rdma.SendWR{Op: rdma.OpRDMARead, SGL: sge(sink, 8192), Remote: rdma.RemoteAddr{Addr: src.Addr(), RKey: src.RKey()}}))
				if !bytes.Equal(src.Bytes(), sink.Bytes()) {
					t.Error("other bytes")
				}
			})
		}
	})
}

// TestReject: the refusal comes with its reason, and is no lost peer.
func TestReject(t *testing.T) {
	eachPair(t, func(t *testing.T, at port, dialer, acceptor maker) {
		x := ends(t, at, dialer, acceptor, iwarp.Options{})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		l, err := x.b.dev.Listen(ctx, at.addr+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		asked := make(chan string, 1)
		go func() {
			req, err := l.Accept(ctx)
			if err != nil {
				asked <- fmt.Sprint(err)
				return
			}
			asked <- string(req.PrivateData())
			if err := req.Reject([]byte("not today")); err != nil {
				t.Errorf("Reject: %v", err)
			}
		}()
		info, err := x.a.qp.Connect(ctx, l.Addr().String(), rdma.ConnParams{PrivateData: []byte("may I?")})
		if q := <-asked; q != "may I?" {
			t.Errorf("the acceptor was asked %q", q)
		}
		if !errors.Is(err, rdma.ErrRejected) || string(info.PrivateData) != "not today" {
			t.Errorf("the dialer got %q with %v", info.PrivateData, err)
		}
	})
}

// TestNobodyListens: the dialer learns it from the refused TCP connection.
func TestNobodyListens(t *testing.T) {
	at := siwPort(t)
	for _, m := range []maker{soft, kernel} {
		t.Run(string(m), func(t *testing.T) {
			e := newEnd(t, m, m.open(t, at, iwarp.Options{}))
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := e.qp.Connect(ctx, at.addr+":9", rdma.ConnParams{}); !errors.Is(err, rdma.ErrPeerGone) {
				t.Errorf("Connect: %v, want %v", err, rdma.ErrPeerGone)
			}
		})
	}
}
