package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{
		Name: strings.Repeat("n", 65), Credits: 5000, RequestSize: 100, ReplySize: 100, MaxSessions: -1,
		Lease: time.Second, Beat: 2 * time.Second, Keepalive: time.Second, Idle: time.Second,
		StagingBytes: 1, ReplyBytes: 1, ReceiveBytes: 1, SetupTimeout: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	// Every fault at once, each naming what is wrong.
	for _, want := range []string{
		"no fabric", "no data directory", "name", "credits = 5000", "request size = 100", "reply size = 100", "max sessions = -1",
		"beat = 2s", "idle = 1s", "staging bytes = 1", "reply bytes = 1", "receive bytes = 1", "setup timeout",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the faults:\n%v", want, err)
		}
	}
	if _, err := New(testConfig()); err != nil {
		t.Error(err)
	}
}

// TestStartFails: what cannot start says why and leaves nothing behind (the
// leak check of TestMain watches the goroutines).
func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	running := startServer(t, nil)
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   error  // or
		text   string // in the error
	}{
		{"port in use", func(c *Config) { c.Listen = taken.Addr().String() }, nil, taken.Addr().String()},
		{"admin port in use", func(c *Config) { c.AdminListen = taken.Addr().String() }, nil, "admin port"},
		{"no such device", func(c *Config) { c.Device = "mlx5_9" }, rdma.ErrNoDevice, "mlx5_9"},
		{"directory in use", func(c *Config) { c.FS = running.cfg.FS }, store.ErrLocked, "data"},
		{"no such address", func(c *Config) { c.Listen = "192.0.2.1:0" }, nil, "192.0.2.1"},
		{"memory limit too small", func(c *Config) { c.MemoryLimit = 1 << 20 }, nil, "memory limit"},
	} {
		cfg := testConfig()
		c.change(&cfg)
		srv, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err = srv.Start(ctx)
		cancel()
		if err == nil {
			srv.Shutdown(context.Background())
			t.Errorf("%s: started", c.name)
			continue
		}
		if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
		if srv.Ready() || srv.Shutdown(context.Background()) != nil {
			t.Errorf("%s: ready, or Shutdown fails", c.name)
		}
	}
}

