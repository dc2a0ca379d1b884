package client

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

func dialError(t *testing.T, cfg Config) error {
	t.Helper()
	cfg.DialOnce = true // it says the reason either way
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := Dial(ctx, cfg)
	if err == nil {
		c.Close()
		t.Fatal("connected")
	}
	return err
}

func TestSecrets(t *testing.T) {
	secured := startNode(t, func(c *server.Config) { c.Secret = []byte("sesame") })
	public := startNode(t, nil)
	c := secured.dial(nil)
	if err := c.Put(t.Context(), []byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		n      *node
		secret string
	}{{"wrong", secured, "simsalabim"}, {"none", secured, ""}, {"one too many", public, "sesame"}} {
		cfg := tc.n.config()
		cfg.Secret = []byte(tc.secret)
		if err := dialError(t, cfg); !errors.Is(err, ErrAuth) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	n := startNode(t, nil)
	cfg := n.config()
	cfg.Servers = []string{deadPort(t)}
	if err := dialError(t, cfg); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	cfg.Servers = []string{deadPort(t), n.addr} // the second answers
	c := n.dial(func(c *Config) { c.Servers = cfg.Servers })
	if _, err := c.Ping(t.Context()); err != nil || c.Server().Address != n.addr {
		t.Error(err, c.Server())
	}
	cfg.Device = "no such device"
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
	cfg := Config{Servers: []string{l.Addr().String()}, Fabric: iwarp.New(iwarp.Options{}), HeapMemory: true, DialTimeout: time.Second}
	if err := dialError(t, cfg); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// What a server may answer to the handshake, and what the client makes of it.
func TestHandshakeAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*fakeServer)
		want   error
	}{
		{"other versions", func(f *fakeServer) {
			f.reject = wire.AppendReject(nil, wire.Reject{Min: 7, Max: 9, Status: wire.StatusVersion})
		}, ErrVersion},
		{"other versions, padded", func(f *fakeServer) {
			f.reject = append(wire.AppendReject(nil, wire.Reject{Min: 7, Max: 9, Status: wire.StatusVersion}), make([]byte, 140)...)
		}, ErrVersion},
		{"a padded server without the secret", func(f *fakeServer) {
			f.accept = func(b []byte) []byte { b[len(b)-1] ^= 1; return append(b, make([]byte, 148)...) }
		}, ErrAuth},
		{"a server of version 2, which did not understand", func(f *fakeServer) {
			f.reject = wire.AppendReject(nil, wire.Reject{Min: 2, Max: 2, Status: wire.StatusProtocol})
		}, ErrVersion},
		{"bad secret", func(f *fakeServer) {
			f.reject = wire.AppendReject(nil, wire.Reject{Min: 1, Max: 1, Status: wire.StatusAuth})
		}, ErrAuth},
		{"busy", func(f *fakeServer) {
			f.reject = wire.AppendReject(nil, wire.Reject{Min: 1, Max: 1, Status: wire.StatusBusy})
		}, ErrUnavailable},
		{"a refusal of another protocol", func(f *fakeServer) { f.reject = []byte("go away") }, ErrUnavailable},
		{"an acceptance of another protocol", func(f *fakeServer) {
			f.accept = func([]byte) []byte { return []byte("welcome, stranger") }
		}, ErrProtocol},
		{"an empty acceptance", func(f *fakeServer) { f.accept = func([]byte) []byte { return nil } }, ErrProtocol},
		{"a server without the secret", func(f *fakeServer) {
			f.accept = func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
		}, ErrAuth},
		{"another incarnation", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.Incarnation++ } }, ErrProtocol},
		{"no lease", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.Lease = 0 } }, ErrProtocol},
		{"a beat slower than the lease", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.Beat = w.Lease } }, ErrProtocol},
		{"keys beyond the format", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.MaxKey = 1 << 20 } }, ErrProtocol},
		{"values beyond the format", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.MaxValue = 1 << 40 } }, ErrProtocol},
		{"replies that do not fit", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.ReplySize = 1 << 20 } }, ErrProtocol},
		{"tiny requests", func(f *fakeServer) { f.welcome = func(w *wire.Welcome) { w.RequestSize = 10 } }, ErrProtocol},
		{"hello refused", func(f *fakeServer) {
			f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
				return wire.AppendError(nil, h.Type, h.ID, wire.StatusAuth, "no"), true
			}
		}, ErrAuth},
		{"silence", func(f *fakeServer) {
			f.onRequest = func(wire.Header, []byte) ([]byte, bool) { return nil, true }
		}, ErrTimeout},
		{"a view of no regions", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Total = 0; return nil }), ErrProtocol},
		{"regions without end", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Total = 1 << 31; return rs }), ErrProtocol},
		{"regions that overlap", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { rs[1].Base = 0; return rs }), ErrProtocol},
		{"a region beyond the address space", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { rs[1].Addr = ^uint64(0); return rs }), ErrProtocol},
		{"an index without ring", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.ReclaimEntries = 0; return rs }), ErrProtocol},
		{"another store's view", viewReply(func(v *wire.ViewReply, rs []wire.Region) []wire.Region { v.Incarnation++; return rs }), ErrProtocol},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFakeServer(5)
			f.secret = []byte("s")
			tc.change(f)
			cfg := f.config(nil)
			cfg.DialTimeout = 20 * time.Second
			if tc.want == ErrTimeout {
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
	f := newFakeServer(5)
	f.secret = []byte("s")
	f.accept = func(b []byte) []byte { return append(b, make([]byte, 148)...) }
	if c := f.dial(t, nil, nil); c.Server().ID != "fake" {
		t.Errorf("%+v", c.Server())
	}
}

