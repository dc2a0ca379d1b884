package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

func gid(s string) ibv.GID { return netip.MustParseAddr(s).As16() }

// roce is the table of a RoCE port as the kernel fills it: each address twice.
func roce(addrs ...string) (list []ibv.GIDEntry) {
	for _, a := range addrs {
		for _, kind := range []ibv.GIDType{ibv.GIDRoCEv1, ibv.GIDRoCEv2} {
			list = append(list, ibv.GIDEntry{GID: gid(a), Port: 1, Index: len(list), Type: kind, NetDev: "eth0"})
		}
	}
	return list
}

func TestChooseGID(t *testing.T) {
	table := roce("fe80::1", "10.0.0.1", "10.0.0.2", "2001:db8::1")
	v1 := []ibv.GIDEntry{table[0], table[2]}
	ib := []ibv.GIDEntry{{GID: gid("fe80::2:c903:1:2"), Port: 1, Type: ibv.GIDIB}}
	for _, c := range []struct {
		name  string
		gids  []ibv.GIDEntry
		want  int
		local string
		index int
		why   string
	}{
		{"IPv4 and RoCE v2 first", table, -1, "", 3, "best"},
		{"that of the address", table, -1, "10.0.0.2", 5, "that of 10.0.0.2"},
		{"that of an IPv6 address", table, -1, "2001:db8::1", 7, "that of"},
		{"that of a link-local address", table, -1, "fe80::1%eth0", 1, "that of"},
		{"an address of another device", table, -1, "192.168.0.1", 3, "best"},
		{"asked for", table, 2, "10.0.0.2", 2, "asked for"},
		{"RoCE v1 if there is nothing else", v1, -1, "", 2, "best"},
		{"RoCE v1 of the address", v1, -1, "fe80::1", 0, "that of"},
		{"link-local if there is nothing else", table[:2], -1, "", 1, "best"},
		{"InfiniBand", ib, -1, "", 0, "best"},
	} {
		var local netip.Addr
		if c.local != "" {
			local = netip.MustParseAddr(c.local)
		}
		g, why, err := chooseGID(&port{num: 1, gids: c.gids}, c.want, local)
		if err != nil || g.Index != c.index || !strings.Contains(why, c.why) {
			t.Errorf("%s: index %d because %q, %v; want %d because %q", c.name, g.Index, why, err, c.index, c.why)
		}
	}
	if _, _, err := chooseGID(&port{num: 1, gids: v1}, 1, netip.Addr{}); !errors.Is(err, rdma.ErrInvalid) || !strings.Contains(err.Error(), "10.0.0.1") {
		t.Errorf("an empty index: %v; want ErrInvalid and the table", err)
	}
	if _, _, err := chooseGID(&port{num: 1}, -1, netip.Addr{}); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("an empty table: %v", err)
	}
	if _, _, err := chooseGID(&port{num: 1}, 0, netip.Addr{}); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("index 0 of an empty table: %v", err)
	}
}

func ports(states ...ibv.PortState) (list []port) {
	for i, s := range states {
		list = append(list, port{num: uint8(i + 1), attr: ibv.PortAttr{State: s, ActiveMTU: ibv.MTU4096}})
	}
	return list
}

func TestChoosePort(t *testing.T) {
	for _, c := range []struct {
		name  string
		ports []port
		want  int
		num   uint8 // 0: an error
	}{
		{"the only one", ports(ibv.PortActive), 0, 1},
		{"the active one", ports(ibv.PortDown, ibv.PortActive), 0, 2},
		{"the first of two", ports(ibv.PortActive, ibv.PortActive), 0, 1},
		{"asked for", ports(ibv.PortActive, ibv.PortActive), 2, 2},
		{"asked for and down", ports(ibv.PortActive, ibv.PortDown), 2, 0},
		{"asked for and not there", ports(ibv.PortActive), 3, 0},
		{"all down", ports(ibv.PortDown, ibv.PortInit), 0, 0},
		{"none", nil, 0, 0},
	} {
		p, why, err := choosePort(c.ports, c.want)
		switch {
		case c.num == 0:
			if !errors.Is(err, rdma.ErrNoDevice) || len(c.ports) > 0 && !strings.Contains(err.Error(), "port 1 is") {
				t.Errorf("%s: %v, %v; want ErrNoDevice with the ports' states", c.name, p, err)
			}
		case err != nil || p.num != c.num || why == "":
			t.Errorf("%s: %+v because %q, %v; want port %d", c.name, p, why, err, c.num)
		}
	}
}

