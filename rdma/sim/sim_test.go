package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// A READ is loaded piece by piece while its owner writes: what arrives is a
// mixture, in any order, of whole words.
func TestReadsAreTorn(t *testing.T) {
	mixed, backwards := 0, 0
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Delay: time.Millisecond, Late: 1, LateMost: time.Second, Torn: 1})
			src, sink := b.reg(512), a.reg(512)
			set(src, 0)
			a.read(1, sink, src, 512)
			for v := uint64(1); a.poll(0) == nil && v < 100_000; v++ {
				set(src, v*0x100000001)
				time.Sleep(100 * time.Microsecond)
			}
			got := words(sink.Bytes())
			for i, w := range got {
				if w>>32 != w&(1<<32-1) {
					t.Fatalf("seed %d: word %d is torn: %#x", seed, i, w)
				}
			}
			if slices.Min(got) != slices.Max(got) {
				mixed++
			}
			if !slices.IsSorted(got) {
				backwards++
			}
		})
	}
	t.Logf("%d of 60 READs mixed, %d of them out of order", mixed, backwards)
	if mixed < 30 || backwards < 15 {
		t.Errorf("only %d of 60 READs are mixtures, %d out of order", mixed, backwards)
	}
}

// Loads that were put off by steps happen at steps, between two stores at one
// instant of time.
func TestSteps(t *testing.T) {
	mixed := 0
	for seed := range uint64(60) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Torn: 1})
			src, sink := b.reg(128), a.reg(128)
			set(src, 0)
			a.read(1, sink, src, 128)
			began := time.Now()
			for v := uint64(1); v < 40; v++ {
				set(src, v)
				net.Step()
			}
			if time.Since(began) != 0 {
				t.Error("steps took time")
			}
			a.want(1, rdma.StatusSuccess)
			if got := words(sink.Bytes()); slices.Min(got) != slices.Max(got) {
				mixed++
			}
		})
	}
	if mixed < 15 {
		t.Errorf("only %d of 60 READs met a step", mixed)
	}
}

// A paused program says nothing and hears nothing; its memory is read as it was.
func TestPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{})
		a, b := joined(t, net)
		defer b.close()
		defer a.close()
		src, sink, into, back := b.reg(64), a.reg(64), b.reg(64), a.reg(64)
		set(src, 1)
		recv := func(s *station, mr rdma.MR, id uint64) {
			if n, err := s.qp.PostRecv([]rdma.RecvWR{{ID: id, SGL: []rdma.SGE{{MR: mr, Len: 64}}}}); n != 1 {
				t.Fatal(err)
			}
		}
		recv(b, into, 10)
		recv(a, back, 20)
		b.host.Pause()
		set(src, 2) // no peer sees what the program does now
		a.read(1, sink, src, 64)
		a.want(1, rdma.StatusSuccess)
		if got := words(sink.Bytes()); got[0] != 1 {
			t.Errorf("READ of a paused host: %d", got[0])
		}
		a.send(2, "question")
		a.want(2, rdma.StatusSuccess) // the adapter has it
		b.send(11, "answer")
		if wc := b.poll(time.Second); wc != nil {
			t.Errorf("a paused program polled %+v", wc)
		}
		if wc := a.poll(time.Second); wc != nil {
			t.Errorf("a paused program said something: %+v", wc)
		}
		time.Sleep(10 * time.Second)
		b.host.Resume()
		b.want(10, rdma.StatusSuccess)
		a.want(20, rdma.StatusSuccess)
		b.want(11, rdma.StatusSuccess)
		a.read(3, sink, src, 64)
		a.want(3, rdma.StatusSuccess)
		if got := words(sink.Bytes()); got[0] != 2 {
			t.Errorf("READ after the pause: %d", got[0])
		}
	})
}

