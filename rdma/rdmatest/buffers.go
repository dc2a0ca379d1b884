package rdmatest

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// These checks are about which end owns a buffer, and when. Each takes memory
// back at the first moment that the interface allows, and unmaps or overwrites
// it at once.

// checkRegionClosedUnderReads: once MR.Close has returned the memory may be
// unmapped, whatever peers are asking for. With Mmap a fabric that reads on
// dies here; with Heap the race detector sees it.
func checkRegionClosedUnderReads(t *testing.T, cfg *Config) {
	const size = 256 << 10
	for round := range cfg.rounds(40) {
		p := newPair(t, cfg, pairOptions{})
		src, sink := p.b.region(size, rdma.AccessRemoteRead), p.a.region(size, rw(p.a))
		fill(src.bytes(), byte(round))
		want := slices.Clone(src.bytes())
		var wrs []rdma.SendWR
		for range 16 {
			wrs = append(wrs, read(sink, 0, src.remote(0), size))
		}
		ids := p.a.post(p.qa, wrs...)
		p.a.ok(ids[round%4])
		p.b.check("MR.Close", src.mr.Close())
		fill(src.bytes(), ^byte(round)) // ours again
		p.b.check("Free", src.block.Free())
		good := 0
		for _, id := range ids {
			wc := p.a.wait(id)
			if wc.Status == rdma.StatusSuccess {
				good++
			} else if !isAny(wc.Status.Err(), rdma.ErrAccess, rdma.ErrFlushed) {
				t.Errorf("round %d: READ of a closed region: %v", round, wc.Status)
			}
		}
		if good < len(ids) {
			p.a.expectDone(p.qa, rdma.ErrAccess)
		}
		if good == len(ids) { // all had been served before the Close
			expectBytes(t, "READs before the Close", sink.bytes(), want)
		}
	}
}

// checkSinkClosedUnderReads: the same at the other end. Once its region is
// closed, a sink or a receive buffer takes no byte any more; the work that
// needed it fails as a local error.
func checkSinkClosedUnderReads(t *testing.T, cfg *Config) {
	const size = 256 << 10
	for round := range cfg.rounds(40) {
		p := newPair(t, cfg, pairOptions{})
		src := p.b.region(size, rdma.AccessRemoteRead|rdma.AccessLocalWrite)
		sink := p.a.region(size, rw(p.a))
		var ids []uint64
		if round%2 == 0 {
			var wrs []rdma.SendWR
			for range 16 {
				wrs = append(wrs, read(sink, 0, src.remote(0), size))
			}
			ids = p.a.post(p.qa, wrs...)
		} else {
			for range 16 {
				ids = append(ids, p.a.recv(p.qa, sink.sge(0, size)))
			}
			for range 16 {
				p.b.post(p.qb, send(src, 0, size))
			}
		}
		p.a.ok(ids[round%4])
		p.a.check("MR.Close", sink.mr.Close())
		fill(sink.bytes(), byte(round)) // ours again
		p.a.check("Free", sink.block.Free())
		good := 0
		for _, id := range ids {
			wc := p.a.wait(id)
			if wc.Status == rdma.StatusSuccess {
				good++
			} else if !isAny(wc.Status.Err(), rdma.ErrLocal, rdma.ErrFlushed) {
				t.Errorf("round %d: work whose region was closed: %v", round, wc.Status)
			}
		}
		if good < len(ids) {
			p.a.expectDone(p.qa, rdma.ErrLocal)
		}
	}
}

