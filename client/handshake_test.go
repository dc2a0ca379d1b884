package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/clienttest/node"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

func dialError(t *testing.T, cfg client.Config) error {
	t.Helper()
	cfg.DialOnce = true // it says the reason either way
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, cfg)
	if err == nil {
		c.Close()
		t.Fatal("connected")
	}
	return err
}

func TestSecrets(t *testing.T) {
	secured := node.Start(t, func(c *server.Config) { c.Secret = []byte("sesame") })
	public := node.Start(t, nil)
	c := dialNode(secured, nil)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		n      *node.Node
		secret string
	}{{"wrong", secured, "simsalabim"}, {"none", secured, ""}, {"one too many", public, "sesame"}} {
		cfg := configNode(tc.n)
		cfg.Secret = []byte(tc.secret)
		if err := dialError(t, cfg); !errors.Is(err, client.ErrAuth) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestNoServerThere(t *testing.T) {
	n := node.Start(t, nil)
	cfg := configNode(n)
	cfg.Servers = []string{clienttest.DeadPort(t)}
	if err := dialError(t, cfg); !errors.Is(err, client.ErrUnavailable) {
		t.Error(err)
	}
	cfg.Servers = []string{clienttest.DeadPort(t), n.Addr} // the second answers
	c := dialNode(n, func(c *client.Config) { c.Servers = cfg.Servers })
	if _, err := c.Ping(t.Context()); err != nil || admin.Of(c).Server().Address != n.Addr {
		t.Error(err, admin.Of(c).Server())
	}
	cfg.Devices = []string{"no such device"}
	if err := dialError(t, cfg); !errors.Is(err, rdma.ErrNoDevice) {
		t.Error(err)
	}
}

// Programs that listen but are not this server.
func TestStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("220 mail.example.com ESMTP\r\n"))
			go func() { io.Copy(io.Discard, conn); conn.Close() }()
		}
	}()
	cfg := client.Config{Servers: []string{l.Addr().String()}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, DialTimeout: time.Second}
	if err := dialError(t, cfg); !errors.Is(err, client.ErrUnavailable) {
		t.Error(err)
	}
}

// What a server may answer to the handshake, and what the client makes of it.
func TestHandshakeAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*clienttest.Server)
		want   error
	}{
		{"other versions", func(f *clienttest.Server) {
			f.Reject = wire.AppendReject(nil, wire.Reject{Min: 7, Max: 9, Status: wire.StatusVersion})
		}, client.ErrVersion},
		{"other versions, padded", func(f *clienttest.Server) {
			f.Reject = append(wire.AppendReject(nil, wire.Reject{Min: 7, Max: 9, Status: wire.StatusVersion}), make([]byte, 140)...)
		}, client.ErrVersion},
		{"a padded server without the secret", func(f *clienttest.Server) {
			f.Accept = func(b []byte) []byte { b[len(b)-1] ^= 1; return append(b, make([]byte, 148)...) }
		}, client.ErrAuth},
		{"a server of version 2, which did not understand", func(f *clienttest.Server) {
			f.Reject = wire.AppendReject(nil, wire.Reject{Min: 2, Max: 2, Status: wire.StatusProtocol})
		}, client.ErrVersion},
		{"bad secret", func(f *clienttest.Server) {
			f.Reject = wire.AppendReject(nil, wire.Reject{Min: 1, Max: 1, Status: wire.StatusAuth})
		}, client.ErrAuth},
		{"busy", func(f *clienttest.Server) {
			f.Reject = wire.AppendReject(nil, wire.Reject{Min: 1, Max: 1, Status: wire.StatusBusy})
		}, client.ErrUnavailable},
		{"a refusal of another protocol", func(f *clienttest.Server) { f.Reject = []byte("go away") }, client.ErrUnavailable},
		{"an acceptance of another protocol", func(f *clienttest.Server) {
			f.Accept = func([]byte) []byte { return []byte("welcome, stranger") }
		}, client.ErrProtocol},
		{"an empty acceptance", func(f *clienttest.Server) { f.Accept = func([]byte) []byte { return nil } }, client.ErrProtocol},
		{"a server without the secret", func(f *clienttest.Server) {
			f.Accept = func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
		}, client.ErrAuth},
		{"another incarnation", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.Incarnation++ } }, client.ErrProtocol},
		{"no lease", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.Lease = 0 } }, client.ErrProtocol},
		{"a beat slower than the lease", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.Beat = w.Lease } }, client.ErrProtocol},
		{"keys beyond the format", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.MaxKey = 1 << 20 } }, client.ErrProtocol},
		{"values beyond the format", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.MaxValue = 1 << 40 } }, client.ErrProtocol},
		{"replies that do not fit", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.ReplySize = 1 << 20 } }, client.ErrProtocol},
		{"tiny requests", func(f *clienttest.Server) { f.Welcome = func(w *wire.Welcome) { w.RequestSize = 10 } }, client.ErrProtocol},
		{"hello refused", func(f *clienttest.Server) {
			f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
				return wire.AppendError(nil, h.Type, h.ID, wire.StatusAuth, "no"), true
			}
		}, client.ErrAuth},
		{"silence", func(f *clienttest.Server) {
			f.OnRequest = func(wire.Header, []byte) ([]byte, bool) { return nil, true }
		}, client.ErrTimeout},
		{"a view of no regions", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Total = 0; return nil }), client.ErrProtocol},
		{"regions without end", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Total = 1 << 31; return rs }), client.ErrProtocol},
		{"regions that overlap", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { rs[1].Base = 0; return rs }), client.ErrProtocol},
		{"a region beyond the address space", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { rs[1].Addr = ^uint64(0); return rs }), client.ErrProtocol},
		{"an index without ring", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.ReclaimEntries = 0; return rs }), client.ErrProtocol},
		{"another store's view", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Incarnation++; return rs }), client.ErrProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := clienttest.NewServer(5)
			f.Secret = []byte("s")
			tc.change(f)
			cfg := configFake(f)
			cfg.DialTimeout = 20 * time.Second
			if tc.want == client.ErrTimeout {
				cfg.DialTimeout = 300 * time.Millisecond
			}
			if err := dialError(t, cfg); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

