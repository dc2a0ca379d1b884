package clienttest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A fake server whose QPs take prepared READs (rdma.SpinReader). A READ is served by the
// call that posts it, unless it is to be late: then its sink stays as it is until
// LandReads, and a second READ into the same sink meanwhile panics.

// Sinks is what a Server has of them.
type Sinks struct {
	On    bool         // set before the first connection
	Reads atomic.Int64 // posted into sinks
	Late  atomic.Bool  // they end when LandReads says so
}

// A sinkQP is a fakeQP with sinks.
type sinkQP struct {
	*QP
	sinks []rdma.SGE
}

// A lateRead is a READ into a sink that is under way.
type lateRead struct {
	sink   int
	id     uint64
	dst    []byte
	remote rdma.RemoteAddr
}

func (q *sinkQP) PrepareSinks(sinks []rdma.SGE) error {
	q.sinks = sinks
	return nil
}

func (q *sinkQP) ReadSpin(sink int, id uint64, remote rdma.RemoteAddr, n uint32, wcs []rdma.WC, d time.Duration) (r rdma.SpinResult) {
	if q.Err() != nil {
		return r
	}
	q.f.Sinks.Reads.Add(1)
	s := q.sinks[sink]
	read := lateRead{sink, id, s.MR.Bytes()[s.Off : s.Off+uint64(n)], remote}
	q.Mu.Lock()
	for _, late := range q.late {
		if late.sink == sink {
			panic(fmt.Sprintf("clienttest: a READ into sink %d, where one is under way", sink))
		}
	}
	if q.f.Sinks.Late.Load() {
		q.late = append(q.late, read)
		q.Mu.Unlock()
		return q.AwaitSpin(sink, id, wcs, d)
	}
	q.Mu.Unlock()
	q.land(read)
	return rdma.SpinResult{State: rdma.SpinDone}
}

// AwaitSpin lets time go by if there is nothing.
func (q *sinkQP) AwaitSpin(_ int, id uint64, wcs []rdma.WC, d time.Duration) rdma.SpinResult {
	n, _ := spinCQ{q.CQ}.Spin(wcs, d)
	r := rdma.SpinResult{State: rdma.SpinPending}
	for _, wc := range wcs[:n] {
		if wc.ID == id {
			r.State, r.Status = rdma.SpinDone, wc.Status
			continue
		}
		wcs[r.Others] = wc
		r.Others++
	}
	return r
}

// land does what a READ does.
func (q *QP) land(r lateRead) {
	q.f.Mu.Lock()
	defer q.f.Mu.Unlock()
	if q.f.OnRead != nil {
		q.f.OnRead(r.remote.Addr, r.dst)
	} else {
		copy(r.dst, q.f.Mem[r.remote.Addr:])
	}
}

// LandReads ends the READs into sinks that are late, the oldest n of them.
func (q *QP) LandReads(n int) {
	q.Mu.Lock()
	late := q.late[:min(n, len(q.late))]
	q.late = q.late[len(late):]
	q.Mu.Unlock()
	for _, r := range late {
		q.land(r)
		q.CQ.push(rdma.WC{ID: r.id, Op: rdma.OpRDMARead, ByteLen: uint32(len(r.dst))})
	}
}

// LateReads is how many READs into sinks are under way.
func (q *QP) LateReads() int {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return len(q.late)
}

// A spinCQ is a fakeCQ that looks by itself: time goes by while it does.
type spinCQ struct{ *CQ }

func (c spinCQ) Spin(wcs []rdma.WC, d time.Duration) (int, error) {
	n, err := c.Poll(wcs)
	if n == 0 && err == nil && d > 0 {
		time.Sleep(d)
		n, err = c.Poll(wcs)
	}
	return n, err
}
