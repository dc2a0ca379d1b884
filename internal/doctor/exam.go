package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// defaultPatience is enough for the retries of a device (half a second) and of
// TCP's first segments, many times.
const defaultPatience = 5 * time.Second

// maxPeers bounds the sessions that are tried.
const maxPeers = 256

// softDevice is the name of the device of the fabric iwarp.
const softDevice = "iwarp0"

// nearDevice is that of the fabric shm.
const nearDevice = "shm0"

// This is the machine that the program runs on. Dial is left to the caller,
// which has the configuration of a client.
func This() Host {
	return Host{
		Root: "/",
		Libraries: func() (verbs, cm error) {
			_, verbs = ibv.Devices()
			if cm = ibv.LoadCM(); cm != nil {
				return verbs, cm
			}
			ch, err := ibv.NewEventChannel()
			if err != nil {
				return verbs, err
			}
			return verbs, ch.Close()
		},
		Device: askDevice,
		Rights: tryRights,
		Resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
		Now:      time.Now,
		Patience: defaultPatience,
	}
}

// askDevice opens a device and asks it for its limits and ports.
func askDevice(name string) (at ibv.DeviceAttr, ports []ibv.PortAttr, err error) {
	c, err := ibv.Open(name)
	if err != nil {
		return at, nil, err
	}
	defer c.Close()
	if at, err = c.QueryDevice(); err != nil {
		return at, nil, err
	}
	for n := range int(at.PhysPortCnt) {
		p, err := c.QueryPort(uint8(n + 1))
		if err != nil {
			return at, ports, err
		}
		ports = append(ports, p)
	}
	return at, ports, nil
}

func tryRights(ctx context.Context, name string) (rdma.DeviceAttr, error) {
	dev, err := verbs.New(verbs.Options{ProbeRights: true, Connect: verbs.ConnectTCP, GIDIndex: -1}).Open(ctx, name)
	if err != nil {
		return rdma.DeviceAttr{}, err
	}
	return dev.Attr(), dev.Close()
}

// An exam is one examination.
type exam struct {
	Host
	set    Settings
	report Report
	holder map[int]bool    // processes that hold what is this node's: kvserver
	held   map[string]bool // addresses that they hold
}

// A deviceExam is the part of an examination that is about RDMA devices and what
// the kernel has for them.
type deviceExam struct {
	*exam
	active map[string]int // "mlx5_0 port 1" -> active MTU
}

// A peerExam is the part about the way to other nodes, and about what they say.
type peerExam struct {
	*exam
	devices *deviceExam
	nodes   map[uint64]string // incarnation of a node -> an address that leads there
	self    map[string]bool   // where this node itself is dialed

	founders []admin.Group                  // of the cluster whose nodes tell of their groups; nil: there are no replicas
	version  uint64                         // of the shard map that they are of
	told     map[string][]admin.GroupStatus // by node
	mute     []string                       // addresses of nodes that do not tell
}

// Run examines everything, in the order in which things depend on each other.
// It ends early only if ctx does; the report says what was not examined. found
// are findings of the caller's, which come first.
func Run(ctx context.Context, h Host, found []Step, s Settings) *Report {
	e := &exam{Host: h, set: s, holder: make(map[int]bool), held: make(map[string]bool)}
	devices := &deviceExam{exam: e, active: make(map[string]int)}
	e.report = Report{Role: "client", Good: true, Steps: []Step{}}
	if s.Node {
		e.report.Role = "node"
	}
	e.report.Add(found...)
	e.keyFiles()
	e.tls()
	devices.rdma()
	e.ways()
	if s.Node { // both find out whether the node runs, whose limits then count
		e.ports()
		e.dataDir()
	}
	e.memlock()
	if s.Node {
		e.openFiles()
		e.hugePages()
		e.cgroup()
	}
	e.clock()
	others := &peerExam{exam: e, devices: devices, nodes: make(map[uint64]string), self: make(map[string]bool), told: make(map[string][]admin.GroupStatus)}
	others.peers(ctx)
	return &e.report
}

