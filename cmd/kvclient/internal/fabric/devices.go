package fabric

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
)

// These are the JSON form of fabric devices, on which scripts rely: names are never
// changed, new ones may come. Lists are never null.
type (
	// A devicesReport is about one machine, and about one configuration on it.
	devicesReport struct {
		RDMACore  coreReport    `json:"rdma_core"`
		Devices   []deviceInfo  `json:"devices"`
		Software  []string      `json:"software"` // devices that this program is itself
		Listen    []WayReport   `json:"listen"`   // what a server with this configuration would use
		Connect   []WayReport   `json:"connect"`  // and a client
		Memlock   memlockReport `json:"memlock"`
		HugePages hugeReport    `json:"huge_pages"`
		Advice    []string      `json:"advice"` // what is wrong and what to do
	}
	// A coreReport is about the libraries of rdma-core and the kernel's part.
	coreReport struct {
		Verbs string `json:"libibverbs"` // "ok", or what is missing and what to install
		CM    string `json:"librdmacm"`
	}
	// A deviceInfo is a device as libibverbs shows it. Where Fault is not empty,
	// nothing but the name and the kernel's part of it is known.
	deviceInfo struct {
		Name      string       `json:"name"`
		Kernel    string       `json:"kernel"` // uverbs device
		Transport string       `json:"transport"`
		NodeGUID  string       `json:"node_guid"`
		Firmware  string       `json:"firmware"`
		Vendor    string       `json:"vendor"` // id and part
		Limits    deviceLimits `json:"limits"`
		Ports     []portInfo   `json:"ports"`
		Fault     string       `json:"fault,omitempty"` // why it cannot be looked at
	}
	// deviceLimits are those of ibv_query_device(3), by the names that ibv_devinfo
	// prints. Sizes are in bytes. The first four bound how many sessions a server
	// can have and how much of each may be under way; max_mr and max_mr_size bound
	// its memory.
	deviceLimits struct {
		QP        int    `json:"max_qp"`
		QPWR      int    `json:"max_qp_wr"`
		SGE       int    `json:"max_sge"`
		CQ        int    `json:"max_cq"`
		CQE       int    `json:"max_cqe"`
		MR        int    `json:"max_mr"`
		MRSize    uint64 `json:"max_mr_size"`
		PD        int    `json:"max_pd"`
		SRQ       int    `json:"max_srq"`
		SRQWR     int    `json:"max_srq_wr"`
		MW        int    `json:"max_mw"`
		RdAtom    int    `json:"max_qp_rd_atom"`
		InitAtom  int    `json:"max_qp_init_rd_atom"`
		Atomic    string `json:"atomic_cap"`
		PageSizes uint64 `json:"page_size_cap"`
	}
	// A portInfo is one port. State is "" if the port could not be asked; Fault is
	// also there where only a part of it could not. MTUs and max_msg_sz are in
	// bytes; LIDs are 0 on Ethernet.
	portInfo struct {
		Port      int       `json:"port"`
		State     string    `json:"state"`
		Physical  string    `json:"phys_state"`
		LinkLayer string    `json:"link_layer"`
		Rate      string    `json:"rate"`
		MTU       int       `json:"active_mtu"`
		MaxMTU    int       `json:"max_mtu"`
		LID       int       `json:"lid"`
		SMLID     int       `json:"sm_lid"`
		MaxMsg    uint32    `json:"max_msg_sz"`
		GIDTable  int       `json:"gid_tbl_len"`
		GIDs      []gidInfo `json:"gids"`
		PKeys     []string  `json:"pkeys"`
		Fault     string    `json:"fault,omitempty"`
	}
	// A gidInfo is one address of a port. Index is its number as gid_index takes it
	// and as the other tools of RDMA print it; NetDev is, on Ethernet, the
	// interface that has the address.
	gidInfo struct {
		Index  int    `json:"index"`
		GID    string `json:"gid"`
		Type   string `json:"type"`
		NetDev string `json:"netdev,omitempty"`
	}
	// A WayReport is how an address is listened at or reached, as texts for people.
	WayReport struct {
		Address string   `json:"address"`
		Use     []string `json:"use"` // "verbs/rxe0 at 10.0.0.1:7400: why"
		Not     []string `json:"not"` // why others are not used
	}
)

