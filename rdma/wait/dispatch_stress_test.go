package wait

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// fakeNIC completes posted IDs on its own goroutines, in random order and
// batches, some of them as receives that carry a reply.
type fakeNIC struct {
	cq    *fakeCQ
	posts chan uint64
	wg    sync.WaitGroup
}

func newFakeNIC(cq *fakeCQ, seed uint64, workers int) *fakeNIC {
	n := &fakeNIC{cq: cq, posts: make(chan uint64, 256)}
	for w := range workers {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		n.wg.Go(func() { n.run(rng) })
	}
	return n
}

func (n *fakeNIC) run(rng *rand.Rand) {
	var held []rdma.WC
	for {
		var id uint64
		var more bool
		select {
		case id, more = <-n.posts:
		default:
			// The request that was posted last must complete by itself, so
			// nothing is held back while this goroutine sleeps.
			n.cq.add(held...)
			held = held[:0]
			id, more = <-n.posts
		}
		if !more {
			n.cq.add(held...)
			return
		}
		wc := rdma.WC{ID: id, ByteLen: uint32(id)}
		if id&idReply != 0 {
			wc.ID = RecvID(id)
		}
		held = append(held, wc)
		if rng.IntN(4) == 0 {
			runtime.Gosched()
		}
		if rng.IntN(3) == 0 {
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			n.cq.add(held...)
			held = held[:0]
		}
	}
}

func (n *fakeNIC) close() {
	close(n.posts)
	n.wg.Wait()
}

// ledger is the model: every op is posted once and ends exactly once, in Wait,
// in a cleanup or, not posted, in Release.
type ledger struct {
	posted, waited, cleaned, gaveUp atomic.Int64
}

// One seed is one schedule as far as the test can choose it: what each
// goroutine does, how long it waits, what the NIC holds back.
func stress(t *testing.T, seed uint64, opt Options, start bool, goroutines, rounds int) {
	cq := newFakeCQ(t)
	d := NewDispatcher(cq, opt)
	d.OnRecv(func(wc rdma.WC) {
		if !d.Complete(wc.ID&^idRecv, wc) {
			t.Errorf("seed %d: the reply %#x meets nobody", seed, wc.ID)
		}
	})
	if start {
		d.Start()
	}
	nic := newFakeNIC(cq, seed, 2)
	var l ledger
	var wg sync.WaitGroup
	for g := range goroutines {
		rng := rand.New(rand.NewPCG(seed, uint64(g)<<32))
		wg.Go(func() {
			for range rounds {
				l.round(t, d, nic, rng)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		wg.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(60 * time.Second): // a lost wake-up; normally a fraction of a second
		buf := make([]byte, 1<<20)
		t.Fatalf("seed %d: stuck; posted %d waited %d cleaned %d gave up %d\n%s", seed,
			l.posted.Load(), l.waited.Load(), l.cleaned.Load(), l.gaveUp.Load(), buf[:runtime.Stack(buf, true)])
	}
	nic.close()
	closeDispatcher(t, d)
	posted, waited, cleaned, gaveUp := l.posted.Load(), l.waited.Load(), l.cleaned.Load(), l.gaveUp.Load()
	if posted != waited+gaveUp || cleaned != gaveUp {
		t.Errorf("seed %d: posted %d, waited %d, gave up %d, cleaned %d", seed, posted, waited, gaveUp, cleaned)
	}
	if s := d.Stats(); s.Strays != 0 {
		t.Errorf("seed %d: %d strays", seed, s.Strays)
	}
}

// round does one thing with one to four ops.
func (l *ledger) round(t *testing.T, d *Dispatcher, nic *fakeNIC, rng *rand.Rand) {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	switch rng.IntN(6) {
	case 0: // may end before, during or after the wait
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(200))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(ctx)
	}
	defer cancel()
	ops := make([]*Op, 1+rng.IntN(4))
	ids := make([]uint64, len(ops))
	for i := range ops {
		if rng.IntN(3) == 0 {
			ops[i] = d.NewReply()
		} else {
			ops[i] = d.NewOp()
		}
		ids[i] = ops[i].ID()
		if rng.IntN(16) == 0 {
			d.Release(ops[i]) // "PostSend refused it"
			ops[i] = nil
			continue
		}
		ops[i].OnDetached(func(wc rdma.WC) {
			if got := wc.ID &^ idRecv; got != ids[i] {
				t.Errorf("cleanup of %#x got %#x", ids[i], got)
			}
			l.cleaned.Add(1)
		})
		l.posted.Add(1)
		nic.posts <- ids[i]
	}
	for i, op := range ops {
		switch {
		case op == nil:
		case rng.IntN(8) == 0:
			l.gaveUp.Add(1)
			d.Detach(op)
		default:
			wc, err := d.Wait(ctx, op)
			switch {
			case err == nil && wc.ID&^idRecv == ids[i]:
				l.waited.Add(1)
			case err != nil && errors.Is(err, ctx.Err()):
				l.gaveUp.Add(1)
			default:
				t.Errorf("op %#x: %+v, %v", ids[i], wc, err)
			}
		}
	}
}

func TestDispatcherStress(t *testing.T) {
	base := rand.Uint64()
	t.Logf("seeds %d and up", base)
	rounds := 2000
	if raceEnabled {
		rounds = 300
	}
	cases := []struct {
		name       string
		opt        Options
		start      bool
		goroutines int
	}{
		{"one goroutine", Options{}, false, 1},
		{"without poller", Options{}, false, 16},
		{"poller", Options{Grace: 50 * time.Microsecond}, true, 16},
		{"poller and few", Options{Grace: time.Microsecond, Batch: 1}, true, 2},
		{"eager", Options{Eager: true}, true, 16},
		{"spin", Options{Spin: 20 * time.Microsecond, Batch: 3}, true, 8},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stress(t, base+uint64(i), c.opt, c.start, c.goroutines, rounds)
		})
	}
}