// The memory of a killed program is read for a while; then nothing answers.
// Messages sent to it never reach the next one.
func TestKill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{Adversity: Adversity{ReuseKeys: true}})
		a, b := joined(t, net)
		src, sink := b.reg(64), a.reg(64)
		set(src, 1)
		old := *b
		b.host.Kill(3 * time.Second)
		if old.qp.State() != rdma.QPError || !errors.Is(old.qp.Err(), rdma.ErrPeerGone) {
			t.Errorf("the dead program's queue pair: %v", old.qp.Err())
		}
		set(src, 9)
		old.ok(src.Close())
		old.close()
		b.open() // the next life, on the same address, with the same keys
		fresh := b.reg(64)
		set(fresh, 2)
		if fresh.RKey() != src.RKey() || fresh.Addr() != src.Addr() {
			t.Errorf("the next life has key %#x at %#x, the last one had %#x at %#x", fresh.RKey(), fresh.Addr(), src.RKey(), src.Addr())
		}
		a.send(1, "to nobody")
		a.want(1, rdma.StatusSuccess)
		a.read(2, sink, src, 64)
		a.want(2, rdma.StatusSuccess)
		if got := words(sink.Bytes()); got[0] != 1 {
			t.Errorf("READ of a dead program: %d", got[0])
		}
		time.Sleep(3 * time.Second)
		a.read(3, sink, src, 64)
		a.want(3, rdma.StatusRetryExcErr)
		if err := a.qp.Err(); !errors.Is(err, rdma.ErrPeerGone) {
			t.Errorf("the survivor: %v", err)
		}
		a.close()
		a.newQP()
		if err := join(a, b); err != nil {
			t.Fatal(err)
		}
		// The old key, on a new connection, leads to other memory: that is what
		// incarnations are for.
		a.read(4, sink, src, 64)
		a.want(4, rdma.StatusSuccess)
		if got := words(sink.Bytes()); got[0] != 2 {
			t.Errorf("READ through a key of the last life: %d", got[0])
		}
		if wc := b.poll(time.Second); wc != nil {
			t.Errorf("the new program got %+v", wc)
		}
		a.close()
		b.close()
	})
}

// Deregistered memory is not read any more, also by a READ under way; its key
// may lead to other memory at once.
func TestDeregisterUnderRead(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(80) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Delay: time.Millisecond, Late: 1, LateMost: time.Second, Torn: 1, ReuseKeys: true})
			src, sink := b.reg(256), a.reg(256)
			set(src, 1)
			a.read(1, sink, src, 256)
			time.Sleep(50 * time.Millisecond)
			b.ok(src.Close())
			set(src, 2) // not registered: whoever reads it is wrong
			if seed%2 == 0 {
				set(b.reg(256), 3)
			}
			wc := a.poll(time.Minute)
			got := words(sink.Bytes())
			switch {
			case slices.Contains(got, 2):
				t.Errorf("seed %d: memory was read after its MR was closed", seed)
			case wc == nil:
				t.Errorf("seed %d: no completion", seed)
			case wc.Status == rdma.StatusRemAccessErr:
				seen["refused"]++
			case wc.Status == rdma.StatusSuccess && slices.Contains(got, 3):
				seen["other memory"]++
			case wc.Status == rdma.StatusSuccess:
				seen["in time"]++
			default:
				t.Errorf("seed %d: %v", seed, wc.Status)
			}
		})
	}
	if t.Logf("%v", seen); seen["refused"] == 0 || seen["other memory"] == 0 {
		t.Errorf("not every outcome was seen: %v", seen)
	}
}

// A READ whose waiter has given up still comes, and its sink does not belong to
// the program before that.
func TestLateCompletion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{Seed: 3})
		a, b := joined(t, net)
		defer b.close()
		net.SetAdversity(Adversity{Late: 1, LateMost: 4 * time.Second})
		src, sink := b.reg(64), a.reg(64)
		set(src, 7)
		d := wait.NewDispatcher(a.cq, wait.Options{})
		d.Start()
		op := d.NewOp()
		came := make(chan rdma.WC, 1)
		op.OnDetached(func(wc rdma.WC) { came <- wc })
		a.read(op.ID(), sink, src, 64)
		ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
		defer cancel()
		if _, err := d.Wait(ctx, op); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait: %v", err)
		}
		set(src, 8)
		if wc := <-came; wc.Status != rdma.StatusSuccess || words(sink.Bytes())[0] != 8 {
			t.Errorf("late completion %+v with %d", wc, words(sink.Bytes())[0])
		}
		a.close()
		a.ok(d.Close())
	})
}

