package runs

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// InLab reports whether this runs in a guest of the lab. There nothing is
// skipped: what a test needs is there, or the test fails.
func InLab() bool { return os.Getenv("RDMAKV_LAB") != "" }

// A Device is an RDMA device of this machine with an address to use it by.
type Device struct {
	Name  string
	Addr  string // IP address
	IWARP bool
}

// NeedDevice finds a device whose port is active. Without one it skips the test,
// or fails it in the lab.
func NeedDevice(t testing.TB) Device {
	t.Helper()
	lacks := t.Skipf
	if InLab() {
		lacks = t.Fatalf
	}
	devices, err := ibv.Devices()
	if err != nil {
		lacks("no RDMA here: %v", err)
	}
	for _, info := range devices {
		d := Device{Name: info.Name, IWARP: info.Transport == ibv.TransportIWARP}
		if d.Addr = address(t, info.Name); d.Addr != "" {
			return d
		}
	}
	lacks("none of %d RDMA devices has an active port with an IPv4 address", len(devices))
	return Device{}
}

// address is the IPv4 address in the GID table of port 1, if that is active.
func address(t testing.TB, name string) string {
	t.Helper()
	c, err := ibv.Open(name)
	if err != nil {
		t.Logf("%s: %v", name, err)
		return ""
	}
	defer c.Close()
	port, err := c.QueryPort(1)
	if err != nil || port.State != ibv.PortActive {
		t.Logf("%s: state %v, %v", name, port.State, err)
		return ""
	}
	table, err := c.GIDTable(1)
	if err != nil {
		t.Logf("%s: %v", name, err)
		return ""
	}
	for _, e := range table {
		if a := netip.AddrFrom16(e.GID); a.Is4In6() {
			return a.Unmap().String()
		}
	}
	if c.Info().Transport == ibv.TransportIWARP {
		return interfaceAddress(t) // the GID of an iWARP device is a MAC address
	}
	return ""
}

// interfaceAddress is the first IPv4 address of an interface that is up and no
// loopback: a machine with an iWARP device in the lab has one such interface.
func interfaceAddress(t testing.TB) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr().String()
			}
		}
	}
	return ""
}

// NeedProgram finds a program on the path. Without it the test is skipped, or
// fails in the lab.
func NeedProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err != nil && InLab():
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	return path
}
