package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// device examines one RDMA device of the kernel: its files, its ports, and what
// it can register.
func (e *deviceExam) device(name string) {
	if !e.deviceFiles(name) {
		return
	}
	at, attrs, err := e.Device(name)
	if err != nil {
		e.bad(e.without(), "device", name, CodeDeviceQuery, "", "it cannot be asked: %v", err)
	}
	ports := e.names("sys/class/infiniband", name, "ports")
	active := 0
	for _, num := range ports {
		n, convErr := strconv.ParseUint(num, 10, 8)
		if convErr != nil {
			continue
		}
		p := e.lookAtPort(name, uint8(n))
		if len(attrs) >= int(n) && n > 0 {
			p.attr = &attrs[n-1]
		}
		if e.portState(p) {
			active++
			e.gids(p)
			e.mtu(p)
		}
	}
	if active == 0 && len(ports) > 1 {
		e.bad(e.without(), "device", name, CodePortDown, "", "none of its %d ports is active", len(ports))
	}
	if err == nil {
		e.mrLimits(name, at)
	}
	if err == nil && active > 0 && e.set.Node {
		e.rights(name)
	}
}

// rights says whether the device keeps a peer from READing that has not proved
// the secret yet, or has been revoked.
func (e *deviceExam) rights(name string) {
	const step = "rights"
	ctx, cancel := context.WithTimeout(context.Background(), e.Patience)
	defer cancel()
	at, err := e.Rights(ctx, name)
	const do = "keep strangers off this network, or take fabric: iwarp; a newer kernel may help (docs/security.md)"
	switch {
	case err != nil:
		e.bad(Warn, step, name, CodeDeviceQuery, "", "whether it keeps to the rights of queue pairs cannot be tried: %v", err)
	case at.Caps.Has(rdma.CapAccessIgnored):
		e.bad(Warn, step, name, CodeRights, do, "it lets every connected peer READ what he knows the rkey of: %s", at.Rights)
	case at.Caps.Has(rdma.CapNoRevoke):
		e.bad(Warn, step, name, CodeRights, do, "it keeps a right that was taken away until the connection is closed: %s", at.Rights)
	default:
		e.ok(step, name, "it keeps to the rights of queue pairs: %s", at.Rights)
	}
}

// A port is one port of a device, as sysfs has it.
type port struct {
	device   string
	num      uint8
	state    string // ACTIVE
	physical string // LinkUp
	link     string // Ethernet
	rate     string
	gids     []ibv.GIDEntry
	netdev   string        // "": unknown
	attr     *ibv.PortAttr // what the device itself says; nil: it was not asked
}

func (p *port) name() string { return fmt.Sprintf("%s port %d", p.device, p.num) }

// netdevOr is the interface, for a command that the user is to type.
func (p *port) netdevOr() string {
	if p.netdev == "" {
		return "INTERFACE"
	}
	return p.netdev
}

// lookAtPort reads a port below /sys/class/infiniband.
func (e *deviceExam) lookAtPort(device string, num uint8) *port {
	dir := []string{"sys/class/infiniband", device, "ports", strconv.Itoa(int(num))}
	read := func(name string) string { return e.line(append(dir, name)...) }
	afterColon := func(s string) string { // "4: ACTIVE"
		if _, rest, ok := strings.Cut(s, ": "); ok {
			return rest
		}
		return s
	}
	p := &port{device: device, num: num, state: afterColon(read("state")), physical: afterColon(read("phys_state")), link: read("link_layer"), rate: read("rate")}
	layer := ibv.LinkInfiniBand
	if p.link == "Ethernet" {
		layer = ibv.LinkEthernet
	}
	p.gids, _ = ibv.GIDsBelow(e.path("sys/class/infiniband"), device, num, layer) // none is a finding of its own
	for _, g := range p.gids {
		if g.NetDev != "" {
			p.netdev = g.NetDev
			break
		}
	}
	if p.netdev == "" {
		p.netdev = e.line("sys/class/infiniband", device, "parent") // software devices
	}
	if list := e.names("sys/class/infiniband", device, "device/net"); p.netdev == "" && len(list) == 1 {
		p.netdev = list[0]
	}
	return p
}

