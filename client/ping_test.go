package client

import (
	"context"
	"errors"
	"testing"

	"github.com/rdmakv/rdmakv/internal/wire"
)

// One Ping is under way at a time. A call that cannot wait for its turn fails
// for that reason: the session is not lost, and there is no other to try.
func TestPingWaitsItsTurn(t *testing.T) {
	f := newFakeServer(77)
	f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) { return nil, h.Type == wire.TypePing }
	c := f.dial(t, nil, func(cfg *Config) { cfg.MaxWaiting = 1 })
	s := c.current.Load()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	for range 2 { // the first is under way, the second waits
		go func() {
			_, err := c.Ping(ctx)
			done <- err
		}()
	}
	eventually(t, "one Ping waits", func() bool { _, waiting := s.pingTurn.state(); return waiting == 1 })
	if _, err := c.Ping(t.Context()); !errors.Is(err, ErrOverloaded) {
		t.Errorf("%v", err)
	}
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if n := c.Counters().Retries.Session; n != 0 {
		t.Errorf("%d calls took the session for lost", n)
	}
}
