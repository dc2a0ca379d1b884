package iwarp

import (
	"context"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// kind tells the regions of this package from those of other fabrics.
var kind = &soft.Kind{Fabric: "iwarp"}

// A device is one opened RNIC: a name space of STags and the limits.
type device struct {
	soft.Device
	fabric  *Fabric
	egress  *egress
	bulk    atomic.Int32 // transmitters that have room for more than a buffer (gather.go)
	unmuter keeper
	doubter keeper
	spins   spinners
}

func newDevice(f *Fabric, reason string) *device {
	d := &device{fabric: f, egress: newEgress()}
	d.unmuter = keeper{every: keepEvery / 2, visit: keepMuted}
	d.doubter = keeper{every: doubtEvery / 2, visit: keepDoubted}
	a := soft.Limits()
	a.Fabric, a.Reason = f.Name(), reason
	a.Caps = rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapDiesWithProcess
	a.MaxQP = f.opts.MaxQP
	a.MaxQPRdAtom, a.MaxQPInitRdAtom = f.opts.ReadDepth, f.opts.ReadDepth
	a.MaxConnectPrivate, a.MaxAcceptPrivate = proto.MaxPrivate-proto.NegotiationLen, proto.MaxPrivate-proto.NegotiationLen
	d.Init(d, kind, deviceName, a, &f.qpns)
	return d
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (rdma.PD, error) {
	p := &pd{dev: d}
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
	dev   *device
	turns []*turnWaiter // under device.egress.mu
}
