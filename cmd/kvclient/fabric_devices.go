package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// What fabric devices shows, in its JSON form.
type (
	devicesReport struct {
		RDMACore  coreReport    `json:"rdma_core"`
		Devices   []deviceInfo  `json:"devices"`
		Software  []string      `json:"software"` // devices that this program is itself
		Listen    []wayReport   `json:"listen"`   // what a server with this configuration would use
		Connect   []wayReport   `json:"connect"`  // and a client
		Memlock   memlockReport `json:"memlock"`
		HugePages hugeReport    `json:"huge_pages"`
		Advice    []string      `json:"advice"` // what is wrong and what to do
	}
	// coreReport is about the libraries of rdma-core and the kernel's part.
	coreReport struct {
		Verbs string `json:"libibverbs"` // "ok", or what is missing and what to install
		CM    string `json:"librdmacm"`
	}
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
	gidInfo struct {
		Index  int    `json:"index"`
		GID    string `json:"gid"`
		Type   string `json:"type"`
		NetDev string `json:"netdev,omitempty"`
	}
	wayReport struct {
		Address string   `json:"address"`
		Use     []string `json:"use"` // "verbs/rxe0 at 10.0.0.1:7400: why"
		Not     []string `json:"not"` // why others are not used
	}
)

func (a *app) fabricDevicesCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "show the RDMA devices of this machine and whether they are fit for use",
		Long: `devices shows what ibv_devinfo shows (devices, limits, ports, GIDs), and what
else decides whether RDMA works here: the limit of locked memory against the
slabs of the configuration, huge pages, and which fabrics a server and a client
with this configuration use, and why. It changes nothing and connects to nobody.

It ends with advice, if there is any: what is wrong, and the command that helps.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := a.devicesReport(cmd.Context())
			if a.output == "json" {
				return a.printJSON(r)
			}
			return a.print(r.text())
		},
	}
}

// waysTime bounds the question where an address leads.
const waysTime = 5 * time.Second

// devicesReport collects everything. What cannot be had is part of the report.
func (a *app) devicesReport(ctx context.Context) devicesReport {
	r := devicesReport{Devices: []deviceInfo{}, Software: []string{}, Listen: []wayReport{}, Connect: []wayReport{}, Advice: []string{}}
	r.RDMACore, r.Devices = verbsDevices()
	for _, c := range a.fabricChoices() {
		if c.fabric == nil || c.fabric.Name() == "verbs" {
			continue
		}
		list, err := c.fabric.Devices(ctx)
		if err != nil {
			continue
		}
		for _, d := range list {
			r.Software = append(r.Software, fmt.Sprintf("%s: %s", d.Name, d.Detail))
		}
	}
	for _, addr := range a.cfg.Listen {
		r.Listen = append(r.Listen, a.listenReport(ctx, addr))
	}
	for _, addr := range a.cfg.Servers {
		r.Connect = append(r.Connect, a.connectReport(ctx, addr))
	}
	slabs := uint64(a.cfg.MemoryLimit)
	r.Memlock = memlockOf(slabs, len(r.Devices))
	r.HugePages = hugeOf("/", slabs, a.cfg.HugePages)
	r.Advice = append(r.Advice, r.advice()...)
	return r
}

// listenReport says where a server with this configuration listens for addr.
func (a *app) listenReport(ctx context.Context, addr string) wayReport {
	ctx, cancel := context.WithTimeout(ctx, waysTime)
	defer cancel()
	w := wayReport{Address: addr, Use: []string{}, Not: []string{}}
	ways, passed := a.waysAt(ctx, addr)
	for _, way := range ways {
		w.Use = append(w.Use, fmt.Sprintf("%v at %s: %s", way, way.addr, way.reason))
	}
	w.note(passed)
	return w
}

// connectReport says how a client with this configuration reaches addr.
func (a *app) connectReport(ctx context.Context, addr string) wayReport {
	ctx, cancel := context.WithTimeout(ctx, waysTime)
	defer cancel()
	w := wayReport{Address: addr, Use: []string{}, Not: []string{}}
	way, passed, err := a.wayTo(ctx, addr)
	if err == nil {
		w.Use = append(w.Use, fmt.Sprintf("%v: %s", way, way.reason))
	}
	w.note(passed)
	return w
}

func (w *wayReport) note(passed []error) {
	for _, err := range passed {
		w.Not = append(w.Not, err.Error())
	}
}

// usedVerbs reports whether an RDMA device is among what would be used.
func usedVerbs(list []wayReport) bool {
	for _, w := range list {
		for _, use := range w.Use {
			if strings.HasPrefix(use, "verbs/") {
				return true
			}
		}
	}
	return false
}

// advice says what is wrong and what to do, the gravest first. It looks at
// nothing but the report.
func (r *devicesReport) advice() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, s := range []string{r.RDMACore.Verbs, r.RDMACore.CM} {
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
	if len(r.Devices) > 0 {
		list = append(list, r.Memlock.Advice...)
		if !usedVerbs(r.Listen) && !usedVerbs(r.Connect) {
			say("no RDMA device is used with this configuration: a server listens at an address of the device's interface (--listen), a client dials one (--server)")
		}
	}
	list = append(list, r.HugePages.Advice...)
	return list
}

// advise looks at an active port.
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
		return
	}
	for _, g := range p.GIDs {
		if g.Type == "RoCE v2" {
			return
		}
	}
	say("%s port %d has no GID of RoCE v2: only hosts of the same Ethernet segment are reached", device, p.Port)
}

// netdev is the interface of the port, as far as its GIDs tell.
func (p *portInfo) netdev() string {
	for _, g := range p.GIDs {
		if g.NetDev != "" {
			return g.NetDev
		}
	}
	return "INTERFACE"
}
