//go:build linux

package shm

import (
	"bytes"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// TestReadDirect: a READ by the caller brings what a posted one does, from the
// grant on; what was taken back ends the connection at both ends.
func TestReadDirect(t *testing.T) {
	for _, how := range []string{"closed", "revoked", "bounds"} {
		t.Run(how, func(t *testing.T) {
			a, b := connected(t, Options{}, Options{})
			m := b.mr(1<<16, rdma.AccessRemoteRead)
			for i := range m.Bytes() {
				m.Bytes()[i] = byte(i * 7)
			}
			d := a.qp.(rdma.DirectReader)
			// A hint, whatever it names, and whenever it comes.
			ahead := func() {
				hints := a.qp.(rdma.DirectPrefetcher)
				for _, at := range []rdma.RemoteAddr{{}, remoteOf(m), {Addr: 1<<16 - 8, RKey: m.RKey()}, {Addr: 1 << 16, RKey: m.RKey()}, {Addr: 1 << 63, RKey: m.RKey()}, {Addr: 0, RKey: m.RKey() + 1}} {
					for _, n := range []int{-1, 0, 1, 112, 1 << 20} {
						hints.PrefetchDirect(at, n)
					}
				}
			}
			ahead()
			sink := make([]byte, 256)
			if s := d.ReadDirect(sink, remoteOf(m)); s != rdma.StatusLocQPOpErr || a.qp.Err() != nil {
				t.Fatalf("before the grant: %v, %v", s, a.qp.Err())
			}
			check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
			a.mapped(m)
			at := remoteOf(m)
			at.Addr += 512
			if s := d.ReadDirect(sink, at); s != rdma.StatusSuccess || !bytes.Equal(sink, m.Bytes()[512:768]) {
				t.Fatalf("%v", s)
			}
			ahead()
			if n := testing.AllocsPerRun(100, func() { d.ReadDirect(sink, at); ahead() }); n != 0 && !raceEnabled {
				t.Errorf("%v allocations in a READ", n)
			}
			switch how {
			case "closed":
				check(t, m.Close())
			case "revoked":
				check(t, b.qp.SetAccess(0))
			case "bounds":
				at.Addr = 1<<16 - 248
			}
			ahead()
			// A region that was closed may be unmapped by now: then the QP lives, and a
			// posted READ would be refused.
			if s := d.ReadDirect(sink, at); s == rdma.StatusSuccess || s != rdma.StatusRemAccessErr && how != "closed" {
				t.Errorf("after that: %v", s)
			} else if s == rdma.StatusRemAccessErr {
				a.dead(rdma.ErrAccess)
				b.dead(rdma.ErrAccess)
				if s := d.ReadDirect(sink, at); s != rdma.StatusWRFlushErr {
					t.Errorf("on a dead QP: %v", s)
				}
			}
		})
	}
}

// TestTakenBackUnderCopy: the peer takes a region back while a READ copies out of it.
// Here the word that says so lies where the READ copies to, so that it changes in the
// middle of the copy, every time.
func TestTakenBackUnderCopy(t *testing.T) {
	for _, how := range []string{"direct", "posted"} {
		t.Run(how, func(t *testing.T) {
			a, b := connected(t, Options{}, Options{})
			m, sink := b.mr(4096, rdma.AccessRemoteRead), a.mr(4096, rdma.AccessLocalWrite)
			check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
			a.mapped(m)
			r := a.qp.(*qp).seen.take(m.RKey())
			word := wordAt(sink.Bytes(), 2048)
			word.Store(r.want)
			r.slot = word // no other READs of this region are under way
			r.release()
			if !r.open() {
				t.Fatal("the region may not be read to begin with")
			}
			var s rdma.Status
			if how == "direct" {
				s = a.qp.(rdma.DirectReader).ReadDirect(sink.Bytes(), remoteOf(m))
			} else {
				_, err := a.qp.PostSend([]rdma.SendWR{{Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: sink, Len: 4096}}, Remote: remoteOf(m)}})
				check(t, err)
				s = a.completion().Status
			}
			if word.Load() == r.want {
				t.Fatal("nothing was copied: the scenario does not happen")
			}
			if s != rdma.StatusRemAccessErr {
				t.Fatalf("%v of a region that was taken back under the copy, want %v", s, rdma.StatusRemAccessErr)
			}
			a.dead(rdma.ErrAccess)
		})
	}
}

