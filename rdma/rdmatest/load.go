package rdmatest

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

func loadChecks() []check {
	return []check{
		{"many goroutines, one queue pair", checkConcurrentPosts},
		{"both ways at once", checkBothWays},
		{"dispatcher", checkDispatcher},
		{"dispatcher gives up", checkDispatcherGivesUp},
		{"connect and disconnect", checkCycles},
		{"many connections", checkManyConnections},
	}
}

// checkConcurrentPosts: posts from many goroutines on one QP, waited for
// through a Dispatcher, each with memory of its own.
func checkConcurrentPosts(t *testing.T, cfg *Config) {
	const goroutines, rounds, size = 8, 150, 512
	p := newPair(t, cfg, pairOptions{})
	d := wait.NewDispatcher(p.a.cq, wait.Options{})
	src, sink := p.b.region(goroutines*size, rdma.AccessRemoteRead), p.a.region(goroutines*size, rw(p.a))
	fill(src.bytes(), 4)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for g := range goroutines {
		mine := sink.bytes()[g*size : (g+1)*size]
		wg.Go(func() {
			for i := range rounds {
				clear(mine)
				op := d.NewOp()
				n := 1 + i*7%size
				wr := read(sink, g*size, src.remote(g*size), n)
				wr.ID = op.ID()
				for {
					took, err := p.qa.PostSend([]rdma.SendWR{wr})
					if took == 1 {
						break
					}
					if !errors.Is(err, rdma.ErrQueueFull) {
						t.Errorf("PostSend: %v", err)
						d.Release(op)
						return
					}
					runtime.Gosched()
				}
				wc, err := d.Wait(ctx, op)
				if err != nil || wc.Status != rdma.StatusSuccess {
					t.Errorf("goroutine %d round %d: %v, %v", g, i, wc.Status, err)
					return
				}
				expectBytes(t, "READ", mine[:n], src.bytes()[g*size:g*size+n])
			}
		})
	}
	wg.Wait()
	p.a.check("QP.Close", p.qa.Close())
	p.a.check("Dispatcher.Close", d.Close())
	if s := d.Stats(); s.Strays != 0 || s.InUse != 0 {
		t.Errorf("dispatcher: %+v", s)
	}
}