func TestChooseDevice(t *testing.T) {
	up, down := ports(ibv.PortActive), ports(ibv.PortDown)
	for _, c := range []struct {
		name string
		list []candidate
		want string // empty: an error
		text string // in reason or error
	}{
		{"the only one", []candidate{{name: "a", ports: up}}, "a", "only device"},
		{"the first active", []candidate{{name: "a", ports: down}, {name: "b", ports: up}, {name: "c", ports: up}}, "b", "first usable of 3"},
		{"RoCE before iWARP", []candidate{{name: "a", transport: ibv.TransportIWARP, ports: up}, {name: "b", ports: up}}, "b", "first usable of 2"},
		{"iWARP at last", []candidate{{name: "a", transport: ibv.TransportIWARP, ports: up}, {name: "b", ports: down}}, "a", "first usable of 2"},
		{"what is neither last", []candidate{{name: "a", transport: ibv.TransportUnknown, ports: up}, {name: "b", transport: ibv.TransportIWARP, ports: up}}, "b", "first usable of 2"},
		{"what is neither, alone", []candidate{{name: "a", transport: 3, ports: up}}, "a", "only device"},
		{"one that fails", []candidate{{name: "a", err: errors.New("no permission")}, {name: "b", ports: up}}, "b", "first usable of 2"},
		{"none usable", []candidate{{name: "a", err: errors.New("no permission")}, {name: "b", ports: down}}, "", "no permission"},
		{"none", nil, "", "no RDMA device"},
	} {
		name, why, err := chooseDevice(c.list, 0)
		switch {
		case c.want == "":
			if !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %q, %v; want ErrNoDevice and %q", c.name, name, err, c.text)
			}
		case err != nil || name != c.want || !strings.Contains(why, c.text):
			t.Errorf("%s: %q because %q, %v; want %q because %q", c.name, name, why, err, c.want, c.text)
		}
	}
}

func TestNames(t *testing.T) {
	eth := func(kinds ...ibv.GIDType) *port {
		p := &port{attr: ibv.PortAttr{LinkLayer: ibv.LinkEthernet}}
		for _, k := range kinds {
			p.gids = append(p.gids, ibv.GIDEntry{Type: k})
		}
		return p
	}
	for _, c := range []struct {
		transport ibv.Transport
		port      *port
		want      string
	}{
		{ibv.TransportIB, &port{attr: ibv.PortAttr{LinkLayer: ibv.LinkInfiniBand}}, "InfiniBand"},
		{ibv.TransportIB, nil, "InfiniBand"},
		{ibv.TransportIB, eth(ibv.GIDRoCEv1, ibv.GIDRoCEv2), "RoCE v2"},
		{ibv.TransportIB, eth(ibv.GIDRoCEv1), "RoCE v1"},
		{ibv.TransportIWARP, eth(), "iWARP"},
	} {
		if got := transportName(c.transport, c.port); got != c.want {
			t.Errorf("%v %+v is %q, want %q", c.transport, c.port, got, c.want)
		}
	}
	for bytes, want := range map[int]ibv.MTU{256: ibv.MTU256, 1024: ibv.MTU1024, 4096: ibv.MTU4096, 1500: 0, 0: 0, -1: 0} {
		if got := mtuOf(bytes); got != want {
			t.Errorf("MTU of %d bytes is %d, want %d", bytes, got, want)
		}
	}
	if s := gidText(gid("10.0.0.1")); s != "::ffff:10.0.0.1" {
		t.Errorf("GID prints as %q", s)
	}
	if s := gidText(ibv.GID{}); s != "" {
		t.Errorf("no GID prints as %q", s)
	}
}

// What attributes promise must be what the device has, less our own needs.
func TestAttributes(t *testing.T) {
	at := ibv.DeviceAttr{MaxQP: 10, MaxQPWR: 100, MaxSGE: 32, MaxCQE: 1000, MaxMR: 5, MaxQPRdAtom: 255, MaxQPInitRdAtom: 16, AtomicCap: 1, MaxSRQ: 3, MaxSRQWR: 7}
	p := ibv.PortAttr{MaxMsgSz: 1 << 23}
	ib := attributes(at, p, false, 64)
	if ib.MaxQPWR != 99 || ib.MaxSGE != ibv.MaxSGE || ib.MaxCQE != 1000-cqSlack || ib.MaxQPRdAtom != maxDepth || ib.MaxQPInitRdAtom != 16 || ib.MaxMsgSize != 1<<23 {
		t.Errorf("%+v", ib)
	}
	if want := rdma.CapWrite | rdma.CapSpinRead | rdma.CapSRQ | rdma.CapInline | rdma.CapAtomics | rdma.CapRNR | rdma.CapSendDelivers; ib.Caps != want {
		t.Errorf("capabilities %b, want %b", ib.Caps, want)
	}
	at.MaxSRQ, at.MaxSGE = 0, 4
	iw := attributes(at, p, true, 0)
	if want := rdma.CapWrite | rdma.CapSpinRead | rdma.CapReadSinkWrite; iw.Caps != want || iw.MaxSGE != 4 {
		t.Errorf("iWARP: capabilities %b, want %b; %d SGEs", iw.Caps, want, iw.MaxSGE)
	}
	at.VendorID = siwVendor
	if siw := attributes(at, p, true, 0); !siw.Caps.Has(rdma.CapAccessIgnored) {
		t.Error("siw ignores the rights of queue pairs, and nobody is told")
	}
}