// portState says whether the port is up, and if not, on which side it is down.
func (e *deviceExam) portState(p *port) (active bool) {
	if p.state == "ACTIVE" {
		e.ok("port", p.name(), "%s, %s, %s, %s%s", p.state, p.physical, p.link, p.rate, onNetdev(p.netdev))
		return true
	}
	do := "look at cable, transceiver and switch port"
	switch flags, err := strconv.ParseUint(strings.TrimPrefix(e.line("sys/class/net", p.netdevOr(), "flags"), "0x"), 16, 32); {
	case p.link == "InfiniBand" && p.physical == "LinkUp":
		do = "the link is up and no subnet manager has configured it: start opensm, or look at the switch's"
	case err == nil && flags&1 == 0: // IFF_UP
		do = fmt.Sprintf("the interface is down: ip link set %s up", p.netdev)
	case err == nil && e.line("sys/class/net", p.netdev, "carrier") == "0":
		do = fmt.Sprintf("the interface %s is up and has no carrier: %s", p.netdev, do)
	}
	e.bad(e.without(), "port", p.name(), CodePortDown, do, "it is %s (physical state: %s)%s", orUnknown(p.state), orUnknown(p.physical), onNetdev(p.netdev))
	return false
}

func onNetdev(name string) string {
	if name == "" {
		return ""
	}
	return ", on " + name
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// gids says which GID is used and why. On Ethernet it decides the address that
// packets leave from, the VLAN, and whether routers pass them.
func (e *deviceExam) gids(p *port) {
	if len(p.gids) == 0 {
		e.bad(e.without(), "gid", p.name(), CodeNoGID, fmt.Sprintf("give its interface an address: ip address add ADDRESS/PREFIX dev %s", p.netdevOr()),
			"its GID table is empty, so no connection can be made over it")
		return
	}
	g, why, err := verbs.ExplainGID(p.gids, p.num, e.set.GIDIndex, e.localOn(p))
	if err != nil {
		e.bad(Fail, "gid", p.name(), CodeGIDIndex, "gid_index: -1 takes the entry of the address in use", "%v", err)
		return
	}
	ip := netip.AddrFrom16(g.GID).Unmap()
	text := why + e.vlan(g.NetDev)
	switch {
	case p.link != "Ethernet":
		e.ok("gid", p.name(), "%s", text)
	case g.Type == ibv.GIDRoCEv1:
		e.bad(Warn, "gid", p.name(), CodeGIDv1, "take one of RoCE v2 (gid_index), if the device has any: kvclient fabric devices shows the table",
			"%s: it is of RoCE v1, which is plain Ethernet and passes no router", text)
	case ip.IsLinkLocalUnicast():
		e.bad(Warn, "gid", p.name(), CodeGIDLocal, fmt.Sprintf("give its interface an IPv4 address, or a routed IPv6 one: ip address add ADDRESS/PREFIX dev %s", p.netdevOr()),
			"%s: it is a link-local address, reached within one Ethernet segment only", text)
	default:
		e.ok("gid", p.name(), "%s", text)
	}
}

// localOn is the address of listen that the port has, if any.
func (e *deviceExam) localOn(p *port) netip.Addr {
	for _, addr := range e.set.Listen {
		host, _, err := net.SplitHostPort(addr)
		ip, parseErr := netip.ParseAddr(host)
		if err != nil || parseErr != nil {
			continue
		}
		if slices.ContainsFunc(p.gids, func(g ibv.GIDEntry) bool { return netip.AddrFrom16(g.GID).Unmap() == ip.Unmap() }) {
			return ip.Unmap()
		}
	}
	return netip.Addr{}
}

// vlan says which VLAN an interface is, from /proc/net/vlan/config: lines of
// "NAME | ID | PARENT".
func (e *deviceExam) vlan(netdev string) string {
	for line := range strings.SplitSeq(e.line("proc/net/vlan/config"), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) == 3 && strings.TrimSpace(cells[0]) == netdev && netdev != "" {
			return fmt.Sprintf(", VLAN %s of %s", strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]))
		}
	}
	return onNetdev(netdev)
}