// fabricDevicesCmd is fabric devices. It never fails, because its user wants to
// know exactly what is missing.
func fabricDevicesCmd(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "show the RDMA devices of this machine and whether they are fit for use",
		Long: `devices shows what ibv_devinfo shows (devices, limits, ports, GIDs), and what
else decides whether RDMA works here: the limit of locked memory against the
slabs of the configuration, huge pages, and which fabrics a server and a client
with this configuration use, and why. It changes nothing and connects to nobody.

It ends with advice, if there is any: what is wrong, and the command that helps.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := collect(cmd.Context(), a)
			if a.Output == "json" {
				return a.PrintJSON(r)
			}
			return a.Print(r.text())
		},
	}
}

// waysTime bounds finding out where an address leads: names are looked up for it,
// and a name server may be away.
const waysTime = 5 * time.Second

// collect makes the whole report. What is missing is part of it.
func collect(ctx context.Context, a *app.App) devicesReport {
	r := devicesReport{Devices: []deviceInfo{}, Software: []string{}, Listen: []WayReport{}, Connect: []WayReport{}, Advice: []string{}}
	// The devices come straight from libibverbs, not from the fabric, which lists
	// usable devices only.
	r.RDMACore, r.Devices = verbsDevices()
	for _, c := range fabrics.Choices(a.Config.Config, a.Logger()) {
		// The devices of verbs are in the report already.
		if c.Fabric == nil || c.Fabric.Name() == "verbs" {
			continue
		}
		list, err := c.Fabric.Devices(ctx)
		if err != nil {
			continue
		}
		for _, d := range list {
			r.Software = append(r.Software, fmt.Sprintf("%s: %s", d.Name, d.Detail))
		}
	}
	// listen is a key of kvserver's; its value here is that of the file or the
	// default, so that one command tells both ends of a machine.
	for _, addr := range a.Config.Listen {
		r.Listen = append(r.Listen, ListenReport(ctx, a, addr))
	}
	for _, addr := range a.Config.Servers {
		r.Connect = append(r.Connect, ConnectReport(ctx, a, addr))
	}
	// What a server with this configuration would register.
	slabs := uint64(a.Config.MemoryLimit)
	r.Memlock = memlockOf(slabs, len(r.Devices))
	r.HugePages = hugeOf("/", slabs, a.Config.HugePages)
	r.Advice = append(r.Advice, r.advice()...)
	return r
}

// ListenReport says where a server with this configuration listens for addr. doctor
// shows the same.
func ListenReport(ctx context.Context, a *app.App, addr string) WayReport {
	ctx, cancel := context.WithTimeout(ctx, waysTime)
	defer cancel()
	w := WayReport{Address: addr, Use: []string{}, Not: []string{}}
	ways, passed := waysAt(ctx, a, addr)
	for _, way := range ways {
		w.Use = append(w.Use, fmt.Sprintf("%v at %s: %s", way, way.addr, way.reason))
	}
	w.note(passed)
	return w
}

// ConnectReport says how a client with this configuration reaches addr. doctor
// shows the same.
func ConnectReport(ctx context.Context, a *app.App, addr string) WayReport {
	ctx, cancel := context.WithTimeout(ctx, waysTime)
	defer cancel()
	w := WayReport{Address: addr, Use: []string{}, Not: []string{}}
	way, passed, err := wayTo(ctx, a, addr)
	if err == nil {
		w.Use = append(w.Use, fmt.Sprintf("%v: %s", way, way.reason))
	}
	w.note(passed)
	return w
}

// note adds why fabrics or devices are not used.
func (w *WayReport) note(passed []error) {
	for _, err := range passed {
		w.Not = append(w.Not, err.Error())
	}
}

// usedVerbs reports whether an RDMA device is among what would be used.
func usedVerbs(list []WayReport) bool {
	for _, w := range list {
		for _, use := range w.Use {
			if strings.HasPrefix(use, "verbs/") {
				return true
			}
		}
	}
	return false
}

// advice says what is wrong and what to do, the gravest first: without libraries no
// device is seen, without a device no port matters. It looks at nothing but the
// report, so each fault is tested without a machine that has it.
func (r *devicesReport) advice() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, s := range []string{r.RDMACore.Verbs, r.RDMACore.CM} {
		// Both libraries come with one package, so their advice is often the same
		// line.
		if s != "ok" && (len(list) == 0 || list[len(list)-1] != s) {
			say("%s", s)
		}
	}
	if len(r.Devices) == 0 {
		say("there is no RDMA device: is the NIC's module loaded (rdma link)? For Soft-RoCE on an ordinary interface: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE. Without any, the fabric iwarp works everywhere, in software")
	}
	for _, d := range r.Devices {
		if d.Fault != "" {
			say("%s cannot be opened: %s", d.Name, d.Fault)
		}
		// A port that is down is normal on a card with two; a device without any is
		// not.
		active := false
		for _, p := range d.Ports {
			if p.State == "ACTIVE" {
				active = true
				p.advise(d.Name, say)
			}
		}
		if d.Fault == "" && !active {
			say("%s has no active port: look at the cable and the switch, on Ethernet at the interface (ip link set INTERFACE up), on InfiniBand at the subnet manager", d.Name)
		}
	}
	// Locked memory and the way matter only where there is a device to use.
	if len(r.Devices) > 0 {
		list = append(list, r.Memlock.Advice...)
		if !usedVerbs(r.Listen) && !usedVerbs(r.Connect) {
			say("no RDMA device is used with this configuration: a server listens at an address of the device's interface (--listen), a client dials one (--server)")
		}
	}
	list = append(list, r.HugePages.Advice...)
	return list
}

// advise looks at an active port. A small MTU costs bandwidth; no GID, or none of
// RoCE v2, costs the way to other hosts.
func (p *portInfo) advise(device string, say func(string, ...any)) {
	if p.MTU < p.MaxMTU && p.LinkLayer == "Ethernet" {
		say("%s port %d: the MTU is %d of %d bytes: raise that of the interface, and of the switch, to %d or more (ip link set %s mtu %d)",
			device, p.Port, p.MTU, p.MaxMTU, p.MaxMTU+104, p.netdev(), 4500)
	}
	if len(p.GIDs) == 0 {
		say("%s port %d has no GID: give its interface an address", device, p.Port)
		return
	}
	if p.LinkLayer != "Ethernet" {
		return // InfiniBand has one kind of GID
	}
	for _, g := range p.GIDs {
		if g.Type == "RoCE v2" {
			return
		}
	}
	say("%s port %d has no GID of RoCE v2: only hosts of the same Ethernet segment are reached", device, p.Port)
}

// netdev is the interface of the port, as far as its GIDs tell: the commands in the
// advice act on it.
func (p *portInfo) netdev() string {
	for _, g := range p.GIDs {
		if g.NetDev != "" {
			return g.NetDev
		}
	}
	return "INTERFACE"
}