// A connection manager may carry private data in a field of fixed length.
func TestPaddedAcceptance(t *testing.T) {
	f := clienttest.NewServer(5)
	f.Secret = []byte("s")
	f.Accept = func(b []byte) []byte { return append(b, make([]byte, 148)...) }
	if c := dialFake(t, f, nil, nil); admin.Of(c).Server().ID != "fake" {
		t.Errorf("%+v", admin.Of(c).Server())
	}
}

// viewReply makes a server whose view is changed by f.
func viewReply(change func(*wire.ViewReply, []wire.Region) []wire.Region) func(*clienttest.Server) {
	return func(f *clienttest.Server) {
		f.OnRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypeView {
				return nil, false
			}
			v := wire.ViewReply{
				Incarnation: f.Incarnation, Seed: 42, Version: 1,
				Shards: 1, RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: clienttest.RingEntries, Total: 2,
			}
			rs := change(&v, []wire.Region{
				{ID: 0, Kind: 1, Base: 0, Length: clienttest.IndexBytes, RKey: 1},
				{ID: 1, Kind: 2, Base: clienttest.IndexBytes / 8, Length: clienttest.ItemBytes, Addr: clienttest.IndexBytes, RKey: 1},
			})
			out := wire.AppendViewReply(nil, h.ID, v, rs)
			wire.SetCredits(out, 1)
			return out, true
		}
	}
}

// A program that names no fabric, and does not import all of them, hears what it may do.
func TestNoFabrics(t *testing.T) {
	_, err := client.Dial(t.Context(), client.Config{Servers: []string{"127.0.0.1:7400"}})
	if !errors.Is(err, client.ErrConfig) || !strings.Contains(err.Error(), "github.com/rdmakv/rdmakv/client/fabrics") || !strings.Contains(err.Error(), "rdma/iwarp") {
		t.Error(err)
	}
}

func TestConfigFaults(t *testing.T) {
	if _, err := client.Dial(t.Context(), client.Config{}); !errors.Is(err, client.ErrConfig) {
		t.Error(err)
	}
	bad := client.Config{
		Servers: []string{"no-port", "host:0", ":"}, Timeout: 1, DialTimeout: -1, CacheEntries: -2,
		MaxInflight: client.MostInflight + 1, MaxWaiting: -1, MaxReads: 1, BufferBytes: 1, StagingBytes: -1, LeaseKeep: -5, Spin: -2,
	}
	err := bad.Validate()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 14 {
		t.Errorf("not every fault was reported: %v", err)
	}
	for _, err := range joined.Unwrap() {
		if !errors.Is(err, client.ErrConfig) {
			t.Errorf("%v is no ErrConfig", err)
		}
	}
	good := client.Config{Servers: []string{"[::1]:7420"}, Fabrics: []rdma.Fabric{iwarp.New(iwarp.Options{})}, CacheEntries: -1, LeaseKeep: -1}
	for spin, ok := range map[time.Duration]bool{
		-2: false, -1: true, 0: true, wait.MaxSpin: true, wait.MaxSpin + 1: false, time.Hour: false,
	} {
		good.Spin = spin
		if err := good.Validate(); (err == nil) != ok || err != nil && !errors.Is(err, client.ErrConfig) {
			t.Errorf("Spin %v: %v", spin, err)
		}
	}
}
