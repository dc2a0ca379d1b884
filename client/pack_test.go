package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// packServer is a fake server that takes packs, and a configuration with n slots.
func packServer(n int) (*clienttest.Server, func(c *client.Config)) {
	f := clienttest.NewServer(77)
	f.Packs = true
	f.Welcome = func(w *wire.Welcome) { w.Lease = time.Minute }
	return f, func(cfg *client.Config) { cfg.Timeout, cfg.MaxInflight = 5*time.Second, max(n, 8) }
}

// TestPacks: puts that were begun together travel in packs, are answered in packs, and leave all
// slots, credits and receives as they were, round after round.
func TestPacks(t *testing.T) {
	const rounds, window = 200, 8
	f, change := packServer(window)
	c := dialFake(t, f, nil, change)
	for range rounds {
		var pending []*client.Pending
		for i := range window {
			p, err := c.PutAsync(t.Context(), fmt.Appendf(nil, "key-%d", i), []byte("value"))
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		for _, p := range pending {
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := f.PacksIn.Load(); n == 0 {
		t.Error("no pack was sent")
	}
	clienttest.Eventually(t, "everything is free again", func() bool {
		u := rt(c).Only().Current().Usage()
		return u.SlotsFree == window && u.CreditsFree == 8
	})
	if n := f.Dials.Load(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// TestPackRefusals: what becomes of one request of a pack is nothing to the others.
func TestPackRefusals(t *testing.T) {
	f, change := packServer(8)
	f.OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		m, err := wire.ParsePut(wire.Body(msg))
		if err != nil || string(m.Value) != "refuse" {
			return nil, false
		}
		out := wire.AppendError(nil, h.Type, h.ID, wire.StatusDenied, "not you")
		wire.SetCredits(out, 1)
		return out, true
	}
	c := dialFake(t, f, nil, change)
	for range 50 {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				value, want := "take", error(nil)
				if i%3 == 0 {
					value, want = "refuse", client.ErrDenied
				}
				if err := c.Put(t.Context(), fmt.Appendf(nil, "key-%d", i), []byte(value)); !errors.Is(err, want) {
					t.Errorf("%s: %v", value, err)
				}
			})
		}
		wg.Wait()
	}
	if n := f.Dials.Load(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// TestPackUnasked: a server that sends a pack which it may not send loses the session, and a put
// that waits there has no known outcome.
func TestPackUnasked(t *testing.T) {
	reply := func(id uint64) []byte {
		return wire.AppendWriteReply(nil, wire.TypePut, id, wire.WriteReply{Version: 1, Applied: true})
	}
	rich := reply(1 << 40)
	wire.SetCredits(rich, 1<<16-1)
	broken := clienttest.Pack(reply(1<<40), reply(1<<40+1))
	broken[wire.HeaderSize+20] = 1 // reserved, of the first
	for _, c := range []struct {
		name  string
		packs bool
		msg   []byte
	}{
		{"nobody asked", true, clienttest.Pack(reply(1<<40), reply(1<<40+1), reply(1<<40+2))},
		{"it was not agreed on", false, clienttest.Pack(reply(1<<40), reply(1<<40+1))},
		{"one message", true, clienttest.Pack(reply(1 << 40))},
		{"a reserved byte", true, broken},
		{"no replies", true, wire.AppendPacked(wire.AppendPacked(wire.BeginPack(nil, wire.TypePack), wire.AppendGet(nil, 1, wire.Get{Key: []byte("k")})), wire.AppendGet(nil, 2, wire.Get{Key: []byte("k")}))},
	} {
		f, change := packServer(8)
		f.Packs = c.packs
		asked := make(chan struct{}, 64)
		f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypePut {
				return nil, false
			}
			asked <- struct{}{}
			return nil, true
		}
		cl := dialFake(t, f, nil, func(cfg *client.Config) { change(cfg); cfg.Timeout = 500 * time.Millisecond })
		first := rt(cl).Only().Current()
		done := make(chan error, 1)
		go func() { done <- cl.Put(context.Background(), []byte("k"), nil) }()
		<-asked
		f.QPs[0].Deliver(c.msg)
		clienttest.Eventually(t, c.name+": the session ends", func() bool { return first.IsDown() })
		if why := first.Why(); !errors.Is(why, base.ErrProtocol) {
			t.Errorf("%s: %v", c.name, why)
		}
		if err := <-done; !errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("%s: the put: %v", c.name, err)
		}
	}
}

// TestPackLate: a caller that gives up leaves its slot and its part of the receive to the reply,
// which comes in a pack with others.
func TestPackLate(t *testing.T) {
	f, change := packServer(8)
	var mu sync.Mutex
	var late [][]byte
	f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
		if h.Type != wire.TypePut {
			return nil, false
		}
		mu.Lock()
		defer mu.Unlock()
		out := wire.AppendWriteReply(nil, wire.TypePut, h.ID, wire.WriteReply{Version: 1, Applied: true})
		wire.SetCredits(out, 1)
		late = append(late, out)
		return nil, true
	}
	c := dialFake(t, f, nil, change)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var patient, hasty sync.WaitGroup
		patient.Go(func() {
			if err := c.Put(t.Context(), []byte("patient"), nil); err != nil {
				t.Error(err)
			}
		})
		for range 3 {
			hasty.Go(func() {
				if err := c.Put(ctx, []byte("hasty"), nil); !errors.Is(err, client.ErrOutcomeUnknown) {
					t.Error(err)
				}
			})
		}
		clienttest.Eventually(t, "all were asked", func() bool { mu.Lock(); defer mu.Unlock(); return len(late) == 4 })
		cancel()
		hasty.Wait()
		mu.Lock()
		f.QPs[0].Deliver(clienttest.Pack(late...))
		late = nil
		mu.Unlock()
		patient.Wait()
	}
	clienttest.Eventually(t, "everything is free again", func() bool {
		u := rt(c).Only().Current().Usage()
		return u.SlotsFree == 8 && u.CreditsFree == 8
	})
}
