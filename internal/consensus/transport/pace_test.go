package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma/sim"
)

// inVirtualTime plays a test with two nodes on a simulated network, in a bubble of testing/synctest.
func inVirtualTime(t *testing.T, play func(t *testing.T, a, b *site)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Options{Seed: 1})
		addr := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}
		sites := map[string]*site{}
		for name, at := range addr {
			s := &site{box: newBox(), name: name, done: make(chan struct{})}
			s.dev = must(must(n.Host(name, at)).Open(t.Context(), ""))
			s.ln = must(s.dev.Listen(t.Context(), at+":7000"))
			s.Transport = must(New(Config{
				Name: name, Secret: []byte("s"), Openings: first, Endpoint: s.box,
				Routes: func(node string) []Route { return []Route{{s.dev, addr[node] + ":7000"}} },
			}))
			var ctx context.Context
			ctx, s.stop = context.WithCancel(context.Background())
			go func() {
				defer close(s.done)
				accept(ctx, s.ln, s.dev, s.Transport)
			}()
			sites[name] = s
		}
		play(t, sites["a"], sites["b"])
		for _, s := range sites {
			s.end(t)
		}
	})
}

// A steps reader gives some bytes at a time, each time behind a wait.
type steps []step

type step struct {
	wait  time.Duration
	bytes int
}

func (s *steps) Read(b []byte) (int, error) {
	for len(*s) > 0 && (*s)[0].bytes == 0 {
		time.Sleep((*s)[0].wait)
		*s = (*s)[1:]
	}
	if len(*s) == 0 {
		return 0, io.EOF
	}
	now := &(*s)[0]
	time.Sleep(now.wait)
	n := min(len(b), now.bytes)
	now.wait, now.bytes = 0, now.bytes-n
	clear(b[:n])
	return n, nil
}

// each repeats a step.
func each(n int, s step) (list steps) {
	for range n {
		list = append(list, s)
	}
	return list
}

// TestSlowSender: a snapshot that comes too slowly is given up, and both ends hear why; one that comes as slowly as may be arrives, and so does
// one whose sender rests for a while when it has sent enough.
func TestSlowSender(t *testing.T) {
	for _, c := range []struct {
		what        string
		data        steps
		slow        bool
		least, most time.Duration
	}{
		{"fast", steps{{0, 40 << 20}}, false, 0, 2 * time.Second},
		{"as slow as may be", each(200, step{time.Second, leastRate}), false, 199 * time.Second, 202 * time.Second},
		{"a rest at the beginning", steps{{9 * time.Second, 1 << 20}}, false, 9 * time.Second, 10 * time.Second},
		{"a long rest behind much", steps{{0, 8 << 20}, {25 * time.Second, 8 << 20}, {25 * time.Second, 8 << 20}}, false, 50 * time.Second, 53 * time.Second},
		{"a rest before the end", steps{{0, 1 << 20}, {11 * time.Second, 1}}, false, 11 * time.Second, 13 * time.Second},
		{"nothing", steps{{time.Minute, 1}}, true, paceFirst, paceFirst + 2*time.Second},
		{"a piece each nine seconds", each(20, step{9 * time.Second, pieceBytes}), true, paceFirst, 20 * time.Second},
		{"a piece each 29 seconds", each(20, step{29 * time.Second, pieceBytes}), true, paceFirst, paceFirst + 2*time.Second},
		{"half of what it may be", each(200, step{time.Second, leastRate / 2}), true, 15 * time.Second, 25 * time.Second},
		{"a longer rest than anybody has", steps{{0, 100 << 20}, {time.Minute, 1 << 20}}, true, 30 * time.Second, 33 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, a, b *site) {
				whole := 0
				for _, s := range c.data {
					whole += s.bytes
				}
				got := make(chan error, 1)
				var took time.Duration
				b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
					began := time.Now()
					n, err := io.Copy(io.Discard, r)
					took = time.Since(began)
					if err == nil && int(n) != whole {
						t.Errorf("%d bytes have come, of %d", n, whole)
					}
					got <- err
					return err
				}
				err := a.Snapshot(t.Context(), "b", snapHead, &c.data)
				if at := <-got; (at != nil) != c.slow || c.slow && !errors.Is(at, consensus.ErrSlow) {
					t.Errorf("its receiver: %v", at)
				}
				if (err != nil) != c.slow {
					t.Errorf("its sender: %v", err)
				}
				if took < c.least || took > c.most {
					t.Errorf("it took %v, and %v to %v are meant", took, c.least, c.most)
				}
			})
		})
	}
}

// TestSlowSenderHears: a sender that does not hang hears why its snapshot was given up: here pieces come often, with next to nothing in them.
func TestSlowSenderHears(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, a, b *site) {
		b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		e, _, err := a.dial(t.Context(), outKey{"b", wire.LaneState})
		if err != nil {
			t.Fatal(err)
		}
		defer e.close()
		o := offer{pieces: pieces, head: snapHead}
		o.remote.Addr, o.remote.RKey = e.mr.Addr()+uint64(e.restOff()), e.mr.RKey()
		err = e.say(t.Context(), message{kind: kindOffer, value: pieceBytes, body: o.append(nil)})
		began := time.Now()
		for err == nil {
			time.Sleep(500 * time.Millisecond)
			if err = e.say(t.Context(), message{kind: kindPiece, value: 1}); err != nil {
				break
			}
			m, slot, herr := e.hear(t.Context())
			if herr == nil && m.kind == kindEnd {
				if !errors.Is(outcomes[m.value], consensus.ErrSlow) {
					t.Errorf("the end is %v (%s)", outcomes[m.value], m.body)
				}
				break
			}
			if err = herr; err == nil {
				err = e.recv(slot)
			}
		}
		if err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < paceFirst-2*time.Second || took > paceFirst+2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestSlowReceiver: what the receiver does meanwhile is not held against the sender, nor that it was stopped while it waited.
func TestSlowReceiver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, a, b *site) {
		b.box.receive = func(_ context.Context, _ consensus.SnapshotHead, r io.Reader) error {
			for range 6 {
				time.Sleep(25 * time.Second)
				if _, err := io.CopyN(io.Discard, r, pieceBytes); err != nil {
					return err
				}
			}
			return nil
		}
		if err := a.Snapshot(t.Context(), "b", snapHead, bytes.NewReader(make([]byte, 6*pieceBytes))); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, calls := pace{paceFirst}, 0
		err := p.wait(t.Context(), func(ctx context.Context) error {
			if calls++; calls < 4 {
				time.Sleep(20 * time.Second)
				return ctx.Err()
			}
			return nil
		})
		if err != nil || calls != 4 || p.left != paceFirst-3*paceStep {
			t.Errorf("behind three stops %v of %v are left: %v", p.left, paceFirst, err)
		}
	})
}

// TestSenderIsGone: a snapshot that nobody reads, because it waits for a place, ends when its sender gives it up.
func TestSenderIsGone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, a, b *site) {
		ended := make(chan time.Time, 1)
		b.box.receive = func(ctx context.Context, _ consensus.SnapshotHead, _ io.Reader) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			ended <- time.Now()
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := a.Snapshot(ctx, "b", snapHead, bytes.NewReader(make([]byte, 1<<20))); err == nil {
			t.Error("it ends well")
		}
		gone := time.Now()
		if late := (<-ended).Sub(gone); late > time.Second {
			t.Errorf("its receiver hears of it after %v", late)
		}
	})
}
