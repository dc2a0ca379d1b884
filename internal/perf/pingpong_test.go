package perf

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestPingPong: requests are answered, sleeping and spinning, by TCP and by a UNIX
// socket, and either end ends the other.
func TestPingPong(t *testing.T) {
	for _, p := range []PingPong{
		{Network: "tcp", Request: 10, Answer: 100_000},
		{Network: "tcp", Spin: true, Request: 100_000, Answer: 10},
		{Network: "unix", Request: 1, Answer: 1},
		{Network: "unix", Spin: true, Request: 52, Answer: 200},
	} {
		addr := "127.0.0.1:0"
		if p.Network == "unix" {
			addr = filepath.Join(t.TempDir(), "s")
		}
		l, err := net.Listen(p.Network, addr)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Serve(l) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		pinger, err := p.Dial(ctx, l.Addr().String())
		cancel() // of the connecting alone
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := pinger.Round(); err != nil {
				t.Fatalf("%+v: %v", p, err)
			}
		}
		if err := pinger.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%+v: the answering end: %v", p, err)
		}
		if err := pinger.Round(); err == nil {
			t.Errorf("%+v: a round after Close", p)
		}
		_ = l.Close()
	}
	if _, err := (PingPong{Network: "tcp"}).Dial(t.Context(), "127.0.0.1:1"); err == nil {
		t.Error("nobody answers, and that is no error")
	}
}
