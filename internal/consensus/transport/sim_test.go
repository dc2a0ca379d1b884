package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// A numbered box holds the frames that come to it to be numbered: each whole, and none behind
// a later one.
type numbered struct {
	mu     sync.Mutex
	last   [2]uint64 // of each lane
	n      int
	wrong  error
	states int
}

func frame(lane byte, n uint64, size int) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{lane}, n)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	for i := range size {
		b = append(b, byte(n)+byte(i))
	}
	return b
}

func (b *numbered) Deliver(_ string, p []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(p) > 0 {
		if len(p) < 13 || p[0] > 1 {
			b.wrong = fmt.Errorf("%d bytes, % x", len(p), p[:min(len(p), 13)])
			return nil
		}
		n, size := binary.LittleEndian.Uint64(p[1:]), int(binary.LittleEndian.Uint32(p[9:]))
		switch {
		case size > len(p)-13 || !bytes.Equal(p[:13+size], frame(p[0], n, size)):
			want, at := frame(p[0], n, size), 0
			for at < min(len(want), len(p)) && want[at] == p[at] {
				at++
			}
			b.wrong = fmt.Errorf("frame %d of %d bytes is not as it was sent: %d bytes have come, they differ from byte %d on", n, size, len(p), at)
			return nil
		case n <= b.last[p[0]]:
			b.wrong = fmt.Errorf("frame %d comes behind frame %d", n, b.last[p[0]])
		}
		b.last[p[0]] = n
		b.n++
		p = p[13+size:]
	}
	return nil
}

func (b *numbered) Receive(_ context.Context, _ string, h consensus.SnapshotHead, data io.Reader) error {
	all, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range all {
		if v != byte(i*7)+byte(h.Term) {
			b.wrong = fmt.Errorf("byte %d of a snapshot is not as it was sent", i)
			break
		}
	}
	if uint64(len(all)) != h.State.Applied {
		b.wrong = fmt.Errorf("%d bytes of a snapshot of %d", len(all), h.State.Applied)
	}
	b.states++
	return nil
}

var seeds = flag.Uint64("seeds", 4, "how many seeds TestAdversity plays")

// TestAdversity sends over a network that delays, loses, tears and ends connections: what
// arrives is whole and in its order, and when the network is well again everything arrives.
func TestAdversity(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			synctest.Test(t, func(t *testing.T) { adversity(t, seed) })
		})
	}
}

func adversity(t *testing.T, seed uint64) {
	storm := sim.Storm()
	storm.Lose = 0.003
	n := sim.New(sim.Options{Seed: seed, Adversity: storm})
	rng := rand.New(rand.NewPCG(seed, 3))
	boxes := map[string]*numbered{"a": {}, "b": {}}
	all := map[string]*Transport{}
	var closing []func()
	addr := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}
	for _, name := range []string{"a", "b"} {
		h := must(n.Host(name, addr[name]))
		dev := must(h.Open(context.Background(), ""))
		ln := must(dev.Listen(context.Background(), addr[name]+":7000"))
		tr := must(New(Config{
			Name: name, Secret: []byte("s"), Openings: first, Endpoint: boxes[name], Stall: time.Second,
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
			if err := tr.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := dev.Close(); err != nil {
				t.Errorf("close the device: %v", err)
			}
		})
	}
	seq := uint64(0)
	send := func() {
		seq++
		for _, name := range []string{"a", "b"} {
			to := map[string]string{"a": "b", "b": "a"}[name]
			size := rng.IntN(200)
			if rng.IntN(20) == 0 {
				size = rng.IntN(300 << 10)
			}
			all[name].Send(to, false, frame(0, seq, size))
			all[name].Send(to, true, frame(1, seq, 20))
		}
	}
	state := func() error {
		size, term := uint64(rng.IntN(1<<20)), rng.Uint64N(200)+1
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i*7) + byte(term)
		}
		h := consensus.SnapshotHead{Group: 1, From: 1, To: 2, Term: term, State: consensus.State{Applied: size, Term: 1}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return all["a"].Snapshot(ctx, "b", h, bytes.NewReader(data))
	}
	for range 400 {
		send()
		time.Sleep(time.Duration(rng.IntN(10)) * time.Millisecond)
		if rng.IntN(60) == 0 {
			n.Cut("a", "b", true)
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			n.Cut("a", "b", false)
		}
	}
	failed := 0
	for range 10 {
		if state() != nil {
			failed++
		}
	}
	n.SetAdversity(sim.Adversity{})
	for range 300 {
		send()
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second)
	for name, b := range boxes {
		b.mu.Lock()
		if b.wrong != nil {
			t.Errorf("seed %d: at %s: %v", seed, name, b.wrong)
		}
		if b.last != [2]uint64{seq, seq} {
			t.Errorf("seed %d: at %s frames up to %v have come, of %d", seed, name, b.last, seq)
		}
		t.Logf("%s: %d frames of %d, %d snapshots, %d failed", name, b.n, 2*seq, b.states, failed)
		b.mu.Unlock()
	}
	if err := state(); err != nil {
		t.Errorf("seed %d: a snapshot over a network that is well: %v", seed, err)
	}
	for _, f := range closing {
		f()
	}
}