// checkBothWays: large messages in both directions on one connection, posted
// before either end reads any. Two ends that both waited for room would stop
// for ever.
func checkBothWays(t *testing.T, cfg *Config) {
	const size, n = 1 << 20, 24
	p := newPair(t, cfg, pairOptions{})
	prepare := func(e *end, qp rdma.QP) (recvs []uint64, into, from *region) {
		into, from = e.region(size*n, rdma.AccessLocalWrite), e.region(size, rdma.AccessLocalWrite)
		fill(from.bytes(), e.name[0])
		for i := range n {
			recvs = append(recvs, e.recv(qp, into.sge(i*size, size)))
		}
		return recvs, into, from
	}
	recvA, intoA, fromA := prepare(p.a, p.qa)
	recvB, intoB, fromB := prepare(p.b, p.qb)
	remoteA, remoteB := p.a.region(size, rw(p.a)), p.b.region(size, rw(p.b))
	fill(remoteA.bytes(), 'x')
	fill(remoteB.bytes(), 'y')
	sinkA, sinkB := p.a.region(size, rw(p.a)), p.b.region(size, rw(p.b))
	var wg sync.WaitGroup
	work := func(from, sink *region, remote rdma.RemoteAddr) (wrs []rdma.SendWR) {
		for range n {
			wrs = append(wrs, send(from, 0, size), read(sink, 0, remote, size))
		}
		return wrs
	}
	workA, workB := work(fromA, sinkA, remoteB.remote(0)), work(fromB, sinkB, remoteA.remote(0))
	wg.Go(func() {
		if n, err := p.a.tryPost(p.qa, workA); n != len(workA) {
			t.Errorf("a: PostSend took %d: %v", n, err)
		}
	})
	if n, err := p.b.tryPost(p.qb, workB); n != len(workB) {
		t.Errorf("b: PostSend took %d: %v", n, err)
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i := range n {
		p.a.ok(recvA[i])
		p.b.ok(recvB[i])
	}
	for i := range workA {
		p.a.ok(workA[i].ID)
		p.b.ok(workB[i].ID)
	}
	for i := range n {
		expectBytes(t, "SEND to a", intoA.bytes()[i*size:(i+1)*size], fromB.bytes())
		expectBytes(t, "SEND to b", intoB.bytes()[i*size:(i+1)*size], fromA.bytes())
	}
	expectBytes(t, "READ by a", sinkA.bytes(), remoteB.bytes())
	expectBytes(t, "READ by b", sinkB.bytes(), remoteA.bytes())
}

// checkDispatcher: request and reply over SENDs, with one-sided READs between
// them, as in a client and a server.
func checkDispatcher(t *testing.T, cfg *Config) {
	const goroutines, rounds, slots, size = 16, 60, 64, 64
	qc := rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: 256, MaxRecvWR: slots}}
	var recvA, recvB *region
	p := newPair(t, cfg, pairOptions{a: qc, b: qc, beforeConnect: func(p *pair) {
		recvA, recvB = p.a.region(slots*size, rdma.AccessLocalWrite), p.b.region(slots*size, rdma.AccessLocalWrite)
		for i := range slots {
			for _, x := range []struct {
				qp rdma.QP
				r  *region
			}{{p.qa, recvA}, {p.qb, recvB}} {
				if n, err := x.qp.PostRecv([]rdma.RecvWR{{ID: wait.RecvID(uint64(i)), SGL: []rdma.SGE{x.r.sge(i*size, size)}}}); n != 1 {
					t.Fatalf("PostRecv: %v", err)
				}
			}
		}
	}})
	src := p.b.region(4096, rdma.AccessRemoteRead)
	fill(src.bytes(), 6)
	client := wait.NewDispatcher(p.a.cq, wait.Options{})
	server := wait.NewDispatcher(p.b.cq, wait.Options{Eager: true})
	// The server echoes each message; the reply leaves from the receive buffer,
	// which goes back to the queue when the SEND has completed.
	server.OnRecv(func(wc rdma.WC) {
		if wc.Status != rdma.StatusSuccess {
			return
		}
		slot := int(wait.RecvNumber(wc.ID))
		recv := rdma.RecvWR{ID: wc.ID, SGL: []rdma.SGE{recvB.sge(slot*size, size)}}
		op := server.NewOp()
		op.OnDetached(func(wc rdma.WC) {
			if wc.Status == rdma.StatusSuccess {
				_, _ = p.qb.PostRecv([]rdma.RecvWR{recv})
			}
		})
		wr := send(recvB, slot*size, int(wc.ByteLen))
		wr.ID = op.ID()
		if n, err := p.qb.PostSend([]rdma.SendWR{wr}); n != 1 {
			t.Errorf("server: PostSend: %v", err)
			server.Release(op)
			return
		}
		server.Detach(op)
	})
	client.OnRecv(func(wc rdma.WC) {
		if wc.Status != rdma.StatusSuccess {
			return
		}
		slot := int(wait.RecvNumber(wc.ID))
		id := binary.LittleEndian.Uint64(recvA.bytes()[slot*size:])
		_, _ = p.qa.PostRecv([]rdma.RecvWR{{ID: wc.ID, SGL: []rdma.SGE{recvA.sge(slot*size, size)}}})
		if !client.Complete(id, wc) {
			t.Errorf("client: a reply to %#x, which nobody waits for", id)
		}
	})
	server.Start()
	client.Start()
	out, sink := p.a.region(goroutines*size, rdma.AccessLocalWrite), p.a.region(goroutines*size, rw(p.a))
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range rounds {
				reply, sent, got := client.NewReply(), client.NewOp(), client.NewOp()
				binary.LittleEndian.PutUint64(out.bytes()[g*size:], reply.ID())
				first, second := send(out, g*size, 16), read(sink, g*size, src.remote(g*size), size)
				first.ID, second.ID = sent.ID(), got.ID()
				if n, err := p.qa.PostSend([]rdma.SendWR{first, second}); n != 2 {
					t.Errorf("client: PostSend %d: %v", n, err)
					return
				}
				if err := client.WaitAll(ctx, []*wait.Op{got, sent, reply}); err != nil {
					t.Errorf("client: %v", err)
					return
				}
			}
			expectBytes(t, "READ", sink.bytes()[g*size:(g+1)*size], src.bytes()[g*size:(g+1)*size])
		})
	}
	wg.Wait()
	for _, x := range []struct {
		e  *end
		qp rdma.QP
		d  *wait.Dispatcher
	}{{p.a, p.qa, client}, {p.b, p.qb, server}} {
		x.e.check("QP.Close", x.qp.Close())
		x.e.check("Dispatcher.Close", x.d.Close())
		if s := x.d.Stats(); s.Strays != 0 || s.InUse != 0 {
			t.Errorf("%s: dispatcher %+v", x.e.name, s)
		}
	}
}

