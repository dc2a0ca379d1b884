package fabric

import (
	"fmt"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// verbsDevices asks libibverbs about every device. It needs no fabric: it must
// also work on a machine on which the fabric does not. A library that is missing
// leaves no device to look at, and is named with what to install.
func verbsDevices() (coreReport, []deviceInfo) {
	core := coreReport{Verbs: "ok", CM: "ok"}
	devices := []deviceInfo{}
	list, err := ibv.Devices()
	if err != nil {
		core.Verbs = err.Error()
	}
	// The connection manager is a library and a kernel module of its own: devices
	// may be there and no connection possible.
	if err := cmWorks(); err != nil {
		core.CM = err.Error()
	}
	for _, d := range list {
		devices = append(devices, lookAt(d))
	}
	return core, devices
}

// cmWorks tries what every connection by librdmacm begins with.
func cmWorks() error {
	if err := ibv.LoadCM(); err != nil {
		return err
	}
	// This opens /dev/infiniband/rdma_cm, which may be missing or not be allowed.
	ch, err := ibv.NewEventChannel()
	if err != nil {
		return err
	}
	return ch.Close()
}

// lookAt is what a device says of itself. A device that cannot be opened is in
// the report with the reason: mostly the permissions of /dev/infiniband.
func lookAt(d ibv.DeviceInfo) deviceInfo {
	info := deviceInfo{Name: d.Name, Kernel: d.Kernel, Transport: d.Transport.String(), NodeGUID: guid(d.GUID), Ports: []portInfo{}}
	c, err := ibv.Open(d.Name)
	if err != nil {
		info.Fault = err.Error()
		return info
	}
	defer c.Close()
	attr, err := c.QueryDevice()
	if err != nil {
		info.Fault = err.Error()
		return info
	}
	info.Firmware = attr.FWVer
	info.Vendor = fmt.Sprintf("%#06x part %d", attr.VendorID, attr.VendorPartID)
	info.Limits = deviceLimits{
		QP: attr.MaxQP, QPWR: attr.MaxQPWR, SGE: attr.MaxSGE, CQ: attr.MaxCQ, CQE: attr.MaxCQE,
		MR: attr.MaxMR, MRSize: attr.MaxMRSize, PD: attr.MaxPD, SRQ: attr.MaxSRQ, SRQWR: attr.MaxSRQWR, MW: attr.MaxMW,
		RdAtom: attr.MaxQPRdAtom, InitAtom: attr.MaxQPInitRdAtom, Atomic: atomicCap(attr.AtomicCap), PageSizes: attr.PageSizeCap,
	}
	for n := 1; n <= int(attr.PhysPortCnt); n++ {
		info.Ports = append(info.Ports, lookAtPort(c, uint8(n)))
	}
	// Only the ports tell whether it is RoCE.
	info.Transport = transportOf(d.Transport, info.Ports)
	return info
}

// lookAtPort is a port, with whatever of it can be asked.
func lookAtPort(c *ibv.Context, n uint8) portInfo {
	p := portInfo{Port: int(n), GIDs: []gidInfo{}, PKeys: []string{}}
	attr, err := c.QueryPort(n)
	if err != nil {
		p.Fault = err.Error()
		return p
	}
	p.State, p.Physical, p.LinkLayer = attr.State.String(), physState(attr.PhysState), attr.LinkLayer.String()
	p.Rate = rateOf(attr.ActiveWidth, attr.ActiveSpeed)
	p.MTU, p.MaxMTU = attr.ActiveMTU.Bytes(), attr.MaxMTU.Bytes()
	p.LID, p.SMLID, p.MaxMsg, p.GIDTable = int(attr.LID), int(attr.SMLID), attr.MaxMsgSz, attr.GIDTblLen
	gids, err := c.GIDTable(n)
	if err != nil {
		p.Fault = err.Error() // the rest of the port is shown nevertheless
	}
	for _, g := range gids {
		p.GIDs = append(p.GIDs, gidInfo{g.Index, g.GID.String(), g.Type.String(), g.NetDev})
	}
	// An InfiniBand port may have 128 places; those that are not 0 count.
	for i := range min(attr.PKeyTblLen, 1024) {
		k, err := c.QueryPKey(n, i)
		if err != nil {
			p.Fault = err.Error()
			break
		}
		if k != 0 {
			p.PKeys = append(p.PKeys, fmt.Sprintf("%#04x", k))
		}
	}
	return p
}

// transportOf is the usual name: RoCE is InfiniBand's transport on Ethernet,
// which the device alone does not say.
func transportOf(t ibv.Transport, ports []portInfo) string {
	switch {
	case t == ibv.TransportIWARP:
		return "iWARP"
	case len(ports) > 0 && ports[0].LinkLayer == "Ethernet":
		return "RoCE"
	case t == ibv.TransportIB:
		return "InfiniBand"
	}
	return t.String()
}

// guid writes a GUID as ibv_devinfo does.
func guid(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}

// atomicCap names enum ibv_atomic_cap.
func atomicCap(n int) string {
	names := []string{"none", "within the device", "global"}
	if n >= 0 && n < len(names) {
		return names[n]
	}
	return fmt.Sprint(n)
}

// physState names phys_state of ibv_query_port(3).
func physState(n uint8) string {
	names := map[uint8]string{1: "sleep", 2: "polling", 3: "disabled", 4: "training", 5: "link up", 6: "error recovery", 7: "test"}
	if s, ok := names[n]; ok {
		return s
	}
	return fmt.Sprint(n)
}

// rateOf computes the signal rate from active_width and active_speed, which
// are codes (InfiniBand specification 1.4, PortInfo).
func rateOf(width, speed uint8) string {
	lanes := map[uint8]float64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	lane := map[uint8]struct {
		gbit float64
		name string
	}{1: {2.5, "SDR"}, 2: {5, "DDR"}, 4: {10, "QDR"}, 8: {10, "FDR10"}, 16: {14, "FDR"}, 32: {25, "EDR"}, 64: {50, "HDR"}, 128: {100, "NDR"}}[speed]
	if lanes == 0 || lane.gbit == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%g Gb/s (%gX %s)", lanes*lane.gbit, lanes, lane.name)
}