// pingPong answers each ID at once, as a NIC of no latency would.
func pingPong(cq *fakeCQ) (posts chan uint64, stop func()) {
	posts = make(chan uint64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := range posts {
			cq.done(id)
		}
	})
	return posts, func() { close(posts); wg.Wait() }
}

// What the dispatcher itself costs: the completion is there already; another
// goroutine produces it (compare with the bare channel); many share the CQ.
func BenchmarkDispatcher(b *testing.B) {
	ctx := context.Background()
	b.Run("completion is there", func(b *testing.B) {
		cq := newFakeCQ(b)
		d := NewDispatcher(cq, Options{})
		b.ReportAllocs()
		for b.Loop() {
			op := d.NewOp()
			cq.done(op.ID())
			_, _ = d.Wait(ctx, op)
		}
		_ = d.Close()
	})
	b.Run("ping-pong/bare channel", func(b *testing.B) {
		ping, pong := make(chan uint64), make(chan struct{}, 1)
		go func() {
			for range ping {
				pong <- struct{}{}
			}
		}()
		for b.Loop() {
			ping <- 1
			<-pong
		}
		close(ping)
	})
	for _, poller := range []bool{false, true} {
		b.Run(fmt.Sprintf("ping-pong/poller=%v", poller), func(b *testing.B) {
			cq := newFakeCQ(b)
			d := NewDispatcher(cq, Options{})
			if poller {
				d.Start()
			}
			posts, stop := pingPong(cq)
			b.ReportAllocs()
			for b.Loop() {
				op := d.NewOp()
				posts <- op.ID()
				_, _ = d.Wait(ctx, op)
			}
			stop()
			_ = d.Close()
		})
	}
	for _, goroutines := range []int{8, 64, 1024} {
		b.Run(fmt.Sprintf("shared/%d", goroutines), func(b *testing.B) {
			cq := newFakeCQ(b)
			d := NewDispatcher(cq, Options{})
			posts, stop := pingPong(cq)
			b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					op := d.NewOp()
					posts <- op.ID()
					_, _ = d.Wait(ctx, op)
				}
			})
			stop()
			_ = d.Close()
		})
	}
}
