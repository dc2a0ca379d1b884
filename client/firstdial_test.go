package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// TestFirstDialWaits: Dial is called before its server is started.
func TestFirstDialWaits(t *testing.T) {
	n := softNode(t, nil)
	n.stop()
	cfg := n.config()
	failed := make(chan error, 1000)
	cfg.OnWait = func(why error) { failed <- why }
	started := make(chan struct{})
	go func() {
		defer close(started)
		// Three attempts: it is not the second that came by luck.
		for range 3 {
			if why := <-failed; !errors.Is(why, syscall.ECONNREFUSED) || !strings.Contains(why.Error(), n.addr) {
				t.Errorf("waits because of %v", why)
			}
		}
		n.start()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, cfg)
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

// TestFirstDialWaitsForRoom: a server that is full lets in whoever waits, when
// somebody has left.
func TestFirstDialWaitsForRoom(t *testing.T) {
	n := softNode(t, func(c *server.Config) { c.MaxSessions = 1 })
	first := n.dial(nil)
	cfg := n.config()
	failed := make(chan error, 1000)
	cfg.OnWait = func(why error) { failed <- why }
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if why := <-failed; !errors.Is(why, ErrOverloaded) {
			t.Errorf("waits because of %v", why)
		}
		<-failed
		first.Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	<-closed
	c.Close()
}

// TestFirstDialEnds: at the deadline of the context, or after Config.Timeout; with
// the cause first, and how often it was tried. A caller who gives up is told so.
func TestFirstDialEnds(t *testing.T) {
	addr := deadPort(t)
	n := softNode(t, nil)
	for name, c := range map[string]struct {
		change func(*Config)
		ctx    func() (context.Context, context.CancelFunc)
		is     error
	}{
		"deadline": {func(*Config) {}, func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) }, syscall.ECONNREFUSED},
		"timeout":  {func(c *Config) { c.Timeout = time.Second }, func() (context.Context, context.CancelFunc) { return t.Context(), func() {} }, syscall.ECONNREFUSED},
		"given up": {func(*Config) {}, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		cfg := n.config()
		cfg.Servers = []string{addr}
		c.change(&cfg)
		ctx, cancel := c.ctx()
		begun := time.Now()
		_, err := Dial(ctx, cfg)
		cancel()
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > 20*time.Second || took < 200*time.Millisecond {
			t.Errorf("%s: it took %v", name, took)
		}
		if e := (*DialError)(nil); c.is != context.Canceled && (!errors.As(err, &e) || e.Attempts < 2 || !strings.HasSuffix(err.Error(), ")")) {
			t.Errorf("%s: %+v: %v", name, e, err)
		}
	}
}

// TestFirstDialDoesNotWait for what waiting cannot mend.
func TestFirstDialDoesNotWait(t *testing.T) {
	n := softNode(t, func(c *server.Config) { c.Secret = []byte("sesame") })
	for name, c := range map[string]struct {
		change func(*Config)
		is     error
	}{
		"wrong secret":       {func(c *Config) { c.Secret = []byte("simsalabim") }, ErrAuth},
		"port out of range":  {func(c *Config) { c.Servers = []string{"127.0.0.1:74000"} }, ErrConfig},
		"port that is none":  {func(c *Config) { c.Servers = []string{"127.0.0.1:kv store"} }, ErrConfig},
		"no port":            {func(c *Config) { c.Servers = []string{"127.0.0.1"} }, ErrConfig},
		"no device":          {func(c *Config) { c.Device = "none of this name" }, rdma.ErrNoDevice},
		"told to try once":   {func(c *Config) { c.Servers, c.DialOnce = []string{deadPort(t)}, true }, ErrUnavailable},
		"another's protocol": {func(c *Config) { c.Servers = []string{greeter(t)} }, rdma.ErrProtocol},
	} {
		cfg := n.config()
		c.change(&cfg)
		var waited atomic.Int32
		cfg.OnWait = func(error) { waited.Add(1) }
		if _, err := Dial(t.Context(), cfg); !errors.Is(err, c.is) {
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

// TestMayCome: which failures of an attempt may pass by themselves, also among
// those of several fabrics and servers.
func TestMayCome(t *testing.T) {
	dns := &net.DNSError{Err: "no such host", Name: "kv1", IsNotFound: true}
	device := fmt.Errorf("verbs: %w: this machine has no RDMA device", rdma.ErrNoDevice)
	answered := func(err error) error { return refusal{err} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("%w: dial: %w", rdma.ErrPeerGone, syscall.ECONNREFUSED), true},
		{fmt.Errorf("%w: %w", rdma.ErrNoDevice, fs.ErrNotExist), true}, // no socket of shm
		{fmt.Errorf("%w: %w", rdma.ErrPeerGone, dns), true},
		{fmt.Errorf("%w: %w", rdma.ErrNoDevice, dns), true},
		{rdma.ErrDeadline, true},
		{answered(because(ErrUnavailable, because(ErrOverloaded, wire.StatusBusy.Err()))), true},
		{answered(because(ErrUnavailable, because(errClosing, wire.StatusClosing.Err()))), true},
		{fabricErrors{device, fmt.Errorf("iwarp: %w", rdma.ErrPeerGone)}, true},
		{device, false},
		{fabricErrors{device, device}, false},
		{answered(ErrAuth), false},
		{errors.Join(answered(ErrAuth), rdma.ErrPeerGone), false},
		{answered(ErrVersion), false},
		{answered(ErrOtherCluster), false},
		{answered(ErrProtocol), false},
		{because(ErrNoRDMA, rdma.ErrPeerGone), false},
		{rdma.ErrProtocol, false},
		{fmt.Errorf("%w: a certificate", rdma.ErrRejected), false},
		{rdma.ErrInvalid, false},
	} {
		if got := mayCome(because(ErrUnavailable, c.err)); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