// Connections end in every way that the verbs know, and the first error is the
// cause.
func TestLosses(t *testing.T) {
	seen := map[rdma.Status]int{}
	unacknowledged := 0
	for seed := range uint64(200) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Delay: time.Millisecond, Lose: 0.3})
			src, sink, into := b.reg(64), a.reg(64), b.reg(64)
			for i := range uint64(20) {
				if n, err := b.qp.PostRecv([]rdma.RecvWR{{ID: 100 + i, SGL: []rdma.SGE{{MR: into, Len: 64}}}}); n != 1 {
					t.Fatal(err)
				}
			}
			for i := range uint64(10) {
				if i%2 == 0 {
					a.send(i, "hello")
				} else {
					a.read(i, sink, src, 64)
				}
			}
			var cause rdma.Status
			acked := 0
			for i := range uint64(10) {
				wc := a.poll(time.Minute)
				switch {
				case wc == nil || wc.ID != i:
					t.Fatalf("seed %d: completion %+v, want %d", seed, wc, i)
				case cause == 0 && wc.Status != 0:
					cause = wc.Status
					seen[cause]++
				case cause != 0 && wc.Status != rdma.StatusWRFlushErr:
					t.Errorf("seed %d: %v behind %v", seed, wc.Status, cause)
				case wc.Status == 0 && i%2 == 0:
					acked++
				}
			}
			got := 0
			for wc := b.poll(10 * time.Second); wc != nil && wc.Status == 0; wc = b.poll(time.Second) {
				got++
			}
			if got < acked {
				t.Errorf("seed %d: %d SENDs acknowledged, %d delivered", seed, acked, got)
			}
			if got > acked {
				unacknowledged++
			}
		})
	}
	t.Logf("%v; %d connections ended behind a SEND that was delivered", seen, unacknowledged)
	for _, s := range []rdma.Status{rdma.StatusRetryExcErr, rdma.StatusRNRRetryExcErr, rdma.StatusRemAccessErr, rdma.StatusRemOpErr, rdma.StatusWRFlushErr} {
		if seen[s] == 0 {
			t.Errorf("no connection died of %v", s)
		}
	}
	if unacknowledged == 0 {
		t.Error("no reply was ever lost")
	}
}

// A SEND that is lost, by the seed or by a cut, has none behind it delivered: a connection is
// in order, or it is over.
func TestNoGaps(t *testing.T) {
	for seed := range uint64(100) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed})
			a, b := joined(t, net)
			defer b.close()
			defer a.close()
			net.SetAdversity(Adversity{Delay: time.Millisecond, Lose: 0.05 * float64(seed%2)})
			into := b.reg(64)
			for i := range uint64(40) {
				if n, err := b.qp.PostRecv([]rdma.RecvWR{{ID: i, SGL: []rdma.SGE{{MR: into, Off: i, Len: 1}}}}); n != 1 {
					t.Fatal(err)
				}
			}
			for i := range uint64(40) {
				a.send(i, string([]byte{byte(i + 1)}))
				if i%10 == seed%10 {
					net.Cut("a", "b", i%20 == seed%10) // for a while
				}
				time.Sleep(time.Millisecond)
			}
			net.Cut("a", "b", false)
			time.Sleep(time.Minute)
			for i, v := range into.Bytes()[:40] { // each SEND in the receive of its turn
				if v != 0 && v != byte(i+1) {
					t.Fatalf("seed %d: receive %d has SEND %d", seed, i, v-1)
				}
			}
		})
	}
}

// Set-ups are lost, doubled and late: every dial ends, and a doubled request
// makes no second connection.
func TestSetups(t *testing.T) {
	connected, failed := 0, 0
	for seed := range uint64(200) {
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed, Adversity: Adversity{Delay: time.Millisecond, Setup: 0.5}})
			a, b := newStation(t, net, "a", "10.0.0.1"), newStation(t, net, "b", "10.0.0.2")
			began := time.Now()
			if err := join(a, b); err == nil {
				connected++
			} else {
				failed++
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("seed %d: the set-up took %v", seed, took)
			}
			a.close()
			b.close()
		})
	}
	if t.Logf("%d connected, %d failed", connected, failed); connected < 50 || failed < 20 {
		t.Errorf("%d connected, %d failed", connected, failed)
	}
}

