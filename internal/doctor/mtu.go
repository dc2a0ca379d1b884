package doctor

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// roceHeaders is what the kernel takes off an interface's MTU for the largest
// headers of a RoCE packet (iboe_get_mtu of Linux): GRH or IP 40, UDP 8, BTH 12,
// XRC 4, atomic 28, ICRC 4.
const roceHeaders = 96

// carried is the largest RDMA MTU that an interface's MTU carries. It is 0 if
// not even the smallest fits.
func carried(netdev int) int {
	best := 0
	for m := ibv.MTU256; m <= ibv.MTU4096; m++ {
		if m.Bytes()+roceHeaders <= netdev {
			best = m.Bytes()
		}
	}
	return best
}

// mtu holds the device's MTU against the interface's and expert.path_mtu.
func (e *deviceExam) mtu(p *port) {
	if p.attr == nil {
		e.skip("mtu", p.name(), "the device was not asked")
		return
	}
	active, most := p.attr.ActiveMTU.Bytes(), p.attr.MaxMTU.Bytes()
	e.active[p.name()] = active
	if want := e.set.PathMTU; want > active {
		e.bad(Fail, "mtu", p.name(), CodeMTUMismatch, "expert.path_mtu: 0 takes what the port has; or raise the MTU of the interface and of the switch",
			"expert.path_mtu is %d and the port's active MTU %d", want, active)
		return
	}
	n, known := e.number("sys/class/net", p.netdevOr(), "mtu")
	netdev := int(min(n, 1<<20))
	if p.link != "Ethernet" || !known {
		e.ok("mtu", p.name(), "active MTU %d of at most %d", active, most)
		return
	}
	fits := carried(netdev)
	raise := fmt.Sprintf("ip link set %s mtu %d, the same on the switch and on every peer", p.netdev, 4500)
	switch {
	case active > fits:
		e.bad(Fail, "mtu", p.name(), CodeMTUMismatch, raise,
			"the device sends packets of %d bytes and headers, the interface %s carries %d: large READs will vanish", active, p.netdev, netdev)
	case active < fits && active < most:
		e.bad(Warn, "mtu", p.name(), CodeMTUMismatch, "set the interface down and up, so that the device takes its MTU",
			"the interface %s carries %d bytes, enough for an MTU of %d, and the device uses %d", p.netdev, netdev, min(fits, most), active)
	case active < most:
		e.bad(Warn, "mtu", p.name(), CodeMTUSmall, raise, "active MTU %d of at most %d: the interface %s carries %d bytes", active, most, p.netdev, netdev)
	default:
		e.ok("mtu", p.name(), "active MTU %d; the interface %s carries %d bytes", active, p.netdev, netdev)
	}
}

// mrLimits holds what the device registers against the regions of the store.
func (e *deviceExam) mrLimits(name string, at ibv.DeviceAttr) {
	if !e.set.Node || e.set.RegionSize == 0 {
		e.skip("memory regions", name, "only a node registers slabs")
		return
	}
	// There is one region for each slab, a spare set while rkeys are rotated,
	// and the buffers of sessions.
	regions := e.set.MemoryLimit/min(e.set.RegionSize, max(e.set.IndexRegion, 1)) + 1
	need := 2*regions + 64
	largest := max(e.set.RegionSize, e.set.IndexRegion)
	switch {
	case at.MaxMRSize > 0 && at.MaxMRSize < largest:
		e.bad(e.without(), "memory regions", name, CodeMRLimit, fmt.Sprintf("lower expert.region_size and expert.index_region_size to %s", Bytes(at.MaxMRSize)),
			"the device registers at most %s at a time, a region has %s", Bytes(at.MaxMRSize), Bytes(largest))
	case at.MaxMR > 0 && uint64(at.MaxMR) < need:
		e.bad(e.without(), "memory regions", name, CodeMRLimit, "raise expert.region_size and expert.index_region_size, or lower memory_limit",
			"the device has %d memory regions, %s of slabs need up to %d while rkeys are rotated", at.MaxMR, Bytes(e.set.MemoryLimit), need)
	default:
		e.ok("memory regions", name, "the device has %d of up to %s each; the slabs need up to %d of %s", at.MaxMR, bytesOrAny(at.MaxMRSize), need, Bytes(largest))
	}
}

func bytesOrAny(n uint64) string {
	if n == 0 || n >= 1<<62 {
		return "any size"
	}
	return Bytes(n)
}
