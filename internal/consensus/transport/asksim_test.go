package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// simPair runs f with nodes a and b over a network in virtual time; both answer by answer.
func simPair(t *testing.T, seed uint64, adversity sim.Adversity, answer answerer, f func(t *testing.T, n *sim.Network, all map[string]*Transport)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Options{Seed: seed, Adversity: adversity})
		addr := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}
		all := map[string]*Transport{}
		var closing []func()
		for _, name := range []string{"a", "b"} {
			h := must(n.Host(name, addr[name]))
			dev := must(h.Open(context.Background(), ""))
			ln := must(dev.Listen(context.Background(), addr[name]+":7000"))
			tr := must(New(Config{
				Name: name, Secret: []byte("s"), Openings: first, Endpoint: newBox(), Stall: time.Second, Answer: answer,
				Routes: func(node string) []Route { return []Route{{dev, addr[node] + ":7000"}} },
			}))
			all[name] = tr
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				accept(ctx, ln, dev, tr)
			}()
			closing = append(closing, func() {
				stop()
				<-done
				ln.Close()
				if err := errors.Join(tr.Close(), dev.Close()); err != nil {
					t.Errorf("%s: close: %v", name, err)
				}
			})
		}
		f(t, n, all)
		for _, c := range closing {
			c()
		}
	})
}

// asked is question n of a node: its number and bytes that follow from it. The answer has as many bytes, and others.
func asked(node string, n uint64, size int, by byte) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(node), n)
	for i := range size {
		b = append(b, byte(n)+byte(i)*by)
	}
	return b
}

// TestAskAdversity asks over a network that delays, loses, tears and ends connections: each question ends by its deadline, with its own answer or an
// error that is told; none is handled twice; and when the network is well again, all are answered.
func TestAskAdversity(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { askAdversity(t, seed) })
	}
}

func askAdversity(t *testing.T, seed uint64) {
	storm := sim.Storm()
	storm.Lose = 0.003
	rng := rand.New(rand.NewPCG(seed, 5))
	var mu sync.Mutex
	handled := map[string]int{}
	answer := func(ctx context.Context, node string, question []byte) ([]byte, error) {
		if len(question) < 9 || string(question[:1]) != node {
			return nil, fmt.Errorf("%d bytes of node %s", len(question), node)
		}
		n := binary.LittleEndian.Uint64(question[1:])
		if !bytes.Equal(question, asked(node, n, len(question)-9, 3)) {
			return nil, fmt.Errorf("question %d is not as it was asked", n)
		}
		mu.Lock()
		handled[string(question[:9])]++
		mu.Unlock()
		select {
		case <-time.After(time.Duration(n%50) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return asked(node, n, len(question)-9, 5), nil
	}
	simPair(t, seed, storm, answer, func(t *testing.T, n *sim.Network, all map[string]*Transport) {
		good, lost, late, unreached, well := 0, 0, 0, 0, false
		seq := uint64(0)
		ask := func(wg *sync.WaitGroup, patience time.Duration) {
			for _, from := range []string{"a", "b"} {
				to := map[string]string{"a": "b", "b": "a"}[from]
				size := rng.IntN(200)
				if rng.IntN(10) == 0 {
					size = rng.IntN(MaxAsk - 9)
				}
				seq++
				number := seq
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					began := time.Now()
					got, err := all[from].Ask(ctx, to, asked(from, number, size, 3))
					if time.Since(began) > patience {
						t.Errorf("seed %d: question %d ends after %v", seed, number, time.Since(began))
					}
					_, isLost := errors.AsType[*LostError](err)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && bytes.Equal(got, asked(from, number, size, 5)):
						good++
					case err == nil:
						t.Errorf("seed %d: question %d of %d bytes has %d bytes that are not its answer", seed, number, size, len(got))
					case well:
						t.Errorf("seed %d: question %d over a network that is well: %v", seed, number, err)
					case isLost:
						lost++
					case errors.Is(err, context.DeadlineExceeded):
						late++
					case errors.Is(err, rdma.ErrPeerGone) || errors.Is(err, rdma.ErrDeadline) || errors.Is(err, errProtocol) || errors.Is(err, rdma.ErrRejected) && !errors.Is(err, ErrOlder) || errors.Is(err, consensus.ErrBusy):
						unreached++
					default:
						t.Errorf("seed %d: question %d ends with %v", seed, number, err)
					}
				})
			}
		}
		var wg sync.WaitGroup
		for range 100 {
			ask(&wg, time.Duration(1+rng.IntN(5000))*time.Millisecond)
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			if rng.IntN(40) == 0 {
				n.Cut("a", "b", true)
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				n.Cut("a", "b", false)
			}
		}
		wg.Wait()
		t.Logf("%d answers, %d lost, %d late, %d unreached", good, lost, late, unreached)
		n.SetAdversity(sim.Adversity{})
		time.Sleep(5 * time.Second) // what was lost is found out
		well = true
		for range 30 {
			ask(&wg, time.Minute)
		}
		wg.Wait()
		for key, n := range handled {
			if n > 1 {
				t.Errorf("seed %d: question %x is handled %d times", seed, key, n)
			}
		}
		time.Sleep(time.Second)
		for name, tr := range all {
			if p, q := tr.places(map[string]string{"a": "b", "b": "a"}[name]), tr.answering(); p != 0 || q != 0 {
				t.Errorf("seed %d: at %s %d questions are kept, %d are being answered", seed, name, p, q)
			}
		}
	})
}

// TestAskIdle: the way of questions is closed when nobody waits for an answer for AskIdle, at both ends, and opened again for the next question; one that
// waits for an answer keeps it open.
func TestAskIdle(t *testing.T) {
	answer := func(ctx context.Context, _ string, question []byte) ([]byte, error) {
		if string(question) == "slow" {
			select {
			case <-time.After(5 * AskIdle):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return question, nil
	}
	simPair(t, 1, sim.Adversity{}, answer, func(t *testing.T, _ *sim.Network, all map[string]*Transport) {
		a, b := all["a"], all["b"]
		ask := func(question string) {
			t.Helper()
			if got, err := a.Ask(t.Context(), "b", []byte(question)); err != nil || string(got) != question {
				t.Fatalf("%q, %v", got, err)
			}
		}
		open := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.ins)
		}
		ask("x")
		first := a.wayOf("b")
		for range 5 {
			time.Sleep(AskIdle / 2)
			ask("x")
		}
		ask("slow")
		if a.wayOf("b") != first || open() != 1 {
			t.Errorf("the way was closed while it was used: %d are open", open())
		}
		time.Sleep(AskIdle + 3*time.Second)
		if first.ctx.Err() == nil || open() != 0 {
			t.Errorf("an idle way stays open: %d are", open())
		}
		ask("x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Ask(ctx, "b", []byte("slow")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a question that is left: %v", err)
		}
		time.Sleep(AskIdle + 3*time.Second)
		if open() != 0 || a.places("b") != 0 || b.answering() != 0 {
			t.Errorf("a way on which nobody waits stays open, for %d questions", a.places("b"))
		}
	})
}
