package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// fakeVerbs has devices with addresses; nothing of it can be opened.
type fakeVerbs struct {
	rdma.Fabric
	missing error               // Unavailable
	devices map[string]fakeCard // by name
}

type fakeCard struct {
	host, transport string
}

func (f *fakeVerbs) Name() string       { return "verbs" }
func (f *fakeVerbs) Unavailable() error { return f.missing }

func (f *fakeVerbs) names() (names []string) {
	for name := range f.devices {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fakeVerbs) Devices(context.Context) (out []rdma.DeviceInfo, err error) {
	for _, name := range f.names() {
		out = append(out, rdma.DeviceInfo{Name: name, Transport: f.devices[name].transport})
	}
	return out, nil
}

func (f *fakeVerbs) Open(context.Context, string) (rdma.Device, error) {
	return nil, errors.New("the card is on fire")
}

func (f *fakeVerbs) Route(context.Context, string) (rdma.Route, error) {
	return rdma.Route{}, rdma.ErrNoDevice
}

func (f *fakeVerbs) Local(_ context.Context, addr string) (out []rdma.Route, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	for _, name := range f.names() {
		if own := f.devices[name].host; host == own || host == "0.0.0.0" {
			out = append(out, rdma.Route{Device: name, Addr: net.JoinHostPort(own, port), Reason: name + " has it"})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: nobody has %s", rdma.ErrNoDevice, host)
	}
	return out, nil
}

func testFabrics(missing error) fabricSet {
	return fabricSet{
		verbs: &fakeVerbs{missing: missing, devices: map[string]fakeCard{
			"mlx5_0": {"10.0.0.1", "RoCE v2"}, "mlx5_1": {"10.0.0.2", "RoCE v2"}, "cxgb4_0": {"10.0.0.3", "iWARP"},
		}},
		iwarp: iwarp.New(iwarp.Options{}),
	}
}

// show writes listeners in one line: FABRIC/DEVICE@ADDR, ? for an optional one,
// and what would stand in for it.
func show(list []server.Listener) string {
	var out []string
	for _, l := range list {
		s := l.Fabric.Name() + "/" + l.Device + "@" + l.Addr
		if l.Optional {
			s += "?"
		}
		if l.Else != nil {
			s += "(" + show([]server.Listener{*l.Else}) + ")"
		}
		if l.Why == "" {
			s += " without a reason"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestPick(t *testing.T) {
	missing := fmt.Errorf("%w: libibverbs.so.1 is not here: apt-get install rdma-core", rdma.ErrNoDevice)
	for _, tc := range []struct {
		name    string
		missing error
		env     string // RDMAKV_ variables without the prefix
		want    string // of show; or
		err     string // in the error, words separated by |
		log     string // in the log
	}{
		{"auto with a device", nil, "LISTEN=10.0.0.1:7400",
			"verbs/mlx5_0@10.0.0.1:7400? iwarp/iwarp0@10.0.0.1:7400", "", ""},
		{"auto at an address of no device", nil, "LISTEN=127.0.0.1:7400", "iwarp/iwarp0@127.0.0.1:7400", "", ""},
		{"auto on two devices", nil, "LISTEN=10.0.0.1:1,10.0.0.2:1",
			"verbs/mlx5_0@10.0.0.1:1? iwarp/iwarp0@10.0.0.1:1 verbs/mlx5_1@10.0.0.2:1? iwarp/iwarp0@10.0.0.2:1", "", ""},
		{"auto without rdma-core", missing, "LISTEN=10.0.0.1:1", "iwarp/iwarp0@10.0.0.1:1", "", "apt-get install rdma-core"},
		{"an iWARP card has the TCP port", nil, "LISTEN=10.0.0.3:1",
			"verbs/cxgb4_0@10.0.0.3:1?(iwarp/iwarp0@10.0.0.3:1)", "", "the device is preferred"},
		{"bare verbs have the TCP port", nil, "LISTEN=10.0.0.1:1 VERBS_CONNECT=tcp",
			"verbs/mlx5_0@10.0.0.1:1?(iwarp/iwarp0@10.0.0.1:1)", "", "the device is preferred"},
		{"the wildcard", nil, "LISTEN=0.0.0.0:1 DEVICE=mlx5_0,mlx5_1,iwarp0",
			"verbs/mlx5_0@10.0.0.1:1 verbs/mlx5_1@10.0.0.2:1 iwarp/iwarp0@0.0.0.0:1", "", ""},
		{"one device by name, and no other", nil, "LISTEN=0.0.0.0:1 DEVICE=mlx5_1", "verbs/mlx5_1@10.0.0.2:1", "", ""},
		{"software by name", nil, "LISTEN=10.0.0.1:1 DEVICE=iwarp0", "iwarp/iwarp0@10.0.0.1:1", "", ""},
		{"iwarp", nil, "LISTEN=10.0.0.1:1 FABRIC=iwarp", "iwarp/iwarp0@10.0.0.1:1", "", ""},
		{"auto with shared memory", nil, "LISTEN=10.0.0.1:1 SHM_DIR=/run/kv", "verbs/mlx5_0@10.0.0.1:1? iwarp/iwarp0@10.0.0.1:1 shm/shm0@10.0.0.1:1?", "", ""},
		{"shared memory alone", nil, "LISTEN=10.0.0.1:1 FABRIC=shm SHM_DIR=/run/kv", "shm/shm0@10.0.0.1:1", "", ""},
		{"shared memory by name", nil, "LISTEN=10.0.0.1:1 DEVICE=shm0 SHM_DIR=/run/kv", "shm/shm0@10.0.0.1:1", "", ""},
		{"other devices by name", nil, "LISTEN=10.0.0.1:1 DEVICE=iwarp0 SHM_DIR=/run/kv", "iwarp/iwarp0@10.0.0.1:1", "", ""},
		{"RDMA required beside shared memory", nil, "LISTEN=10.0.0.1:1 REQUIRE_RDMA=true SHM_DIR=/run/kv", "verbs/mlx5_0@10.0.0.1:1", "", ""},
		{"shared memory where there is none", nil, "LISTEN=10.0.0.1:1 FABRIC=shm", "", "fabric: shm|no such device", ""},
		{"verbs", nil, "LISTEN=10.0.0.1:1 FABRIC=verbs", "verbs/mlx5_0@10.0.0.1:1", "", ""},
		{"RDMA required", nil, "LISTEN=10.0.0.1:1 REQUIRE_RDMA=true", "verbs/mlx5_0@10.0.0.1:1", "", ""},

		{"verbs without rdma-core", missing, "LISTEN=10.0.0.1:1 FABRIC=verbs", "", "fabric: verbs|apt-get install rdma-core", ""},
		{"RDMA required without rdma-core", missing, "LISTEN=10.0.0.1:1 REQUIRE_RDMA=true", "", "require_rdma|apt-get install", ""},
		{"verbs at another address", nil, "LISTEN=127.0.0.1:1 FABRIC=verbs", "", "listen 127.0.0.1:1|nobody has 127.0.0.1", ""},
		{"RDMA required at another address", nil, "LISTEN=127.0.0.1:1 REQUIRE_RDMA=true", "", "listen 127.0.0.1:1|no device in use", ""},
		{"a wrong name", nil, "LISTEN=10.0.0.1:1 DEVICE=mlx5_9", "", "mlx5_9|there is: cxgb4_0, mlx5_0, mlx5_1, iwarp0", ""},
		{"a name of another fabric", nil, "LISTEN=10.0.0.1:1 DEVICE=mlx5_0 FABRIC=iwarp", "", "mlx5_0|there is: iwarp0", ""},
		{"software by name where it is forbidden", nil, "LISTEN=10.0.0.1:1 DEVICE=iwarp0 FABRIC=verbs", "", "iwarp0|there is: cxgb4_0", ""},
		{"a name without rdma-core", missing, "LISTEN=10.0.0.1:1 DEVICE=mlx5_0", "", "mlx5_0|there is: iwarp0|apt-get install", ""},
		{"a device without one of the addresses", nil, "LISTEN=10.0.0.1:1 DEVICE=mlx5_0,mlx5_1", "", "mlx5_1|10.0.0.1:1|its own", ""},
		{"an address that the device has not", nil, "LISTEN=10.0.0.1:1,10.0.0.2:1 DEVICE=mlx5_0", "", "listen 10.0.0.2:1|mlx5_1 has it", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var env []string
			for _, v := range strings.Fields(tc.env) {
				env = append(env, "RDMAKV_"+v)
			}
			var log bytes.Buffer
			f, c := testFabrics(tc.missing), loaded(t, env...).Config
			if c.ShmDir != "" {
				f.shm = shm.New(shmOptions(c))
			}
			got, err := f.pick(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.err == "" && (err != nil || show(got) != tc.want) {
				t.Errorf("got  %s, %v\nwant %s", show(got), err, tc.want)
			}
			if tc.err != "" {
				if err == nil {
					t.Fatalf("picked %s", show(got))
				}
				for word := range strings.SplitSeq(tc.err, "|") {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the error lacks %q: %v", word, err)
					}
				}
			}
			if !strings.Contains(log.String(), tc.log) {
				t.Errorf("the log lacks %q: %s", tc.log, log.String())
			}
		})
	}
}

// TestFallsBack: a card that cannot be opened is left out of an automatic start,
// and fails one that asks for it.
func TestFallsBack(t *testing.T) {
	f := testFabrics(nil)
	card := f.verbs.(*fakeVerbs)
	card.devices = map[string]fakeCard{"mlx5_0": {"127.0.0.1", "RoCE v2"}}
	for _, tc := range []struct{ env, want, err string }{
		{"RDMAKV_FABRIC=auto", "iwarp/iwarp0", ""},
		{"RDMAKV_VERBS_CONNECT=tcp", "iwarp/iwarp0", ""},
		{"RDMAKV_FABRIC=verbs", "", "verbs/mlx5_0 at 127.0.0.1:0"},
		{"RDMAKV_REQUIRE_RDMA=true", "", "the card is on fire"},
		{"RDMAKV_DEVICE=mlx5_0", "", "the card is on fire"},
	} {
		t.Run(tc.env, func(t *testing.T) {
			var log bytes.Buffer
			a := &app{
				cfg:     loaded(t, tc.env, "RDMAKV_LISTEN=127.0.0.1:0", "RDMAKV_ADMIN_LISTEN=", "RDMAKV_DATA_DIR="+t.TempDir()+"/data"),
				stderr:  &log,
				fabrics: func(config.Config, *slog.Logger) fabricSet { return f },
			}
			cfg, err := a.serverConfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			srv, err := server.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = srv.Start(t.Context())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("started: %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(srv.Devices(), " "); got != tc.want {
				t.Errorf("serves on %s, want %s", got, tc.want)
			}
			if line := readyLine(srv); line != "ready data="+srv.Addrs()[0].String()+" fabrics=iwarp/iwarp0" {
				t.Errorf("the ready line is %q", line)
			}
			if err := srv.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if !strings.Contains(log.String(), "the card is on fire") {
				t.Errorf("the log does not say why: %s", log.String())
			}
		})
	}
}

// TestVerbsOptions: each key about verbs connections arrives, and a machine
// without RDMA devices says what to do.
func TestVerbsOptions(t *testing.T) {
	base := verbsOptions(loaded(t).Config, nil)
	for _, env := range []string{"VERBS_CONNECT=tcp", "GID_INDEX=3", "TRAFFIC_CLASS=106", "EXPERT_SERVICE_LEVEL=2", "EXPERT_PATH_MTU=1024"} {
		if got := verbsOptions(loaded(t, "RDMAKV_"+env).Config, nil); reflect.DeepEqual(got, base) {
			t.Errorf("%s changes nothing", env)
		}
	}
	f := newFabrics(loaded(t).Config, nil)
	if err := f.verbs.Unavailable(); err != nil && !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("unavailable: %v", err)
	}
}

// TestIWARPOptions: how to wait arrives, and spin: auto is not spin: 0.
func TestIWARPOptions(t *testing.T) {
	base := iwarpOptions(loaded(t).Config, nil)
	if base.Spin != 0 || base.Wait != wait.Adaptive {
		t.Errorf("by default %+v", base)
	}
	for env, want := range map[string]iwarp.Options{
		"WAIT_MODE=event":  {Wait: wait.Event},
		"WAIT_MODE=poll":   {Wait: wait.Poll},
		"EXPERT_SPIN=0s":   {Spin: -1},
		"EXPERT_SPIN=30us": {Spin: 30 * time.Microsecond},
	} {
		want.MaxPending = base.MaxPending // by the limit of open files
		want.NoCRCWithin = true           // in all programs
		if got := iwarpOptions(loaded(t, "RDMAKV_"+env).Config, nil); got != want {
			t.Errorf("%s gives %+v", env, got)
		}
	}
}
