package iwarp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestSendRecv(t *testing.T) {
	for _, n := range []int{0, 1, 3, 100, 4096, 65521, 1 << 20} {
		a, b := connected(t, pairConfig{})
		src, dst := a.mr(max(n, 1), 0), b.mr(max(n, 1), rdma.AccessLocalWrite)
		fill(src.Bytes(), uint64(n))
		b.recv(rdma.RecvWR{ID: 7, SGL: []rdma.SGE{{MR: dst, Len: uint32(n)}}})
		a.send(rdma.SendWR{ID: 3, Op: rdma.OpSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: src, Len: uint32(n)}}})
		if wc := b.waitOK(1)[0]; wc.ID != 7 || wc.Op != rdma.OpRecv || wc.ByteLen != uint32(n) || wc.QPN != b.qp.QPN() {
			t.Fatalf("%d: %+v", n, wc)
		}
		if wc := a.waitOK(1)[0]; wc.ID != 3 || wc.Op != rdma.OpSend {
			t.Fatalf("%+v", wc)
		}
		if !bytes.Equal(src.Bytes()[:n], dst.Bytes()[:n]) {
			t.Fatalf("%d bytes differ", n)
		}
	}
}

func TestRead(t *testing.T) {
	a, b := connected(t, pairConfig{})
	src, dst := b.mr(4<<20, rdma.AccessRemoteRead), a.mr(4<<20, rdma.AccessLocalWrite)
	fill(src.Bytes(), 1)
	check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
	for i, n := range []int{0, 1, 7, 8, 9, 64, 4096, 65536, 65537, 1 << 20, 4 << 20} {
		for _, off := range []int{0, 1, 5, 8} {
			if off+n > 4<<20 {
				continue
			}
			clear(dst.Bytes())
			a.send(rdma.SendWR{ID: uint64(i), Op: rdma.OpRDMARead, Flags: rdma.SendSignaled,
				SGL:    []rdma.SGE{{MR: dst, Off: 0, Len: uint32(n)}},
				Remote: rdma.RemoteAddr{Addr: src.Addr() + uint64(off), RKey: src.RKey()}})
			if wc := a.waitOK(1)[0]; wc.ID != uint64(i) || wc.ByteLen != uint32(n) || wc.Op != rdma.OpRDMARead {
				t.Fatalf("%+v", wc)
			}
			if !bytes.Equal(src.Bytes()[off:off+n], dst.Bytes()[:n]) {
				t.Fatalf("%d bytes at %d differ", n, off)
			}
		}
	}
}

func TestReadDenied(t *testing.T) {
	a, b := connected(t, pairConfig{})
	src, dst := b.mr(4096, rdma.AccessRemoteRead), a.mr(4096, rdma.AccessLocalWrite)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: dst, Len: 8}}, Remote: rdma.RemoteAddr{RKey: src.RKey()}})
	if wc := a.wait(1)[0]; wc.ID != 1 || wc.Status != rdma.StatusRemAccessErr {
		t.Fatalf("%+v", wc)
	}
	a.dead(rdma.ErrAccess)
	b.dead(rdma.ErrAccess)
}

func TestWrite(t *testing.T) {
	a, b := connected(t, pairConfig{bcfg: rdma.QPConfig{Access: rdma.AccessRemoteWrite | rdma.AccessRemoteRead}})
	src := a.mr(1<<20, rdma.AccessLocalWrite)
	dst := b.mr(1<<20, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
	fill(src.Bytes(), 5)
	a.send(rdma.SendWR{ID: 1, Op: rdma.OpRDMAWrite, SGL: []rdma.SGE{{MR: src, Len: 1 << 20}}, Remote: rdma.RemoteAddr{RKey: dst.RKey()}})
	// A READ behind the WRITE brings back what was written.
	back := a.mr(1<<20, rdma.AccessLocalWrite)
	a.send(rdma.SendWR{ID: 2, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: back, Len: 1 << 20}}, Remote: rdma.RemoteAddr{RKey: dst.RKey()}})
	a.waitOK(1)
	if !bytes.Equal(src.Bytes(), back.Bytes()) {
		t.Fatal("differ")
	}
}
