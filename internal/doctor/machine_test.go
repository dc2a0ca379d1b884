package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
	"github.com/rdmakv/rdmakv/store/layout"
)

// A rig is a machine that is made of files, with one RoCE device, on which
// nothing is wrong until a test breaks something.
type rig struct {
	t    *testing.T
	host Host
	set  Settings
	at   ibv.DeviceAttr
	port ibv.PortAttr
	peer *fakePeer
}

const (
	gidV4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"
	gidLL = "fe80:0000:0000:0000:5054:00ff:fe12:3456"
)

func newRig(t *testing.T) *rig {
	root := t.TempDir()
	r := &rig{
		t: t, peer: &fakePeer{now: time.Now, mtu: 4096},
		at: ibv.DeviceAttr{MaxMR: 1 << 20, MaxMRSize: 1 << 40, PhysPortCnt: 1}, port: ibv.PortAttr{ActiveMTU: ibv.MTU4096, MaxMTU: ibv.MTU4096},
	}
	data := filepath.Join(root, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	r.host = Host{
		Root:      root,
		Libraries: func() (error, error) { return nil, nil },
		Device:    func(string) (ibv.DeviceAttr, []ibv.PortAttr, error) { return r.at, []ibv.PortAttr{r.port}, nil },
		Rights: func(context.Context, string) (rdma.DeviceAttr, error) {
			return rdma.DeviceAttr{Rights: "tried"}, nil
		},
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
		Dial: func(context.Context, string) (Peer, error) { return r.peer, nil }, Now: time.Now, Patience: 20 * time.Second,
	}
	r.set = Settings{
		Node: true, Fabric: "verbs", VerbsConnect: "cm", GIDIndex: -1, DataDir: data,
		Listen: []string{"10.0.0.1:7400"}, MaxSessions: 4096, MemoryLimit: 1 << 30, RegionSize: 128 << 20, IndexRegion: 16 << 20, HugePages: "on",
		Ways:  []Way{{Address: "10.0.0.1:7400", Listen: true, Use: []string{"verbs/mlx5_0: its own address"}}},
		Peers: []string{"10.0.0.2:7400"},
	}
	const dev, net, huge = "sys/class/infiniband/mlx5_0/", "sys/class/net/eth2/", "sys/kernel/mm/hugepages/hugepages-2048kB/"
	for name, text := range map[string]string{
		"sys/module/ib_uverbs/refcnt": "1", "sys/module/rdma_ucm/refcnt": "1",
		dev + "ports/1/state": "4: ACTIVE", dev + "ports/1/phys_state": "5: LinkUp", dev + "ports/1/link_layer": "Ethernet", dev + "ports/1/rate": "100 Gb/sec (4X EDR)",
		dev + "ports/1/gids/0": gidLL, dev + "ports/1/gid_attrs/types/0": "RoCE v2", dev + "ports/1/gid_attrs/ndevs/0": "eth2",
		dev + "ports/1/gids/1": gidV4, dev + "ports/1/gid_attrs/types/1": "IB/RoCE v1", dev + "ports/1/gid_attrs/ndevs/1": "eth2",
		dev + "ports/1/gids/2": gidV4, dev + "ports/1/gid_attrs/types/2": "RoCE v2", dev + "ports/1/gid_attrs/ndevs/2": "eth2",
		dev + "device/infiniband_verbs/uverbs0/dev": "231:192", "dev/infiniband/uverbs0": "", "dev/infiniband/rdma_cm": "",
		net + "mtu": "4500", net + "flags": "0x1003", net + "carrier": "1",
		huge + "nr_hugepages": "600", huge + "free_hugepages": "600", huge + "resv_hugepages": "0",
		"proc/meminfo":       "MemTotal:       16384000 kB\nHugepagesize:       2048 kB",
		"proc/self/limits":   "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         unlimited            unlimited            bytes\nMax open files            65536                65536                files",
		"proc/self/status":   "Name:\tkvclient\nCapEff:\t0000000000000000",
		"proc/self/cgroup":   "0::/system.slice/rdmakv.service",
		"proc/net/vlan/none": "",
		"sys/fs/cgroup/system.slice/rdmakv.service/memory.max":              "max",
		"sys/fs/cgroup/system.slice/rdmakv.service/rdma.max":                "mlx5_0 hca_handle=max hca_object=max",
		"sys/devices/system/clocksource/clocksource0/current_clocksource":   "tsc",
		"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet",
	} {
		r.file(name, text)
	}
	return r
}

// file makes or replaces a file of the machine.
func (r *rig) file(name, text string) {
	r.t.Helper()
	path := r.host.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := os.RemoveAll(r.host.path(name)); err != nil {
		r.t.Fatal(err)
	}
}

// run examines the machine and returns the codes of failures, and of
// warnings that are the rig's and not this machine's.
func (r *rig) run() (report *Report, failed, warned []string) {
	report = Run(r.t.Context(), r.host, nil, r.set)
	for _, s := range report.Steps {
		switch {
		case s.Level == Fail:
			failed = append(failed, s.Code)
		case s.Level == Warn && s.Code != CodeClockUnsynced && s.Code != CodeDataSlow && s.Code != CodeDataSpace:
			warned = append(warned, s.Code)
		}
		if (s.Level == Fail || s.Level == Warn) == (s.Code == "") || s.Text == "" {
			r.t.Errorf("a step without its code, or with one too many: %+v", s)
		}
	}
	return report, failed, warned
}

// text is what a report says of a code.
func text(report *Report, code string) string {
	for _, s := range report.Steps {
		if s.Code == code {
			return s.Text + " -> " + s.Do
		}
	}
	return ""
}

func TestGoodMachine(t *testing.T) {
	r := newRig(t)
	report, failed, warned := r.run()
	if len(failed) > 0 || len(warned) > 0 || !report.Good {
		t.Errorf("a machine on which nothing is wrong: %v, %v\n%s", failed, warned, report.Text())
	}
	all := report.Text()
	for _, want := range []string{"GID 2 (RoCE v2) is that of 10.0.0.1, on eth2", "active MTU 4096", "ok    session 10.0.0.2:7400", "ok    large read", "ok    locked memory"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestVLAN: the VLAN of an interface is said with the GID.
func TestVLAN(t *testing.T) {
	r := newRig(t)
	r.file("proc/net/vlan/config", "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\neth2           | 100  | eth0")
	if report, failed, _ := r.run(); len(failed) > 0 || !strings.Contains(report.Text(), "that of 10.0.0.1, VLAN 100 of eth0") {
		t.Errorf("%v\n%s", failed, report.Text())
	}
}

// TestBrokenMachines breaks one thing each: it is what fails, alone, with what
// helps.
func TestBrokenMachines(t *testing.T) {
	const dev, net = "sys/class/infiniband/mlx5_0/", "sys/class/net/eth2/"
	for _, c := range []struct {
		name  string
		spoil func(*rig)
		code  string
		level Level
		text  string // in what is said, or what helps
	}{
		{"wrong device name", func(r *rig) { r.set.Devices = []string{"mlx5_9"} }, CodeDeviceName, Fail, "this kernel has mlx5_0"},
		{"a secret that can be guessed", func(r *rig) { r.set.WeakSecrets = []string{"tenant alice"} }, CodeWeakSecret, Warn, "head -c 32 /dev/urandom"},
		{"no device", func(r *rig) { r.remove("sys/class/infiniband") }, CodeNoDevice, Fail, "rdma link add rxe0"},
		{"module missing", func(r *rig) { r.remove("sys/module/rdma_ucm") }, CodeModule, Fail, "modprobe rdma_ucm"},
		{"library missing", func(r *rig) {
			r.host.Libraries = func() (error, error) {
				return nil, &ibv.LoadError{Library: "librdmacm.so.1", Package: "librdmacm1", Cause: errors.New("not found")}
			}
		}, CodeLibrary, Fail, "librdmacm1"},
		{"no device file", func(r *rig) { r.remove("dev/infiniband/uverbs0") }, CodeDeviceFile, Fail, "modprobe ib_uverbs"},
		{"the device does not answer", func(r *rig) {
			r.host.Device = func(string) (ibv.DeviceAttr, []ibv.PortAttr, error) {
				return r.at, nil, errors.New("no such device")
			}
		}, CodeDeviceQuery, Fail, "no such device"},
		{"rights of queue pairs ignored", func(r *rig) {
			r.host.Rights = func(context.Context, string) (rdma.DeviceAttr, error) {
				return rdma.DeviceAttr{Caps: rdma.CapAccessIgnored | rdma.CapNoRevoke, Rights: "it has READ without"}, nil
			}
		}, CodeRights, Warn, "it has READ without"},
		{"rights of queue pairs kept after they were revoked", func(r *rig) {
			r.host.Rights = func(context.Context, string) (rdma.DeviceAttr, error) {
				return rdma.DeviceAttr{Caps: rdma.CapNoRevoke, Rights: "it has READ after"}, nil
			}
		}, CodeRights, Warn, "it has READ after"},
		{"rights of queue pairs cannot be tried", func(r *rig) {
			r.host.Rights = func(context.Context, string) (rdma.DeviceAttr, error) {
				return rdma.DeviceAttr{}, errors.New("no queue pairs left")
			}
		}, CodeDeviceQuery, Warn, "no queue pairs left"},
		{"port down", func(r *rig) {
			r.file(dev+"ports/1/state", "1: DOWN")
			r.file(dev+"ports/1/phys_state", "3: Disabled")
			r.file(net+"flags", "0x1002")
		}, CodePortDown, Fail, "ip link set eth2 up"},
		{"no carrier", func(r *rig) {
			r.file(dev+"ports/1/state", "1: DOWN")
			r.file(net+"carrier", "0")
		}, CodePortDown, Fail, "no carrier: look at cable"},
		{"no subnet manager", func(r *rig) {
			r.file(dev+"ports/1/state", "2: INIT")
			r.file(dev+"ports/1/link_layer", "InfiniBand")
		}, CodePortDown, Fail, "opensm"},
		{"no GID", func(r *rig) {
			for i := range 3 {
				r.file(fmt.Sprint(dev, "ports/1/gids/", i), "0000:0000:0000:0000:0000:0000:0000:0000")
			}
		}, CodeNoGID, Fail, "ip address add"},
		{"GID index", func(r *rig) { r.set.GIDIndex = 7 }, CodeGIDIndex, Fail, "index 7"},
		{"RoCE v1", func(r *rig) { r.set.GIDIndex = 1 }, CodeGIDv1, Warn, "passes no router"},
		{"link-local GID", func(r *rig) { r.remove(dev + "ports/1/gids/1") }, CodeGIDLocal, Warn, "link-local"},
		{"expert.path_mtu above the port's", func(r *rig) { r.set.PathMTU, r.port.ActiveMTU = 4096, ibv.MTU1024 }, CodeMTUMismatch, Fail, "expert.path_mtu is 4096"},
		{"interface below the device", func(r *rig) { r.file(net+"mtu", "1500") }, CodeMTUMismatch, Fail, "large READs will vanish"},
		{"device below the interface", func(r *rig) { r.port.ActiveMTU = ibv.MTU1024 }, CodeMTUMismatch, Warn, "enough for an MTU of 4096"},
		{"small MTU", func(r *rig) { r.port.ActiveMTU = ibv.MTU1024; r.file(net+"mtu", "1500") }, CodeMTUSmall, Warn, "ip link set eth2 mtu 4500"},
		{"the peer's MTU is smaller", func(r *rig) { r.peer.mtu = 1024 }, CodeMTUMismatch, Warn, "came to 1024"},
		{"no fabric at listen", func(r *rig) { r.set.Ways[0].Use = nil }, CodeNotUsed, Fail, "device's interface"},
		{"memlock", func(r *rig) {
			r.file("proc/self/limits", "Max locked memory         8388608              8388608              bytes")
		}, CodeMemlock, Fail, "LimitMEMLOCK=infinity"},
		{"memlock that can be raised", func(r *rig) {
			r.file("proc/self/limits", "Max locked memory         8388608              unlimited            bytes")
		}, CodeMemlock, Fail, "ulimit -l unlimited"},
		{"few open files", func(r *rig) {
			r.file("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\nMax open files            1024                 4096                 files")
		}, CodeOpenFiles, Warn, "LimitNOFILE="},
		{"few memory regions", func(r *rig) { r.at.MaxMR = 32 }, CodeMRLimit, Fail, "raise expert.region_size"},
		{"small memory regions", func(r *rig) { r.at.MaxMRSize = 64 << 20 }, CodeMRLimit, Fail, "lower expert.region_size"},
		{"no huge pages", func(r *rig) { r.remove("sys/kernel/mm/hugepages") }, CodeHugePages, Fail, "this kernel has none"},
		{"few huge pages", func(r *rig) { r.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100") }, CodeHugePages, Fail, "vm.nr_hugepages=1012"},
		{"few huge pages to try", func(r *rig) {
			r.set.HugePages = "try"
			r.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0")
		}, CodeHugePages, Warn, "normal size"},
		{"cgroup memory", func(r *rig) { r.file("sys/fs/cgroup/system.slice/memory.max", "536870912") }, CodeCgroup, Fail, "MemoryMax="},
		{"cgroup version 1", func(r *rig) {
			r.file("proc/self/cgroup", "9:memory:/docker/x\n1:name=systemd:/docker/x")
			r.file("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1073741824")
		}, CodeCgroup, Fail, "the kernel would kill it"},
		{"cgroup rdma", func(r *rig) {
			r.file("sys/fs/cgroup/system.slice/rdmakv.service/rdma.max", "mlx5_0 hca_handle=2 hca_object=40")
		}, CodeCgroup, Fail, "rdma.max allows 40"},
		{"slow clock", func(r *rig) { r.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet") }, CodeClockSource, Warn, "tsc=reliable"},
		{"clock skew", func(r *rig) { r.peer.now = func() time.Time { return time.Now().Add(-90 * time.Second) } }, CodeClockSkew, Fail, "1m30"},
		{"a little clock skew", func(r *rig) { r.peer.now = func() time.Time { return time.Now().Add(5 * time.Second) } }, CodeClockSkew, Warn, "ahead of"},
		{"name that does not resolve", func(r *rig) {
			r.set.Peers = []string{"kv9.invalid:7400"}
			r.host.Resolve = func(context.Context, string) ([]netip.Addr, error) {
				return nil, &noSuchHost
			}
		}, CodeName, Fail, "getent hosts kv9.invalid"},
		{"wrong secret", func(r *rig) { r.refuse(client.ErrAuth) }, CodeSecret, Fail, "secret_file"},
		{"another release", func(r *rig) { r.refuse(client.ErrVersion) }, CodeVersion, Fail, "kvclient version"},
		{"only software reaches it", func(r *rig) { r.refuse(client.ErrNoRDMA) }, CodeNoRDMA, Fail, "require_rdma"},
		{"no answer to the session", func(r *rig) { r.refuse(context.DeadlineExceeded) }, CodeSession, Fail, "4791/udp"},
		{"messages are not answered", func(r *rig) { r.peer.send = errors.New("stopped") }, CodeSend, Fail, "SIGSTOP"},
		{"READs are refused", func(r *rig) { r.peer.read = errors.New("remote access error") }, CodeRead, Fail, "one-sided right"},
		{"large READs vanish", func(r *rig) { r.peer.large = errors.New("retries exceeded") }, CodePathMTU, Fail, "expert.path_mtu: 1024"},
		{"data directory is a file", func(r *rig) {
			r.file("file", "")
			r.set.DataDir = r.host.path("file")
		}, CodeDataDir, Fail, "no directory"},
		{"address of another machine", func(r *rig) { r.set.Admin = "192.0.2.1:7401" }, CodePortAddress, Fail, "not this machine's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			c.spoil(r)
			report, failed, warned := r.run()
			want, other := failed, warned
			if c.level == Warn {
				want, other = warned, failed
			}
			if !slices.Equal(slices.Compact(want), []string{c.code}) || len(other) > 0 || !strings.Contains(text(report, c.code), c.text) {
				t.Errorf("failed %v, warned %v, want %s alone, with %q\n%s", failed, warned, c.code, c.text, report.Text())
			}
			if c.level == Fail && (report.Good || report.First != c.code || report.Failed == 0) {
				t.Errorf("%+v", report)
			}
		})
	}
}

var noSuchHost = net.DNSError{Err: "no such host", Name: "kv9.invalid", IsNotFound: true}

func (r *rig) refuse(err error) {
	r.host.Dial = func(context.Context, string) (Peer, error) { return nil, fmt.Errorf("rdmakv dial: %w", err) }
}

// A fakePeer is a session with a node of one region, whose beat is right.
type fakePeer struct {
	now               func() time.Time
	mtu               int
	send, read, large error
}

func (p *fakePeer) Server() admin.ServerInfo {
	return admin.ServerInfo{ID: "n2", Incarnation: 7, Fabric: "verbs", Device: "mlx5_0", Port: 1, MTU: p.mtu}
}

func (p *fakePeer) Ping(context.Context) (time.Duration, error)     { return time.Microsecond, p.send }
func (p *fakePeer) PingRead(context.Context) (time.Duration, error) { return time.Microsecond, p.read }
func (p *fakePeer) Close() error                                    { return nil }

func (p *fakePeer) View(context.Context) (*layout.View, error) {
	return &layout.View{Incarnation: 7, Version: 1, Regions: []layout.Region{{ID: 1, Kind: layout.KindIndex, Length: 1 << 20}}}, nil
}

func (p *fakePeer) ReadRegion(_ context.Context, _ uint32, off uint64, dst []byte) error {
	if len(dst) > 4096 {
		return p.large
	}
	mem := make([]byte, layout.BeatOffset+layout.BeatSize)
	layout.StoreBeat(mem, layout.Beat{Counter: 9, Incarnation: 7, TimeMicros: uint64(p.now().UnixMicro())})
	copy(dst, mem[off:])
	return nil
}