// viewReply makes a server whose view is changed by f.
func viewReply(change func(*wire.ViewReply, []wire.Region) []wire.Region) func(*fakeServer) {
	return func(f *fakeServer) {
		f.onRequest = func(h wire.Header, _ []byte) ([]byte, bool) {
			if h.Type != wire.TypeView {
				return nil, false
			}
			v := wire.ViewReply{
				Incarnation: f.incarnation, Seed: 42, Version: 1,
				Shards: 1, RootOffset: 4096, ReclaimOffset: 8192, ReclaimEntries: fakeRing, Total: 2,
			}
			rs := change(&v, []wire.Region{
				{ID: 0, Kind: 1, Base: 0, Length: fakeRegion0, RKey: 1},
				{ID: 1, Kind: 2, Base: fakeRegion0 / 8, Length: fakeRegion1, Addr: fakeRegion0, RKey: 1},
			})
			out := wire.AppendViewReply(nil, h.ID, v, rs)
			wire.SetCredits(out, 1)
			return out, true
		}
	}
}

func TestConfigFaults(t *testing.T) {
	if _, err := Dial(t.Context(), Config{}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	bad := Config{
		Servers: []string{"no-port", "host:0", ":"}, Timeout: 1, DialTimeout: -1, CacheEntries: -2,
		MaxInflight: maxInflight + 1, MaxWaiting: -1, MaxReads: 1, BufferBytes: 1, StagingBytes: -1, LeaseKeep: -5, Spin: -2,
	}
	err := bad.Validate()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 14 {
		t.Errorf("not every fault was reported: %v", err)
	}
	for _, err := range joined.Unwrap() {
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%v is no ErrConfig", err)
		}
	}
	good := Config{Servers: []string{"[::1]:7420"}, Fabric: iwarp.New(iwarp.Options{}), CacheEntries: -1, LeaseKeep: -1}
	for spin, ok := range map[time.Duration]bool{
		-2: false, -1: true, 0: true, rdma.MaxSpin: true, rdma.MaxSpin + 1: false, time.Hour: false,
	} {
		good.Spin = spin
		if err := good.Validate(); (err == nil) != ok || err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("Spin %v: %v", spin, err)
		}
	}
}
