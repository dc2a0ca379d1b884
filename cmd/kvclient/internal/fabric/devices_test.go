package fabric

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// TestMemlock: the verdict, and the remedy that fits.
func TestMemlock(t *testing.T) {
	const gib = int64(1 << 30)
	for _, c := range []struct {
		name       string
		soft, hard int64
		ipcLock    bool
		devices    int
		verdict    string
		advice     string // empty: none
	}{
		{"no limit", unlimited, unlimited, false, 1, "enough: there is no limit", ""},
		{"root", 8 << 20, 8 << 20, true, 1, "CAP_IPC_LOCK", ""},
		{"just enough", gib + bufferReserve, gib + bufferReserve, false, 1, "enough", ""},
		{"a byte less", gib + bufferReserve - 1, gib + bufferReserve - 1, false, 1, "too low", "limits.conf"},
		{"the hard limit allows it", 8 << 20, unlimited, false, 1, "too low", "ulimit -l unlimited"},
		{"the hard limit is enough", 8 << 20, 2 * gib, false, 1, "too low", "ulimit -l 1114112"},
		{"two devices", gib + bufferReserve, gib + bufferReserve, false, 2, "too low", "the slabs need 2.1 GiB"},
		{"no device", 2 * gib, 2 * gib, false, 0, "enough", ""},
	} {
		m := judgeMemlock(c.soft, c.hard, c.ipcLock, uint64(gib), c.devices)
		advice := strings.Join(m.Advice, "\n")
		if !strings.HasPrefix(m.Verdict, c.verdict) && !strings.Contains(m.Verdict, c.verdict) ||
			(c.advice == "") != (advice == "") || !strings.Contains(advice, c.advice) {
			t.Errorf("%s: %q, advice %q", c.name, m.Verdict, advice)
		}
	}
}

// tree writes files below a root of its own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHugePages(t *testing.T) {
	const mib2 = "sys/kernel/mm/hugepages/hugepages-2048kB/"
	const gib1 = "sys/kernel/mm/hugepages/hugepages-1048576kB/"
	root := tree(t, map[string]string{
		mib2 + "nr_hugepages": "100\n", mib2 + "free_hugepages": "90\n", mib2 + "resv_hugepages": "10\n",
		gib1 + "nr_hugepages": "3\n", gib1 + "free_hugepages": "3\n", gib1 + "resv_hugepages": "0\n",
		"proc/meminfo": "MemTotal:       16384 kB\nHugepagesize:       2048 kB\n",
	})
	for _, c := range []struct {
		mode    string
		slabs   uint64
		verdict string
		advice  string
	}{
		{"off", 1 << 30, "not used", ""},
		{"on", 160 << 20, "enough", ""},
		{"on", 162 << 20, "too few", "vm.nr_hugepages=101;"},
		{"try", 1 << 30, "too few", "vm.nr_hugepages=532"},
	} {
		h := hugeOf(root, c.slabs, c.mode)
		if len(h.Pages) != 2 || h.Pages[0] != (hugeSize{2 << 20, 100, 90, 10}) || h.Pages[1] != (hugeSize{1 << 30, 3, 3, 0}) || h.Default != 2<<20 {
			t.Errorf("%+v", h)
		}
		advice := strings.Join(h.Advice, "\n")
		if !strings.HasPrefix(h.Verdict, c.verdict) || (c.advice == "") != (advice == "") || !strings.Contains(advice, c.advice) {
			t.Errorf("%s, %d: %q, advice %q", c.mode, c.slabs, h.Verdict, advice)
		}
	}
	if h := hugeOf(t.TempDir(), 1<<30, "on"); !strings.Contains(h.Verdict, "has none") {
		t.Errorf("no huge pages: %q", h.Verdict)
	}
	broken := tree(t, map[string]string{mib2 + "nr_hugepages": "many\n", mib2 + "free_hugepages": "1\n", mib2 + "resv_hugepages": "1\n"})
	if h := hugeOf(broken, 1<<30, "on"); !strings.HasPrefix(h.Verdict, "unknown") {
		t.Errorf("nonsense in sysfs: %q", h.Verdict)
	}
}

func TestIPCLock(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tx\nCapEff:\t0000000000004000\n": true,
		"CapEff:\t000001ffffffbfff\n":           false,
		"CapEff:\tnonsense\n":                   false,
		"":                                      false,
	} {
		if got := canIPCLock(tree(t, map[string]string{"proc/self/status": status})); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}