// checkDispatcherGivesUp: waits end with their contexts at every moment; each
// buffer leaves quarantine exactly once, and only after its completion.
func checkDispatcherGivesUp(t *testing.T, cfg *Config) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const n, size = 200, 64 << 10
	p := newPair(t, cfg, pairOptions{a: rdma.QPConfig{Cap: rdma.QPCap{MaxSendWR: n}}})
	d := wait.NewDispatcher(p.a.cq, wait.Options{Grace: 100 * time.Microsecond})
	d.Start()
	src := p.b.region(size, rdma.AccessRemoteRead)
	fill(src.bytes(), 8)
	var freed, waited, gaveUp atomic.Int64
	for range n {
		block, err := mem.Alloc(size, mem.Options{Kind: cfg.Memory, Shared: cfg.Shared, Tag: "rdmatest"})
		p.a.check("Alloc", err)
		mr, err := p.a.pd.RegMR(block.Bytes(), rw(p.a))
		p.a.check("RegMR", err)
		release := func(rdma.WC) {
			// With Mmap a byte that arrives after this is fatal.
			if err := errors.Join(mr.Close(), block.Free()); err != nil {
				t.Errorf("releasing a sink: %v", err)
			}
		}
		op := d.NewOp()
		op.OnDetached(func(wc rdma.WC) {
			freed.Add(1)
			release(wc)
		})
		wr := rdma.SendWR{ID: op.ID(), Op: rdma.OpRDMARead, Flags: rdma.SendSignaled, Remote: src.remote(0), SGL: []rdma.SGE{{MR: mr, Len: size}}}
		if took, err := p.qa.PostSend([]rdma.SendWR{wr}); took != 1 {
			t.Fatalf("PostSend: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(300))*time.Microsecond)
		wc, err := d.Wait(ctx, op)
		cancel()
		if err != nil {
			gaveUp.Add(1)
			continue
		}
		waited.Add(1)
		if wc.Status != rdma.StatusSuccess {
			t.Errorf("READ: %v", wc.Status)
		} else {
			expectBytes(t, "READ", block.Bytes(), src.bytes())
		}
		release(wc)
	}
	// No goroutine waits any more: the background poller brings the rest.
	eventually(t, "all quarantined buffers are free", func() bool { return freed.Load() == gaveUp.Load() })
	p.a.check("QP.Close", p.qa.Close())
	p.a.check("Dispatcher.Close", d.Close())
	t.Logf("waited %d, gave up %d", waited.Load(), gaveUp.Load())
}