// TestRefusedBehindOthers: a READ by the caller is not allowed, because the peer has
// taken the region back, and the answer to one before it, which went through the rings,
// is on its way. That one succeeds, and the refusal is of the READ behind it.
func TestRefusedBehindOthers(t *testing.T) {
	a, b := connected(t, Options{}, Options{})
	kept, gone, sink := b.mr(4096, rdma.AccessRemoteRead), b.mr(4096, rdma.AccessRemoteRead), a.mr(4096, rdma.AccessLocalWrite)
	check(t, b.qp.SetAccess(rdma.AccessRemoteRead))
	a.mapped(kept)
	a.mapped(gone)
	aq, bq := a.qp.(*qp), b.qp.(*qp)
	read := func(id uint64, m rdma.MR) {
		_, err := aq.PostSend([]rdma.SendWR{{ID: id, Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{MR: sink, Len: 64}}, Remote: remoteOf(m)}})
		check(t, err)
	}
	bq.rx.mu.Lock() // b receives nothing yet
	unlock := sync.OnceFunc(bq.rx.mu.Unlock)
	defer unlock()
	all := aq.seen.byKey.Swap(nil)
	read(1, kept) // not mapped: through the ring
	aq.seen.byKey.Store(all)
	r := aq.seen.take(gone.RKey())
	r.want++ // what the word says when the region has been taken back
	r.release()
	read(2, gone)
	if err := aq.Err(); err != nil {
		t.Fatalf("the connection ends while an answer is awaited: %v", err)
	}
	// Only the sender waits: a READ of the peer is answered meanwhile, as far as the
	// ring has room, in as many pieces as that takes.
	source, into := a.mr(2*ringSize, rdma.AccessRemoteRead), b.mr(2*ringSize, rdma.AccessLocalWrite)
	check(t, a.qp.SetAccess(rdma.AccessRemoteRead))
	bq.seen.byKey.Store(nil)
	_, err := bq.PostSend([]rdma.SendWR{{ID: 3, Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: into, Len: 2 * ringSize}}, Remote: remoteOf(source)}})
	check(t, err)
	aq.rx.serve()
	aq.Mu.Lock()
	if len(aq.tx.resp) != 1 || !aq.tx.stuck {
		t.Errorf("%d READs of the peer wait for an answer, and room for one is left", len(aq.tx.resp))
	}
	aq.Mu.Unlock()
	unlock()
	bq.rx.serve()
	for _, want := range []rdma.WC{{ID: 1, Status: rdma.StatusSuccess}, {ID: 2, Status: rdma.StatusRemAccessErr}} {
		if got := a.completion(); got.ID != want.ID || got.Status != want.Status {
			t.Errorf("work request %d: %v; want %d: %v", got.ID, got.Status, want.ID, want.Status)
		}
	}
	a.dead(rdma.ErrAccess)
}

func BenchmarkReadDirect(b *testing.B) {
	x, y := connected(b, Options{}, Options{})
	m := y.mr(1<<20, rdma.AccessRemoteRead)
	check(b, y.qp.SetAccess(rdma.AccessRemoteRead))
	x.mapped(m)
	d, at, sink := x.qp.(rdma.DirectReader), remoteOf(m), make([]byte, 256)
	for b.Loop() {
		if s := d.ReadDirect(sink, at); s != rdma.StatusSuccess {
			b.Fatal(s)
		}
	}
}
