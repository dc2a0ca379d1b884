//go:build linux

package shm

import (
	"context"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// kind tells the regions of this package from those of other fabrics.
var kind = &soft.Kind{Fabric: fabricName}

// A device is one opened device: a name space of keys and the limits.
type device struct {
	soft.Device
	fabric *Fabric
}

func newDevice(f *Fabric, reason string) *device {
	d := &device{fabric: f}
	a := soft.Limits()
	a.Fabric, a.Reason = f.Name(), reason
	a.Caps = rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapMapped
	a.MaxQP = f.opts.MaxQP
	a.MaxQPRdAtom, a.MaxQPInitRdAtom = f.opts.ReadDepth, f.opts.ReadDepth
	a.MaxConnectPrivate, a.MaxAcceptPrivate = maxPrivate, maxPrivate
	d.Init(d, kind, deviceName, a, &f.qpns)
	return d
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (rdma.PD, error) {
	p := &pd{dev: d}
	p.Withdrawn = p.hide
	if err := p.Init(&d.Device, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Listen starts to accept connections.
func (d *device) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	if err := d.Use(); err != nil {
		return nil, err
	}
	l, err := listen(ctx, d, addr)
	if err != nil {
		d.Unuse()
		return nil, err
	}
	return l, nil
}

// A pd groups MRs, QPs and SRQs that may meet.
type pd struct {
	soft.PD
	dev     *device
	exports exports
}

// RegMR registers buf. If buf lies in a memfd and may be read remotely, it is
// shown to peers.
func (p *pd) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	m, err := p.Register(buf, access)
	if err != nil {
		return nil, err
	}
	if where, ok := memfd.BackingOf(buf); ok && access&rdma.AccessRemoteRead != 0 {
		p.show(m, where)
	}
	return m, nil
}
