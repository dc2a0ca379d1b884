package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/space"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// startHanging starts a node whose lanes are soon suspected.
func startHanging(t *testing.T, change func(*Config)) *Server {
	cfg := testConfig()
	cfg.Beat, cfg.AdminListen = 5*time.Millisecond, "127.0.0.1:0"
	if change != nil {
		change(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv.main.LaneSilence = 100 * time.Millisecond
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return srv
}

// hangLane has the handler of a Ping of p, whose sessions b stands before, not return
// until goOn is called.
func hangLane(b *between, p *peer) (id uint64, goOn func()) {
	hold := make(chan struct{})
	wait := func(*session.Request) { <-hold }
	b.before.Store(&wait)
	id = p.id()
	p.send(wire.AppendPing(nil, id, wire.Ping{Echo: 7}))
	return id, func() { close(hold) }
}

func (srv *Server) waitHealth(t *testing.T, code int) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, body := httpGet(t, srv, "/healthz")
		if got == code {
			return body
		}
		if time.Now().After(deadline) {
			t.Fatalf("healthz: %d %s", got, body)
		}
	}
}

// TestHealthOfLanes: /healthz fails while a handler does not return, of the node
// or of a space, and is well again when it does. A node to which nothing comes is
// well, however long its lanes sleep.
func TestHealthOfLanes(t *testing.T) {
	for _, tenant := range []string{"", "anna"} {
		srv := startHanging(t, func(c *Config) {
			c.Secret, c.Tenants = secretOf(""), []Tenant{tenantOf("anna")}
		})
		b := standBetween(srv.spaces.of(tenant))
		p := dial(t, srv, as(tenant))
		// Three times as many beats as make a lane that hangs. A round may take as long
		// on a machine that is busy, and then it ends; a sleep is none, and stays.
		n := srv.main.Counters.Beats.Load() + 3*uint64(srv.main.LaneSilence/srv.cfg.Beat+2)
		eventually(t, "the beats", func() bool { return srv.main.Counters.Beats.Load() >= n })
		srv.waitHealth(t, 200)
		id, goOn := hangLane(b, p)
		if body := srv.waitHealth(t, 503); !strings.Contains(body, "does not return") {
			t.Errorf("healthz: %s", body)
		}
		goOn()
		srv.waitHealth(t, 200)
		if _, _, err := p.await(id); err != nil {
			t.Error(err)
		}
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// TestShutdownWithoutALane: a lane that hangs is not waited for for ever. The end
// of the node is given up, with an error that says why.
func TestShutdownWithoutALane(t *testing.T) {
	srv := startHanging(t, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
	b := standBetween(srv.main)
	p := dial(t, srv, peerOptions{})
	_, goOn := hangLane(b, p)
	over := make(chan struct{})
	given := make(chan error, 1)
	go func() {
		given <- srv.main.EndWithin(context.Background(), func(ctx context.Context) error {
			defer close(over)
			return srv.end(ctx)
		})
	}()
	select {
	case err := <-given:
		if !errors.Is(err, space.ErrLaneHangs) || !errors.Is(srv.Err(), space.ErrLaneHangs) {
			t.Errorf("the end: %v, the node's fault: %v", err, srv.Err())
		}
	case <-time.After(time.Minute):
		t.Error("the end waits for a lane that hangs")
	}
	goOn()
	<-over
	if t.Failed() {
		return
	}
	shutdownFenced(t, srv, space.ErrLaneHangs)
}