// checkSinkFreedAfterClose: once QP.Close has returned, no byte arrives any
// more: sinks and receive buffers may be unmapped.
func checkSinkFreedAfterClose(t *testing.T, cfg *Config) {
	const size = 512 << 10
	for round := range 12 {
		p := newPair(t, cfg, pairOptions{})
		src := p.b.region(size, rdma.AccessRemoteRead|rdma.AccessLocalWrite)
		sink, into := p.a.region(size, rw(p.a)), p.a.region(size, rdma.AccessLocalWrite)
		recv := p.a.recv(p.qa, into.sge(0, size))
		var wrs []rdma.SendWR
		for range 8 {
			wrs = append(wrs, read(sink, 0, src.remote(0), size))
		}
		ids := p.a.post(p.qa, wrs...)
		p.b.post(p.qb, send(src, 0, size))
		if round%3 > 0 {
			p.a.wait(ids[round%3])
		}
		p.a.check("QP.Close", p.qa.Close())
		// All completions are in the CQ already, so there is nothing to wait
		// for.
		if _, err := p.a.poll(); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(ids, recv) {
			if _, there := p.a.got[id]; !there {
				t.Errorf("round %d: work request %d has not completed when Close returns", round, id)
			}
		}
		for _, r := range []*region{sink, into} {
			fill(r.bytes(), 0xee)
			p.a.check("MR.Close", r.mr.Close())
			p.a.check("Free", r.block.Free())
		}
	}
}

// checkFlushReads: Disconnect in the middle of large READs. The READs that
// completed before are whole; from the first flushed one on all are flushed;
// and once the completion is there the sink belongs to the program again.
func checkFlushReads(t *testing.T, cfg *Config) {
	const size, reads = 1 << 20, 24
	for round := range 6 {
		p := newPair(t, cfg, pairOptions{})
		src := p.b.region(size, rdma.AccessRemoteRead)
		fill(src.bytes(), byte(round))
		var sinks []*region
		var wrs []rdma.SendWR
		for range reads {
			sinks = append(sinks, p.a.region(size, rw(p.a)))
			wrs = append(wrs, read(sinks[len(sinks)-1], 0, src.remote(0), size))
		}
		ids := p.a.post(p.qa, wrs...)
		if round%3 > 0 {
			p.a.ok(ids[round]) // some have come
		}
		switch round % 2 {
		case 0:
			p.a.check("Disconnect", p.qa.Disconnect())
		case 1:
			p.b.check("Disconnect", p.qb.Disconnect())
		}
		flushed := false
		for i, id := range ids {
			wc := p.a.wait(id)
			switch {
			case wc.Status == rdma.StatusSuccess && !flushed:
				expectBytes(t, "a READ that completed", sinks[i].bytes(), src.bytes())
			case wc.Status == rdma.StatusSuccess:
				t.Fatalf("round %d: READ %d succeeded behind one that was flushed", round, i)
			default:
				if !flushed && !isAny(wc.Status.Err(), rdma.ErrFlushed, rdma.ErrPeerGone) || flushed && !errors.Is(wc.Status.Err(), rdma.ErrFlushed) {
					t.Errorf("round %d: READ %d: %v", round, i, wc.Status)
				}
				flushed = true
				fill(sinks[i].bytes(), 0xff) // ours
				p.a.check("MR.Close", sinks[i].mr.Close())
				p.a.check("Free", sinks[i].block.Free())
			}
		}
	}
}

// checkFlushSends: the same for large SENDs. Once the completion is there,
// flushed or not, the fabric does not read the source any more: it may be
// written (the race detector watches, with Heap) or unmapped.
func checkFlushSends(t *testing.T, cfg *Config) {
	const size, sends = 1 << 20, 24
	for round := range 6 {
		p := newPair(t, cfg, pairOptions{})
		into := p.b.region(size, rdma.AccessLocalWrite)
		for range sends {
			p.b.recv(p.qb, into.sge(0, size))
		}
		var sources []*region
		var wrs []rdma.SendWR
		for range sends {
			sources = append(sources, p.a.region(size, rdma.AccessLocalWrite))
			wrs = append(wrs, send(sources[len(sources)-1], 0, size))
		}
		ids := p.a.post(p.qa, wrs...)
		if round%3 > 0 {
			p.a.ok(ids[round])
		}
		end := p.qa.Disconnect
		if round%2 == 1 {
			end = p.qb.Disconnect
		}
		p.a.check("Disconnect", end())
		for i, id := range ids {
			p.a.wait(id)
			fill(sources[i].bytes(), 0xff) // ours
			p.a.check("MR.Close", sources[i].mr.Close())
			p.a.check("Free", sources[i].block.Free())
		}
		p.a.expectDone(p.qa, rdma.ErrClosed, rdma.ErrPeerGone)
	}
}