// sample is a machine with one good device, one with a small MTU and one that
// cannot be opened.
func sample() devicesReport {
	rxe := deviceInfo{Name: "rxe0", Kernel: "uverbs0", Transport: "RoCE", NodeGUID: guid(0x525400fffe123456), Vendor: "0x0000 part 0",
		Limits: deviceLimits{QP: 1000, MRSize: 1 << 63},
		Ports: []portInfo{{Port: 1, State: "ACTIVE", Physical: "link up", LinkLayer: "Ethernet", Rate: rateOf(1, 4), MTU: 1024, MaxMTU: 4096,
			GIDs: []gidInfo{{0, "fe80::1", "RoCE v2", "eth0"}, {1, "::ffff:10.0.0.1", "RoCE v2", "eth0"}}, PKeys: []string{"0xffff"}}}}
	mlx := deviceInfo{Name: "mlx5_0", Transport: "InfiniBand",
		Ports: []portInfo{{Port: 1, State: "DOWN", Physical: "polling", LinkLayer: "InfiniBand", Rate: rateOf(2, 128), MTU: 4096, MaxMTU: 4096, LID: 7}}}
	return devicesReport{RDMACore: coreReport{"ok", "ok"}, Devices: []deviceInfo{rxe, mlx, {Name: "bad0", Fault: "permission denied"}},
		Software: []string{"iwarp0: in software"},
		Listen:   []WayReport{{Address: "10.0.0.1:7400", Use: []string{"verbs/rxe0 at 10.0.0.1:7400: its own"}, Not: []string{"iwarp: not wanted"}}},
		Memlock:  judgeMemlock(8<<20, 8<<20, false, 1<<30, 2)}
}

// TestAdvice: each fault of the sample is named, with what helps.
func TestAdvice(t *testing.T) {
	r := sample()
	r.Advice = r.advice()
	all := strings.Join(r.Advice, "\n")
	for _, want := range []string{"rxe0 port 1: the MTU is 1024 of 4096", "ip link set eth0 mtu", "mlx5_0 has no active port", "bad0 cannot be opened: permission denied", "locked memory: the limit is 8.0 MiB"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "no RDMA device is used") {
		t.Errorf("a device is used:\n%s", all)
	}
	text := r.text()
	for _, want := range []string{"rxe0  RoCE, uverbs0, node GUID 5254:00ff:fe12:3456", "ACTIVE, link up, Ethernet, 10 Gb/s (1X QDR), MTU 1024 (at most 4096)",
		"GID 1  ::ffff:10.0.0.1  RoCE v2  eth0", "400 Gb/s (4X NDR)", "LID 7", "any size", "in this program: iwarp0", "advice\n  - rxe0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}

	none := devicesReport{RDMACore: coreReport{"install rdma-core", "install rdma-core"}}
	if list := none.advice(); len(list) != 2 || list[0] != "install rdma-core" || !strings.Contains(list[1], "iwarp works everywhere") {
		t.Errorf("%q", list)
	}
}

// TestDevices runs the command on this machine, whatever it has: it always
// answers, in both forms.
func TestDevices(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		var stdout, stderr bytes.Buffer
		a := &app.App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Env: []string{"HOME=/nonexistent"}}
		if code := a.Run(t.Context(), []string{"fabric", "devices", "-o", form}, Commands); code != cli.ExitOK || stderr.Len() > 0 {
			t.Fatalf("exit code %d, %s", code, stderr.String())
		}
		if form == "text" {
			if !strings.Contains(stdout.String(), "locked memory") || !strings.Contains(stdout.String(), "iwarp0") {
				t.Errorf("%s", stdout.String())
			}
			continue
		}
		var r devicesReport
		if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.RDMACore.Verbs == "" || r.Memlock.Verdict == "" || len(r.Listen) != 1 || len(r.Connect) != 1 || len(r.Software) != 2 {
			t.Errorf("%+v", r)
		}
		if os.Getenv("RDMAKV_LAB") != "" && (r.RDMACore != coreReport{"ok", "ok"} || len(r.Devices) == 0) {
			t.Errorf("in the lab there is a device: %+v", r)
		}
	}
}
