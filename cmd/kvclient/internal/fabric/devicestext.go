package fabric

import (
	"fmt"
	"strings"

	"github.com/rdmakv/rdmakv/internal/cli"
)

// text is the report for people: devices first, advice last, where it is seen when
// the rest has scrolled away.
func (r *devicesReport) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rdma-core   libibverbs: %s\n            librdmacm: %s\n\n", r.RDMACore.Verbs, r.RDMACore.CM)
	for i := range r.Devices {
		r.Devices[i].text(&b)
	}
	if len(r.Devices) == 0 {
		b.WriteString("no RDMA device\n\n")
	}
	for _, s := range r.Software {
		fmt.Fprintf(&b, "in this program: %s\n", s)
	}
	if len(r.Software) > 0 {
		b.WriteByte('\n')
	}
	for _, w := range r.Listen {
		w.text(&b, "a server that listens at")
	}
	for _, w := range r.Connect {
		w.text(&b, "a client that dials")
	}
	// Limits are of this process: a server that another user starts may have
	// others.
	m := &r.Memlock
	fmt.Fprintf(&b, "\nlocked memory  limit %s (hard %s), needed %s: memory_limit %s for each device, and buffers\n               %s\n",
		limitText(m.Soft), limitText(m.Hard), cli.Bytes(int64(m.Needed)), cli.Bytes(int64(m.Slabs)), m.Verdict)
	h := &r.HugePages
	b.WriteString("huge pages     ")
	for i, p := range h.Pages {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %d, %d free", cli.Bytes(int64(p.Size)), p.Total, p.Free)
		if p.Reserved > 0 {
			fmt.Fprintf(&b, " (%d of them promised)", p.Reserved)
		}
		// Slabs are asked for in pages of the default size.
		if p.Size == h.Default {
			fmt.Fprintf(&b, ", all slabs would take %d", h.Needed)
		}
	}
	if len(h.Pages) > 0 {
		b.WriteString("\n               ")
	}
	fmt.Fprintf(&b, "%s\n", h.Verdict)
	if len(r.Advice) == 0 {
		return b.String()
	}
	b.WriteString("\nadvice\n")
	for _, s := range r.Advice {
		fmt.Fprintf(&b, "  - %s\n", s)
	}
	return b.String()
}

// text is a device and its ports, with the limits that bound how many sessions a
// server can have.
func (d *deviceInfo) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s  %s, %s, node GUID %s", d.Name, d.Transport, d.Kernel, d.NodeGUID)
	if d.Fault != "" {
		fmt.Fprintf(b, "\n  cannot be opened: %s\n\n", d.Fault)
		return
	}
	if d.Firmware != "" {
		fmt.Fprintf(b, ", firmware %s", d.Firmware)
	}
	l := &d.Limits
	fmt.Fprintf(b, ", vendor %s\n  limits  QP %d of %d WR, %d SGE; CQ %d of %d; MR %d of %s; PD %d; SRQ %d of %d WR; MW %d; READs in flight per QP %d in, %d out; atomics: %s\n",
		d.Vendor, l.QP, l.QPWR, l.SGE, l.CQ, l.CQE, l.MR, sizeText(l.MRSize), l.PD, l.SRQ, l.SRQWR, l.MW, l.RdAtom, l.InitAtom, l.Atomic)
	for i := range d.Ports {
		d.Ports[i].text(b)
	}
	b.WriteByte('\n')
}

// sizeText writes a size that may stand for "everything": devices without a limit
// say 2^64-1.
func sizeText(n uint64) string {
	if n >= 1<<62 {
		return "any size"
	}
	return cli.Bytes(int64(n))
}

// text is a port in one line, and its GIDs below it.
func (p *portInfo) text(b *strings.Builder) {
	fmt.Fprintf(b, "  port %d  ", p.Port)
	if p.State == "" { // it could not be asked at all
		fmt.Fprintf(b, "%s\n", p.Fault)
		return
	}
	fmt.Fprintf(b, "%s, %s, %s, %s, MTU %d (at most %d), LID %d", p.State, p.Physical, p.LinkLayer, p.Rate, p.MTU, p.MaxMTU, p.LID)
	if p.SMLID != 0 {
		fmt.Fprintf(b, ", SM LID %d", p.SMLID)
	}
	fmt.Fprintf(b, ", pkeys %s, messages up to %s\n", strings.Join(p.PKeys, " "), cli.Bytes(int64(p.MaxMsg)))
	if p.Fault != "" {
		fmt.Fprintf(b, "          %s\n", p.Fault)
	}
	// The index is what gid_index takes.
	var rows []string
	for _, g := range p.GIDs {
		rows = append(rows, fmt.Sprintf("          GID %d\t%s\t%s\t%s\n", g.Index, g.GID, g.Type, g.NetDev))
	}
	b.WriteString(cli.Table(rows))
}

// text is what would be used at an address, and what would not.
func (w *WayReport) text(b *strings.Builder, what string) {
	fmt.Fprintf(b, "%s %s uses\n", what, w.Address)
	for _, s := range w.Use {
		fmt.Fprintf(b, "    %s\n", s)
	}
	if len(w.Use) == 0 {
		b.WriteString("    nothing: it would not start\n")
	}
	for _, s := range w.Not {
		fmt.Fprintf(b, "  not: %s\n", s)
	}
}
