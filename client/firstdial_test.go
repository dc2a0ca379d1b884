package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
)

// TestFirstDialWaits: Dial is called before its server is started.
func TestFirstDialWaits(t *testing.T) {
	n := node.Soft(t, nil)
	n.Stop()
	cfg := configNode(n)
	failed := make(chan error, 1000)
	cfg.OnWait = func(why error) { failed <- why }
	started := make(chan struct{})
	go func() {
		defer close(started)
		// Three attempts: it is not the second that came by luck.
		for range 3 {
			if why := <-failed; !errors.Is(why, syscall.ECONNREFUSED) || !strings.Contains(why.Error(), n.Addr) {
				t.Errorf("waits because of %v", why)
			}
		}
		n.Start()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(worldOf(ctx, n), cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-started
	defer c.Close()
	if err := c.Put(ctx, []byte("k"), nil); err != nil {
		t.Error(err)
	}
	if failures := c.Counters().ConnectsFailed; failures < 3 {
		t.Errorf("%d failed attempts are counted", failures)
	}
}

// TestFirstDialWaitsForRoom: a server that is full lets in a client that waits, when
// another one has left.
func TestFirstDialWaitsForRoom(t *testing.T) {
	n := node.Soft(t, func(c *server.Config) { c.MaxSessions = 1 })
	first := dialNode(n, nil)
	cfg := configNode(n)
	failed := make(chan error, 1000)
	cfg.OnWait = func(why error) { failed <- why }
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if why := <-failed; !errors.Is(why, client.ErrOverloaded) {
			t.Errorf("waits because of %v", why)
		}
		<-failed
		first.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(worldOf(ctx, n), cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-closed
	c.Close()
}

// TestFirstDialEnds: at the deadline of the context, or after Config.Timeout; with
// the cause first, and how often it was tried. A caller that gives up is told so.
func TestFirstDialEnds(t *testing.T) {
	addr := clienttest.DeadPort(t)
	n := node.Soft(t, nil)
	var side sync.WaitGroup // each takes a second or so
	for name, c := range map[string]struct {
		change func(*client.Config)
		ctx    func() (context.Context, context.CancelFunc)
		is     error
	}{
		"deadline": {func(*client.Config) {}, func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) }, syscall.ECONNREFUSED},
		"timeout":  {func(c *client.Config) { c.Timeout = time.Second }, func() (context.Context, context.CancelFunc) { return t.Context(), func() {} }, syscall.ECONNREFUSED},
		"given up": {func(*client.Config) {}, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		side.Go(func() {
			cfg := configNode(n)
			cfg.Servers = []string{addr}
			c.change(&cfg)
			ctx, cancel := c.ctx()
			begun := time.Now()
			_, err := client.Dial(worldOf(ctx, n), cfg)
			cancel()
			if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, c.is) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(begun); took > 20*time.Second || took < 200*time.Millisecond {
				t.Errorf("%s: it took %v", name, took)
			}
			if e := (*client.DialError)(nil); c.is != context.Canceled && (!errors.As(err, &e) || e.Attempts < 2 || !strings.HasSuffix(err.Error(), ")")) {
				t.Errorf("%s: %+v: %v", name, e, err)
			}
		})
	}
	side.Wait()
}

// TestFirstDialDoesNotWait for what waiting cannot mend.
func TestFirstDialDoesNotWait(t *testing.T) {
	n := node.Soft(t, func(c *server.Config) { c.Secret = []byte("sesame") })
	for name, c := range map[string]struct {
		change func(*client.Config)
		is     error
	}{
		"wrong secret":       {func(c *client.Config) { c.Secret = []byte("simsalabim") }, client.ErrAuth},
		"port out of range":  {func(c *client.Config) { c.Servers = []string{"127.0.0.1:74000"} }, client.ErrConfig},
		"port that is none":  {func(c *client.Config) { c.Servers = []string{"127.0.0.1:kv store"} }, client.ErrConfig},
		"no port":            {func(c *client.Config) { c.Servers = []string{"127.0.0.1"} }, client.ErrConfig},
		"no device":          {func(c *client.Config) { c.Devices = []string{"none of this name"} }, rdma.ErrNoDevice},
		"told to try once":   {func(c *client.Config) { c.Servers, c.DialOnce = []string{clienttest.DeadPort(t)}, true }, client.ErrUnavailable},
		"another's protocol": {func(c *client.Config) { c.Servers = []string{greeter(t)} }, rdma.ErrProtocol},
	} {
		cfg := configNode(n)
		c.change(&cfg)
		var waited atomic.Int32
		cfg.OnWait = func(error) { waited.Add(1) }
		if _, err := client.Dial(worldOf(t.Context(), n), cfg); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
		if waited.Load() > 0 {
			t.Errorf("%s: it was tried again", name)
		}
	}
}

// greeter is the address of a server of another kind.
func greeter(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("220 mail.example.com ESMTP ready, go ahead\r\n"))
			t.Cleanup(func() { conn.Close() })
		}
	}()
	return l.Addr().String()
}