// TestSharedNeedsSRQ: what was asked for is refused where it does not exist.
func TestSharedNeedsSRQ(t *testing.T) {
	cfg := testConfig()
	cfg.Fabric = noSRQ{cfg.Fabric}
	cfg.SharedReceives = session.SharedOn
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(context.Background()); !errors.Is(err, rdma.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// noSRQ is a fabric whose devices have no SRQ, and want REMOTE_WRITE on the
// sink of a READ, as an iWARP NIC does.
type noSRQ struct{ rdma.Fabric }

type noSRQDevice struct{ rdma.Device }

func (f noSRQ) Open(ctx context.Context, name string) (rdma.Device, error) {
	d, err := f.Fabric.Open(ctx, name)
	return noSRQDevice{d}, err
}

func (d noSRQDevice) Attr() rdma.DeviceAttr {
	a := d.Device.Attr()
	a.Caps = a.Caps&^rdma.CapSRQ | rdma.CapReadSinkWrite
	return a
}

// TestReadSink: where the sink of a READ needs REMOTE_WRITE it has it for one
// put only, and no slab ever does.
func TestReadSink(t *testing.T) {
	card := newCard("card", iwarp.Options{})
	srv := startServer(t, func(c *Config) { c.Fabric = noSRQ{card} })
	p := dial(t, srv, peerOptions{})
	value := p.sink()[:1<<20]
	if err := p.putLarge([]byte("k"), len(value), checksum(value)); err != nil {
		t.Fatal(err)
	}
	// What is checked and stored is out of the client's reach by then.
	s := srv.main.Sessions.List()[0]
	stage, err := srv.main.Staging.Get(s.Context(), &s.Login.Account, 0, len(value), nil)
	if err != nil {
		t.Fatal(err)
	}
	if stage.MR().Access()&rdma.AccessRemoteWrite == 0 {
		t.Fatal("the capability was not seen")
	}
	sum, err := s.ReadInto(stage, session.Remote{Size: uint64(len(value)), RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize})
	if err != nil || sum != checksum(value) || stage.MR() != nil || !bytes.Equal(stage.Bytes(), value) {
		t.Errorf("after the READs: %v, registered: %v", err, stage.MR() != nil)
	}
	stage.Release()
	if srv.main.Staging.Kept() != 0 {
		t.Error("a sink with REMOTE_WRITE stayed registered")
	}
	for access, n := range card.registered() {
		if access&rdma.AccessRemoteRead != 0 && access != rdma.AccessRemoteRead {
			t.Errorf("%d regions are registered with %v", n, access)
		}
	}
}

// TestFence: when durability is gone the node says so, ends every session and
// stops beating.
func TestFence(t *testing.T) {
	cfg := testConfig()
	cfg.Beat = 2 * time.Millisecond
	cfg.AdminListen = "127.0.0.1:0"
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := dial(t, srv, peerOptions{})
	broken := errors.New("the log is on fire")
	srv.main.Fail(broken)
	srv.main.Fail(errors.New("a second time"))
	<-srv.Fatal()
	p.dead()
	<-srv.main.BeatDone
	if !errors.Is(srv.Err(), broken) || srv.Ready() {
		t.Errorf("Err %v, Ready %v", srv.Err(), srv.Ready())
	}
	if code, body := httpGet(t, srv, "/healthz"); code != 503 || !strings.Contains(body, "on fire") {
		t.Errorf("healthz: %d %s", code, body)
	}
	if code, _ := httpGet(t, srv, "/readyz"); code != 503 {
		t.Errorf("readyz: %d", code)
	}
	shutdownFenced(t, srv, broken)
}

// shutdownFenced ends a fenced node. A real process ends here; this one's
// store is whole, so it is closed.
func shutdownFenced(t *testing.T, srv *Server, broken error) {
	t.Helper()
	if err := srv.Shutdown(context.Background()); !errors.Is(err, broken) {
		t.Errorf("Shutdown: %v", err)
	}
	srv.main.Store.Close()
	srv.main.Rails.Close()
	srv.devices.close()
}

// TestFenceEndsEverySession: also one that no list had when the fence came.
func TestFenceEndsEverySession(t *testing.T) {
	srv, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := dial(t, srv, peerOptions{})
	silent := dial(t, srv, peerOptions{noHello: true})
	srv.main.Sessions = session.NewGroup(srv.cfg.sessions(), srv.main.Sessions.Env) // no list has them
	broken := errors.New("the log is on fire")
	srv.main.Fail(broken)
	p.dead()
	silent.dead()
	shutdownFenced(t, srv, broken)
}

// TestMetricsDuringStart: a scrape while Start makes devices and lanes leaves
// them alone; a fault in it would end the process.
func TestMetricsDuringStart(t *testing.T) {
	srv, err := New(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	srv.devices.list = []*device{{}} // half made
	srv.main.Rails.Add(session.AbsentRail(srv.main.Sessions, nil, 0))
	ch := make(chan prometheus.Metric, 1000)
	telemetry.NewCollector(sources{srv}).Collect(ch)
	if len(ch) == 0 {
		t.Error("no numbers at all")
	}
}

func httpGet(t *testing.T, srv *Server, path string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://" + srv.AdminAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func httpPost(t *testing.T, srv *Server, path string) int {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("http://"+srv.AdminAddr().String()+path, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestAdminPort(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.AdminListen = "127.0.0.1:0"; c.Debug = true })
	p := dial(t, srv, peerOptions{})
	if err := p.put("k", "v"); err != nil {
		t.Fatal(err)
	}
	_, err := p.get("absent", 10)
	wantStatus(t, err, wire.StatusNotFound)
	eventually(t, "filled", srv.Filled)
	if code, body := httpGet(t, srv, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := httpGet(t, srv, "/readyz"); code != 200 || body != "ready, filled\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	code, body := httpGet(t, srv, "/metrics")
	if code != 200 {
		t.Fatalf("metrics: %d %s", code, body)
	}
	for _, want := range []string{
		`rdmakv_requests_total{status="ok",type="Put"} 1`,
		`rdmakv_requests_total{status="not-found",type="Get"} 1`,
		`rdmakv_request_seconds_count{type="Put"} 1`,
		`rdmakv_sessions{state="open"} 1`,
		`rdmakv_build_info{go="go`, `program="kvserver",revision=`, `rdmakv_ready 1`, `rdmakv_filled 1`, `rdmakv_handlers_blocked 0`,
		`rdmakv_store_published_writes_total 1`, `rdmakv_pebble_disk_bytes`,
		`rdmakv_fabric_info{device="iwarp0",fabric="iwarp",shared_receives="off"} 1`,
		`rdmakv_credits 8`, `rdmakv_registered_bytes`, `go_goroutines`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if code := httpPost(t, srv, "/debug/handlers/block"); code != 200 {
		t.Errorf("block: %d", code)
	}
	if blocked, _ := srv.main.Sessions.Gate.Waiting(); !blocked {
		t.Error("not blocked")
	}
	if code := httpPost(t, srv, "/debug/handlers/unblock"); code != 200 {
		t.Errorf("unblock: %d", code)
	}
	if code, _ := httpGet(t, srv, "/debug/pprof/cmdline"); code != 200 {
		t.Errorf("pprof: %d", code)
	}
}

func TestAdminPortWithoutDebug(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.AdminListen = "127.0.0.1:0" })
	if code := httpPost(t, srv, "/debug/handlers/block"); code != 404 {
		t.Errorf("block: %d", code)
	}
	if code, _ := httpGet(t, srv, "/debug/pprof/cmdline"); code != 404 {
		t.Errorf("pprof: %d", code)
	}
}

// TestKilledNodeIsBackAtOnce: iwarp dies with its process, so a new
// incarnation need not wait for leases of the one before.
func TestKilledNodeIsBackAtOnce(t *testing.T) {
	fs := crashfs.New()
	cfg := testConfig()
	cfg.FS, cfg.Lease = fs, 20*time.Second
	first := startServer(t, func(c *Config) { *c = cfg })
	if err := dial(t, first, peerOptions{}).put("k", "v"); err != nil {
		t.Fatal(err)
	}
	// As after kill -9: a copy of the disk, without the clean-stop mark.
	second := startServer(t, func(c *Config) { *c = cfg; c.FS = fs.CrashClone(vfs.CrashCloneCfg{}) })
	p := dial(t, second, peerOptions{})
	began := time.Now()
	if r, err := p.get("k", 10); err != nil || string(r.Value) != "v" {
		t.Fatalf("%q, %v", r.Value, err)
	}
	if err := p.put("k", "w"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the first put took %v", took)
	}
}

// TestOverload: writes beyond the store's bound are refused, not queued.
func TestOverload(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.InflightBytes = 1 })
	p := dial(t, srv, peerOptions{})
	var ids []uint64
	for i := range p.credits {
		id := p.id()
		ids = append(ids, id)
		p.send(wire.AppendPut(nil, id, wire.Put{Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, 1000)}))
	}
	for _, id := range ids {
		h, _, err := p.await(id)
		if err != nil || h.Status != wire.StatusOK && h.Status != wire.StatusOverloaded {
			t.Errorf("%v, %v", h, err)
		}
	}
	if err := p.put("after", "v"); err != nil {
		t.Errorf("once the others are done: %v", err)
	}
}

// TestManySessions opens more sessions than a lane starts with buffers for.
func TestManySessions(t *testing.T) {
	eachQueue(t, func(t *testing.T, change func(*Config)) {
		srv := startServer(t, change)
		var all []*peer
		for range 60 {
			all = append(all, dial(t, srv, peerOptions{receives: 4}))
		}
		for i, p := range all {
			if err := p.put(fmt.Sprintf("k%d", i), "v"); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range all {
			p.qp.Disconnect()
		}
		eventually(t, "all sessions are gone", func() bool { return len(srv.main.Sessions.List()) == 0 })
		d := srv.main.Rails.All()[0]
		for i, n := range d.Buffers() {
			if n.Used != 0 && (i > 0 || !d.Shared) {
				t.Errorf("%d buffers of kind %d in use", n.Used, i)
			}
		}
		if promised, _, _ := d.SharedReceives(); promised != 0 {
			t.Errorf("%d shared receives promised to nobody", promised)
		}
	})
}
