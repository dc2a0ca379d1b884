package siw_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// These tests ask for what is refused, and check which end learns the reason.
// The package comment has the table that these tests hold true.

// A fault is a request for memory that the peer does not give.
type fault struct {
	name string
	op   rdma.Opcode
	// target prepares the responder and names what is asked for, n bytes.
	target func(to *end) (at rdma.RemoteAddr, n int)
	// siwServes: siw as the responder serves it nevertheless.
	siwServes bool
	// siwBlunt: it ends the connection without the reason. Its check of bounds
	// overflows, and only the look-up of the page finds nothing there.
	siwBlunt bool
}

const faultSize = 8192

func remote(mr rdma.MR, off int) rdma.RemoteAddr {
	return rdma.RemoteAddr{Addr: mr.Addr() + uint64(off), RKey: mr.RKey()}
}

// keyOf is the key that a peer could name although the region gives it no
// right: every region has one.
func keyOf(mr rdma.MR) rdma.RemoteAddr { return rdma.RemoteAddr{Addr: mr.Addr(), RKey: mr.LKey()} }

func faults() []fault {
	const all = rdma.AccessLocalWrite | rdma.AccessRemoteRead | rdma.AccessRemoteWrite
	whole := func(to *end) rdma.MR { return to.region(to.pd, faultSize, all) }
	var fs []fault
	for _, op := range []rdma.Opcode{rdma.OpRDMARead, rdma.OpRDMAWrite} {
		fs = append(fs,
			fault{"key one bit off", op, func(to *end) (rdma.RemoteAddr, int) {
				r := remote(whole(to), 0)
				r.RKey ^= 1
				return r, 64
			}, false, false},
			fault{"key of nothing", op, func(to *end) (rdma.RemoteAddr, int) {
				r := remote(whole(to), 0)
				r.RKey ^= 1 << 31
				return r, 64
			}, false, false},
			fault{"across the end", op, func(to *end) (rdma.RemoteAddr, int) { return remote(whole(to), faultSize-32), 64 }, false, false},
			fault{"before the start", op, func(to *end) (rdma.RemoteAddr, int) { return remote(whole(to), -64), 64 }, false, false},
			fault{"longer than the region", op, func(to *end) (rdma.RemoteAddr, int) { return remote(whole(to), 0), faultSize + 8 }, false, false},
			fault{"address overflow", op, func(to *end) (rdma.RemoteAddr, int) {
				r := remote(whole(to), 0)
				r.Addr = ^uint64(0) - 7
				return r, 64
			}, false, true},
			fault{"other protection domain", op, func(to *end) (rdma.RemoteAddr, int) {
				pd, err := to.dev.AllocPD()
				to.check("AllocPD", err)
				closeLater(to.t, "other PD", pd.Close)
				return remote(to.region(pd, faultSize, all), 0), 64
			}, false, false},
			fault{"region deregistered", op, func(to *end) (rdma.RemoteAddr, int) {
				mr := whole(to)
				r := remote(mr, 0)
				to.check("Close", mr.Close())
				return r, 64
			}, false, false},
			fault{"connection without the right", op, func(to *end) (rdma.RemoteAddr, int) {
				mr := whole(to)
				to.check("SetAccess", to.qp.SetAccess(0))
				return remote(mr, 0), 64
			}, true, false},
		)
	}
	return append(fs,
		fault{"region without the right", rdma.OpRDMARead, func(to *end) (rdma.RemoteAddr, int) {
			return keyOf(to.region(to.pd, faultSize, rdma.AccessLocalWrite)), 64
		}, true, false},
		fault{"region without the right", rdma.OpRDMAWrite, func(to *end) (rdma.RemoteAddr, int) {
			return remote(to.region(to.pd, faultSize, rdma.AccessLocalWrite|rdma.AccessRemoteRead), 0), 64
		}, false, false},
	)
}