// peers examines the way to every other node.
func (e *peerExam) peers(ctx context.Context) {
	s := &e.set
	for _, addr := range s.Join {
		switch {
		case ctx.Err() != nil:
		case e.isSelf(ctx, addr):
			e.skip("gossip with", addr, "that is this node itself")
		case s.NoGossip != nil:
			e.skip("gossip with", addr, "the gossip keys cannot be read")
		default:
			e.gossipPeer(ctx, addr)
		}
	}
	list := slices.Clone(s.Peers)
	for _, addr := range s.SelfPeers {
		if at, ok := e.runs(addr); ok {
			list, e.self[at] = append(list, at), true
		}
	}
	if len(list) == 0 {
		e.skip("peer", "", "no data address of a node is known, and none runs here: name some (kvclient doctor HOST:PORT...)")
	}
	for i := 0; i < len(list) && i < maxPeers; i++ { // grows while it is gone through
		switch addr := list[i]; {
		case ctx.Err() != nil:
		case s.NoSession != nil:
			e.skip("peer", addr, "the secret cannot be read")
		default:
			for _, other := range e.peer(ctx, addr) {
				if !slices.Contains(list, other) {
					list = append(list, other)
				}
			}
		}
	}
	if ctx.Err() != nil {
		e.skip("examination", "", "it was interrupted: peers were left out")
		return
	}
	e.groups()
}

// runs says where to dial this node at one of the addresses it listens at, if
// it is found running. A port of librdmacm is not seen: there the lock of the
// data directory tells.
func (e *exam) runs(addr string) (at string, ok bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" || !e.held[addr] && (e.set.Fabric != "verbs" || len(e.holder) == 0) {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		// A device answers at its own addresses alone.
		return net.JoinHostPort("127.0.0.1", port), e.set.Fabric != "verbs"
	}
	return addr, true
}

func (e *exam) ok(name, subject, format string, args ...any) {
	e.report.Add(Step{Name: name, Subject: subject, Level: OK, Text: fmt.Sprintf(format, args...)})
}

func (e *exam) skip(name, subject, format string, args ...any) {
	e.report.Add(Step{Name: name, Subject: subject, Level: Skip, Text: fmt.Sprintf(format, args...)})
}

// bad appends a step that is not ok.
func (e *exam) bad(level Level, name, subject, code, do, format string, args ...any) {
	e.report.Add(Step{Name: name, Subject: subject, Level: level, Code: code, Do: do, Text: fmt.Sprintf(format, args...)})
}

// hard reports whether the configuration insists on an RDMA device. If so, a
// fault that keeps one from being used is a failure and not a loss of speed.
func (e *exam) hard() bool {
	return e.set.Fabric == "verbs" || e.set.RequireRDMA || slices.ContainsFunc(e.set.Devices, func(d string) bool { return d != softDevice && d != nearDevice })
}

// without is the level of something that keeps RDMA devices from being used.
func (e *exam) without() Level {
	if e.hard() {
		return Fail
	}
	return Warn
}

// path is a path of the machine.
func (h *Host) path(elem ...string) string {
	return filepath.Join(append([]string{h.Root}, elem...)...)
}

// line reads a file of one line; empty if it cannot be read.
func (h *Host) line(elem ...string) string {
	data, err := os.ReadFile(h.path(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// number reads a file that holds one number.
func (h *Host) number(elem ...string) (uint64, bool) {
	n, err := strconv.ParseUint(h.line(elem...), 10, 64)
	return n, err == nil
}

// names lists a directory, sorted; empty if it cannot be read.
func (h *Host) names(elem ...string) (names []string) {
	list, err := os.ReadDir(h.path(elem...))
	if err != nil {
		return nil
	}
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

func (h *Host) exists(elem ...string) bool {
	_, err := os.Stat(h.path(elem...))
	return err == nil
}

// Bytes writes a size for people.
func Bytes(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), -1
	for f >= unit && i < 5 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[i])
}