// TestCutWay: what one host sends does not come to the other. What that one sends comes, unacknowledged: connections end at both, and none begins.
func TestCutWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{})
		a, b := joined(t, net)
		again := func() {
			a.close()
			b.close()
			a.newQP()
			b.newQP()
		}
		for _, way := range [][2]*station{{a, b}, {b, a}} {
			src, sink := way[1].reg(64), way[0].reg(64)
			land := way[0].reg(64)
			_, err := way[0].qp.PostRecv([]rdma.RecvWR{{ID: 3, SGL: []rdma.SGE{{MR: land, Len: 64}}}})
			way[0].ok(err)
			net.CutWay(way[0].host.name, way[1].host.name, true)
			way[0].read(1, sink, src, 64)
			way[1].send(2, "heard")
			if wc := way[0].poll(time.Second); wc == nil || wc.ID != 3 || wc.Status != rdma.StatusSuccess {
				t.Errorf("what is not cut: %+v", wc)
			}
			way[0].want(1, rdma.StatusRetryExcErr)
			way[1].want(2, rdma.StatusRetryExcErr)
			again()
			if err := join(a, b); err == nil {
				t.Error("a connection through a way that is cut")
			}
			net.CutWay(way[0].host.name, way[1].host.name, false)
			again()
			if err := join(a, b); err != nil {
				t.Error(err)
			}
		}
		a.close()
		b.close()
	})
}

// TestCutConnectionsTo: connections to one host end, of a life whose memory lingers too, and no others.
func TestCutConnectionsTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{})
		a, b := joined(t, net)
		c := newStation(t, net, "c", "10.0.0.3")
		src, sink := b.reg(64), a.reg(64)
		b.host.Kill(time.Minute)
		a.host.CutConnectionsTo(c.host)
		a.read(1, sink, src, 64)
		a.want(1, rdma.StatusSuccess)
		a.host.CutConnectionsTo(b.host)
		if a.qp.State() != rdma.QPError {
			t.Errorf("the connection is %v", a.qp.State())
		}
		a.close()
	})
}

func TestDeviceRemovalAndCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := New(Options{})
		a, b := joined(t, net)
		src, sink := b.reg(64), a.reg(64)
		net.Cut("a", "b", true)
		a.read(1, sink, src, 64)
		if wc := a.poll(3 * time.Second); wc != nil {
			t.Errorf("a READ through a cut: %+v", wc)
		}
		a.want(1, rdma.StatusRetryExcErr)
		net.Cut("a", "b", false)
		a.close()
		b.close()
		a.newQP()
		b.newQP()
		if err := join(a, b); err != nil {
			t.Fatal(err)
		}
		a.host.RemoveDevice()
		if !errors.Is(a.qp.Err(), rdma.ErrPeerGone) || a.qp.State() != rdma.QPError {
			t.Errorf("device removed: %v", a.qp.Err())
		}
		if b.qp.State() != rdma.QPRTS {
			t.Error("the peer was told")
		}
		a.close()
		b.close()
	})
}

// The same seed is the same schedule, if the program does the same.
func TestSameSeedSameSchedule(t *testing.T) {
	play := func(seed uint64) string {
		var log strings.Builder
		bubble(t, func(t *testing.T) {
			net := New(Options{Seed: seed, Adversity: Storm(), Log: func(line string) { fmt.Fprintln(&log, line) }})
			a, b := newStation(t, net, "a", "10.0.0.1"), newStation(t, net, "b", "10.0.0.2")
			if join(a, b) == nil {
				src, sink := b.reg(256), a.reg(256)
				for i := range uint64(50) {
					a.read(i, sink, src, 256)
					wc := a.poll(20 * time.Second)
					fmt.Fprintln(&log, time.Now().UnixNano(), wc.Status)
				}
			}
			a.close()
			b.close()
		})
		return log.String()
	}
	for seed := range uint64(20) {
		if one, two := play(seed), play(seed); one != two {
			t.Fatalf("seed %d: two schedules:\n%s\n%s", seed, one, two)
		}
	}
	if play(1) == play(2) {
		t.Error("two seeds, one schedule")
	}
}
