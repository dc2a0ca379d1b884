package iwarp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// waitTurns waits until n are in line.
func waitTurns(t *testing.T, g *egress, p *pd, n int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		g.mu.Lock()
		got := len(p.turns)
		g.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d in line, want %d", got, n)
		}
	}
}

// TestTurnsGoAround: a domain with one that waits has its turn after one of
// each other domain, however many wait there.
func TestTurnsGoAround(t *testing.T) {
	g := &egress{free: 1}
	crowd, lone := new(pd), new(pd)
	g.take(crowd, nil)
	var mu sync.Mutex
	var order []*pd
	var wg sync.WaitGroup
	wait := func(p *pd, n int) {
		for i := range n {
			wg.Go(func() {
				g.take(p, nil)
				mu.Lock()
				order = append(order, p)
				mu.Unlock()
				g.give()
			})
			waitTurns(t, g, p, i+1)
		}
	}
	wait(crowd, 20)
	wait(lone, 2)
	g.give()
	wg.Wait()
	for i, p := range order {
		if want := i == 1 || i == 3; (p == lone) != want {
			t.Fatalf("turn %d is of the wrong domain", i)
		}
	}
	if g.free != 1 || len(g.ring) != 0 {
		t.Errorf("%d turns free, %d domains in line at the end", g.free, len(g.ring))
	}
}

// TestTurnsOfTheDead: a transmitter that dies in line is forgotten, and a turn
// that comes at the same moment is passed on: none is ever lost or made up.
func TestTurnsOfTheDead(t *testing.T) {
	const turns = 2
	g := &egress{free: turns}
	pds := []*pd{new(pd), new(pd), new(pd)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var mu sync.Mutex
	held, most := 0, 0
	for w := range 16 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for range 500 {
				dead := make(chan struct{})
				if rng.IntN(2) == 0 {
					go func() { runtime.Gosched(); close(dead) }()
				}
				if !g.take(pds[rng.IntN(len(pds))], dead) {
					continue
				}
				mu.Lock()
				held++
				most = max(most, held)
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				held--
				mu.Unlock()
				g.give()
			}
		})
	}
	wg.Wait()
	if most > turns || g.free != turns || len(g.ring) != 0 || len(pds[0].turns)+len(pds[1].turns)+len(pds[2].turns) != 0 {
		t.Errorf("%d turns at once, %d free at the end of %d; ring %d", most, g.free, turns, len(g.ring))
	}
}

// TestTurnsOnTheWire: with several domains on a device large READs of each come
// whole, and connections that end while they wait for a turn, or have one,
// delay no other.
func TestTurnsOnTheWire(t *testing.T) {
	const size, domains, rounds = 1 << 20, 3, 6
	rd, err := New(Options{}).Open(t.Context(), "")
	check(t, err)
	dev := rd.(*device)
	var wg, served sync.WaitGroup
	for i := range domains {
		d := newDomain(t, dev, &served)
		for j := range d.mr.Bytes() {
			d.mr.Bytes()[j] = byte(j*7 + i)
		}
		for k := range 3 {
			e := newFloodEnd(t, d.l.Addr().String())
			t.Cleanup(e.close)
			wg.Go(func() {
				if k == 2 { // gone in the middle of its READs
					wrs := make([]rdma.SendWR, 8)
					for i := range wrs {
						wrs[i] = rdma.SendWR{Op: rdma.OpRDMARead, SGL: []rdma.SGE{{MR: e.mr, Len: size}}, Remote: rdma.RemoteAddr{RKey: d.mr.RKey()}}
					}
					_, err := e.qp.PostSend(wrs)
					check(t, err)
					for range 100 * i {
						runtime.Gosched()
					}
					e.qp.Close()
					return
				}
				for range rounds {
					e.read(t, d.mr.RKey(), size, 4)
				}
				if !bytes.Equal(e.mr.Bytes(), d.mr.Bytes()) {
					t.Errorf("domain %d reads something else", i)
				}
				e.qp.Close()
			})
		}
	}
	wg.Wait()
	served.Wait() // every QP of the responder is closed
	g := dev.egress
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free != max(1, runtime.GOMAXPROCS(0)-1) || len(g.ring) != 0 {
		t.Errorf("%d turns free, %d domains in line", g.free, len(g.ring))
	}
}

// A domain is one that answers READs of its one region.
type domain struct {
	l  rdma.Listener
	mr rdma.MR
}

// newDomain makes a domain on a device; served counts its connections.
func newDomain(t *testing.T, dev *device, served *sync.WaitGroup) *domain {
	pd, err := dev.AllocPD()
	check(t, err)
	mr, err := pd.RegMR(make([]byte, 1<<20), rdma.AccessRemoteRead)
	check(t, err)
	l, err := dev.Listen(t.Context(), "127.0.0.1:0")
	check(t, err)
	served.Add(1)
	ctx := context.Background()
	t.Cleanup(func() {
		check(t, mr.Close())
		check(t, pd.Close())
	})
	stop := sync.OnceFunc(func() { l.Close(); served.Done() })
	t.Cleanup(stop)
	served.Go(func() {
		defer stop()
		for range 3 { // as many as will come
			req, err := l.Accept(ctx)
			if err != nil {
				return
			}
			cq, err := dev.CreateCQ(64)
			check(t, err)
			qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq, Access: rdma.AccessRemoteRead})
			check(t, err)
			// An error is one of those that leave early: its QP is done, too.
			_, _ = req.Accept(ctx, qp, rdma.ConnParams{})
			served.Go(func() {
				<-qp.Done()
				qp.Close()
				cq.Close()
			})
		}
	})
	return &domain{l, mr}
}
