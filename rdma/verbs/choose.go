package verbs

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A port is what is known of one port of a device. Choosing among ports and
// GIDs is a matter of these values alone.
type port struct {
	num  uint8
	attr ibv.PortAttr
	gids []ibv.GIDEntry // by index
}

func (p *port) active() bool { return p.attr.State == ibv.PortActive }

// choosePort picks the requested port, or with 0 the first that is active, and
// says why. If the requested port is down it fails; it never picks another port.
func choosePort(ports []port, want int) (*port, string, error) {
	var states []string
	for i := range ports {
		p := &ports[i]
		switch {
		case want == int(p.num) && p.active():
			return p, fmt.Sprintf("port %d was asked for", want), nil
		case want == 0 && p.active():
			reason := fmt.Sprintf("port %d is active", p.num)
			if len(ports) > 1 {
				reason = fmt.Sprintf("port %d is the first active one of %d", p.num, len(ports))
			}
			return p, reason, nil
		}
		states = append(states, fmt.Sprintf("port %d is %s", p.num, stateName(p.attr.State)))
	}
	what := "no port is active"
	if want != 0 {
		what = fmt.Sprintf("port %d was asked for", want)
	}
	return nil, "", fmt.Errorf("%w: %s: %s", rdma.ErrNoDevice, what, strings.Join(states, ", "))
}

func stateName(s ibv.PortState) string {
	switch s {
	case ibv.PortNop:
		return "NOP"
	case ibv.PortDown:
		return "DOWN"
	case ibv.PortInit:
		return "INIT"
	case ibv.PortArmed:
		return "ARMED"
	case ibv.PortActive:
		return "ACTIVE"
	case ibv.PortActiveDefer:
		return "ACTIVE_DEFER"
	}
	return fmt.Sprintf("in state %d", uint8(s))
}

// chooseGID picks an entry of the port's GID table and says why: the requested
// index; else that of the local address; else the best. If the index has no entry
// it fails; it never picks another entry.
func chooseGID(p *port, want int, local netip.Addr) (ibv.GIDEntry, string, error) {
	if want >= 0 {
		for _, g := range p.gids {
			if g.Index == want {
				return g, fmt.Sprintf("GID %d was asked for", want), nil
			}
		}
		return ibv.GIDEntry{}, "", fmt.Errorf("%w: GID index %d of port %d is empty; there is: %s", rdma.ErrInvalid, want, p.num, listGIDs(p.gids))
	}
	var best *ibv.GIDEntry
	for i := range p.gids {
		if g := &p.gids[i]; best == nil || better(g, best, local) {
			best = g
		}
	}
	switch {
	case best == nil:
		return ibv.GIDEntry{}, "", fmt.Errorf("%w: the GID table of port %d is empty: does its network interface have an address?", rdma.ErrNoDevice, p.num)
	case matches(best, local):
		return *best, fmt.Sprintf("GID %d (%s) is that of %v", best.Index, best.Type, local), nil
	}
	return *best, fmt.Sprintf("GID %d (%s, %s) is the best of %d", best.Index, best.Type, gidText(best.GID), len(p.gids)), nil
}

// better ranks a before b: the local address first, then RoCE v2, then IPv4,
// then an address that routes, then the lower index.
func better(a, b *ibv.GIDEntry, local netip.Addr) bool {
	rank := func(g *ibv.GIDEntry) int {
		ip := gidAddr(g.GID)
		n := 0
		for _, yes := range []bool{matches(g, local), g.Type != ibv.GIDRoCEv1, ip.Is4(), !ip.IsLinkLocalUnicast()} {
			n *= 2
			if yes {
				n++
			}
		}
		return n
	}
	return rank(a) > rank(b)
}

func matches(g *ibv.GIDEntry, local netip.Addr) bool {
	return local.IsValid() && gidAddr(g.GID) == local.Unmap().WithZone("")
}

// gidAddr is a GID as the IP address that it is on RoCE.
func gidAddr(g ibv.GID) netip.Addr { return netip.AddrFrom16(g).Unmap() }

// gidText prints a GID as the tools do, but an IPv4 address readably.
func gidText(g ibv.GID) string {
	if g == (ibv.GID{}) {
		return ""
	}
	return netip.AddrFrom16(g).String()
}

// listGIDs writes a GID table for an error.
func listGIDs(gids []ibv.GIDEntry) string {
	var list []string
	for _, g := range gids {
		list = append(list, fmt.Sprintf("%d (%s, %s)", g.Index, g.Type, gidText(g.GID)))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// mtuOf is the code of an MTU in bytes, or 0 if there is none.
func mtuOf(bytes int) ibv.MTU {
	for m := ibv.MTU256; m <= ibv.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}

// transportName is what DeviceInfo.Transport says of a device.
func transportName(t ibv.Transport, p *port) string {
	if t == ibv.TransportIWARP {
		return "iWARP"
	}
	if p == nil || p.attr.LinkLayer != ibv.LinkEthernet {
		return "InfiniBand"
	}
	for _, g := range p.gids {
		if g.Type == ibv.GIDRoCEv2 {
			return "RoCE v2"
		}
	}
	return "RoCE v1"
}

// A candidate is a device that Open("") may choose.
type candidate struct {
	name      string
	transport ibv.Transport
	ports     []port
	err       error // why it could not be looked at
}

// rank is in which order transports are chosen: InfiniBand and RoCE before iWARP,
// and behind both what is neither (EFA, usnic), which may have no RC queue pairs.
func rank(t ibv.Transport) int {
	switch t {
	case ibv.TransportIB:
		return 0
	case ibv.TransportIWARP:
		return 1
	}
	return 2
}

// chooseDevice picks the first device with a usable port, in the order of rank,
// and says why.
func chooseDevice(list []candidate, wantPort int) (name, reason string, err error) {
	var why []string
	for class := range 3 {
		for _, c := range list {
			if rank(c.transport) != class {
				continue
			}
			if c.err != nil {
				why = append(why, fmt.Sprintf("%s: %v", c.name, c.err))
				continue
			}
			if _, _, err := choosePort(c.ports, wantPort); err != nil {
				why = append(why, fmt.Sprintf("%s: %v", c.name, err))
				continue
			}
			which := "the only device"
			if len(list) > 1 {
				which = fmt.Sprintf("the first usable of %d devices", len(list))
			}
			return c.name, which, nil
		}
	}
	if len(why) == 0 {
		return "", "", fmt.Errorf("%w: this machine has no RDMA device", rdma.ErrNoDevice)
	}
	return "", "", fmt.Errorf("%w: none is usable: %s", rdma.ErrNoDevice, strings.Join(why, "; "))
}

// ExplainGID says which entry of a port's GID table this package uses, and why:
// that of index want, or with -1 that of the local address (which may be the zero
// Addr), or the best. It looks at nothing but its arguments.
func ExplainGID(gids []ibv.GIDEntry, num uint8, want int, local netip.Addr) (ibv.GIDEntry, string, error) {
	return chooseGID(&port{num: num, gids: gids}, want, local)
}