// TestProtection: every fault, asked by our end of siw and by siw of our end.
//
// Our end as the responder refuses all of them, says so to its program, and
// sends a Terminate; siw as the requester takes that for a lost peer, because
// it looks no further than that a Terminate has come. siw as the responder
// refuses by STag, protection domain and bounds, and by the right of the region
// for WRITEs only; our end as the requester learns the reason.
func TestProtection(t *testing.T) {
	at := siwPort(t)
	for _, d := range pairs {
		from, to := d.dialer, d.acceptor
		for _, f := range faults() {
			t.Run(string(from)+" asks/"+f.op.String()+"/"+f.name, func(t *testing.T) {
				x := connected(t, at, from, to, iwarp.Options{})
				said := newKernelLog(t)
				where, n := f.target(x.b)
				mr := x.a.sink(n)
				fill(mr.Bytes(), 0x5a)
				before := bytes.Clone(mr.Bytes())
				id := x.a.post(rdma.SendWR{Op: f.op, SGL: sge(mr, n), Remote: where})
				if to == kernel && f.siwServes {
					x.a.ok(id)
					if f.op == rdma.OpRDMARead && bytes.Equal(mr.Bytes(), before) {
						t.Error("served, but no bytes have come")
					}
					return
				}
				x.refused(f.op, id, to == kernel && f.siwBlunt)
				if got := said.count("siw: got TERMINATE"); from == kernel && got != 1 {
					t.Errorf("the kernel has got %d Terminates, want 1", got)
				}
				if f.op == rdma.OpRDMARead && !bytes.Equal(mr.Bytes(), before) {
					t.Error("refused, but bytes have come")
				}
			})
		}
	}
}

// refused checks how both ends learn that b has refused what a asked for. The
// completion of a WRITE says only that the memory may be reused.
func (x *pair) refused(op rdma.Opcode, id uint64, blunt bool) {
	x.a.t.Helper()
	status, class := rdma.StatusRemAccessErr, rdma.ErrAccess
	switch {
	case blunt:
		status, class = rdma.StatusRetryExcErr, rdma.ErrPeerGone
	case x.a.by == kernel:
		status, class = rdma.StatusWRFlushErr, rdma.ErrPeerGone
	}
	wc := x.a.wait(id)
	if op == rdma.OpRDMARead && wc.Status != status && !(blunt && wc.Status != rdma.StatusSuccess) {
		x.a.t.Errorf("the READ ended with %v, want %v", wc.Status, status)
	}
	if err := x.a.dead(); !errors.Is(err, class) {
		x.a.t.Errorf("%s: the connection ended with %v, want %v", x.a.by, err, class)
	}
	err := x.b.dead()
	if x.b.by == soft && !errors.Is(err, rdma.ErrAccess) {
		x.b.t.Errorf("the responder says %v, want %v", err, rdma.ErrAccess)
	}
}

// TestNoReceive: a SEND that meets no receive ends the connection: iWARP has
// nothing like RNR.
func TestNoReceive(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		from.wait(from.post(rdma.SendWR{Op: rdma.OpSend, SGL: sge(from.region(from.pd, 64, 0), 64)}))
		err := from.dead()
		if from.by == soft && !errors.Is(err, rdma.ErrReceiverNotReady) {
			t.Errorf("the sender says %v, want %v", err, rdma.ErrReceiverNotReady)
		}
		if err := to.dead(); to.by == soft && !errors.Is(err, rdma.ErrReceiverNotReady) {
			t.Errorf("the receiver says %v, want %v", err, rdma.ErrReceiverNotReady)
		}
	})
}

// TestTooLong: likewise one that is longer than the receive.
func TestTooLong(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		into := to.region(to.pd, 64, rdma.AccessLocalWrite)
		came := to.recv(into)
		from.wait(from.post(rdma.SendWR{Op: rdma.OpSend, SGL: sge(from.region(from.pd, 4096, 0), 4096)}))
		if wc := to.wait(came); wc.Status != rdma.StatusLocLenErr {
			t.Errorf("the receive ended with %v, want %v", wc.Status, rdma.StatusLocLenErr)
		}
		from.dead()
		to.dead()
	})
}

// TestDisconnect: an orderly end reaches the other side, and whatever is
// posted comes back.
func TestDisconnect(t *testing.T) {
	eachRole(t, func(t *testing.T, _ port, from, to *end) {
		mine := from.recv(from.region(from.pd, 64, rdma.AccessLocalWrite))
		theirs := to.recv(to.region(to.pd, 64, rdma.AccessLocalWrite))
		from.check("Disconnect", from.qp.Disconnect())
		from.deadBy(rdma.ErrClosed)
		to.deadBy(rdma.ErrPeerGone)
		for _, w := range []struct {
			e  *end
			id uint64
		}{{from, mine}, {to, theirs}} {
			if wc := w.e.wait(w.id); wc.Status != rdma.StatusWRFlushErr {
				t.Errorf("%s: the receive ended with %v, want %v", w.e.by, wc.Status, rdma.StatusWRFlushErr)
			}
		}
	})
}
