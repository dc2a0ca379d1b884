package rdmatest

import (
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
)

// descriptors counts the open files of this process; -1 where /proc is missing.
func descriptors() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(list)
}

// heap is what is in use after a collection, stacks included.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers of the first held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// checkCycles: connections come and go, in good and in bad ways, and leave no
// goroutine, descriptor or memory behind.
func checkCycles(t *testing.T, cfg *Config) {
	const warm, cycles = 20, 200
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	src, sink := b.region(4096, rdma.AccessRemoteRead), a.region(4096, rw(a))
	cycle := func(i int) {
		create := func(e *end) rdma.QP {
			qp, err := e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, Access: rdma.AccessRemoteRead})
			e.check("CreateQP", err)
			return qp
		}
		p := &pair{a: a, b: b, qa: create(a), qb: create(b)}
		if _, err := p.join(l, rdma.ConnParams{PrivateData: make([]byte, 56)}, rdma.ConnParams{}); err != nil {
			t.Fatalf("cycle %d: %v", i, err)
		}
		a.recv(p.qa, sink.sge(0, 64))
		b.recv(p.qb)
		at := src.remote(0)
		if i%4 == 3 {
			at.RKey ^= 7 // this one ends by a protection fault
		}
		a.wait(a.post(p.qa, read(sink, 0, at, 4096))[0])
		order := []rdma.QP{p.qa, p.qb}
		if i%2 == 0 {
			slices.Reverse(order)
		}
		for _, qp := range order {
			if err := qp.Close(); err != nil {
				t.Errorf("cycle %d: QP.Close: %v", i, err)
			}
		}
		a.balance()
		b.balance()
		for _, e := range []*end{a, b} {
			clear(e.posted)
			clear(e.got)
			e.order = e.order[:0]
		}
	}
	for i := range warm {
		cycle(i)
	}
	goroutines, fds, before := runtime.NumGoroutine(), descriptors(), heap()
	// There is no collection meanwhile: finalizers would close what the fabric
	// forgot.
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	for i := range cycles {
		cycle(i)
	}
	eventually(t, "the goroutines of the connections are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "the descriptors of the connections are closed", func() bool { return descriptors() <= fds })
	after := heap()
	t.Logf("after %d cycles: %d goroutines (%d before), %d descriptors (%d), heap %d KiB (%d)", cycles,
		runtime.NumGoroutine(), goroutines, descriptors(), fds, after>>10, before>>10)
	// A leak would be a kilobyte a cycle; normal variation is far below that.
	if after > before+cycles<<10 {
		t.Errorf("heap grew from %d to %d bytes in %d cycles", before, after, cycles)
	}
}

// checkManyConnections: a thousand connections at a time, all of which work,
// and what an idle one costs.
func checkManyConnections(t *testing.T, cfg *Config) {
	n := cfg.Connections
	a, b := newEnd(t, cfg, "a"), newEnd(t, cfg, "b")
	l := b.listen()
	src, sink := b.region(64, rdma.AccessRemoteRead), a.region(64*n, rw(a))
	fill(src.bytes(), 2)
	pairs := make([]*pair, n)
	before, fds := heap(), descriptors()
	for i := range pairs {
		small := rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 16, MaxRecvWR: 16}, Access: rdma.AccessRemoteRead}
		p := &pair{a: a, b: b, qa: a.qp(small), qb: b.qp(small)}
		if _, err := p.join(l, rdma.ConnParams{}, rdma.ConnParams{}); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		pairs[i] = p
	}
	idle := heap()
	t.Logf("%d connections: %d bytes of heap and stack for each end, %.2f descriptors, %d goroutines in all",
		n, (idle-min(idle, before))/uint64(2*n), float64(descriptors()-fds)/float64(2*n), runtime.NumGoroutine())
	var ids []uint64
	for i, p := range pairs {
		ids = append(ids, a.post(p.qa, read(sink, i*64, src.remote(0), 64))...)
	}
	for _, id := range ids {
		a.ok(id)
	}
	for i := range pairs {
		expectBytes(t, "READ", sink.bytes()[i*64:(i+1)*64], src.bytes())
	}
	used := heap()
	t.Logf("after a READ on each: %d bytes for each end", (used-min(used, before))/uint64(2*n))
	// They end one after the other, from both sides.
	var wg sync.WaitGroup
	for i, p := range pairs {
		qp := p.qa
		if i%2 == 0 {
			qp = p.qb
		}
		wg.Go(func() {
			if err := qp.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range pairs {
		a.expectDone(p.qa, rdma.ErrPeerGone, rdma.ErrClosed)
		b.expectDone(p.qb, rdma.ErrPeerGone, rdma.ErrClosed)
	}
}
