package sim

import (
	"context"
	"fmt"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
)

// maxQP bounds the QPs of a device.
const maxQP = 1 << 16

// A device is an opened adapter. Everything in it is guarded by Network.mu.
type device struct {
	net    *Network
	life   *life
	id     uint64
	attr   rdma.DeviceAttr
	closed bool
	users  int // PDs, CQs, listeners
	pds    int
	srqs   int
	cqs    map[*cq]struct{}
	qps    []*qp // in the order of creation

	mrs    map[uint32]*mr
	keys   uint64 // given out so far
	spare  []key  // of deregistered regions, newest last (Adversity.ReuseKeys)
	origin uint64 // where the sequence of keys begins
}

// newDevice makes the adapter of one life. Its keys follow from the seed.
func newDevice(l *life, reason string, id uint64) *device {
	n := l.host.net
	d := &device{
		net: n, life: l, id: id, cqs: make(map[*cq]struct{}), mrs: make(map[uint32]*mr),
	}
	if n.adverse.ReuseKeys {
		d.origin = mix(n.opts.Seed ^ hashName(l.host.name)) // the same in each life
	} else {
		d.origin = mix(n.opts.Seed + id)
	}
	d.attr = soft.Limits()
	d.attr.Fabric, d.attr.Reason = fabricName, reason
	d.attr.Caps = (rdma.CapSRQ | rdma.CapInline | rdma.CapRNR | rdma.CapSendDelivers | rdma.CapSpinRead) &^ n.opts.Without
	d.attr.MaxQP, d.attr.MaxMRSize = maxQP, 1<<36
	d.attr.MaxQPRdAtom, d.attr.MaxQPInitRdAtom = n.opts.ReadDepth, n.opts.ReadDepth
	d.attr.MaxConnectPrivate, d.attr.MaxAcceptPrivate = 56, 196
	return d
}

// Name is "sim0".
func (d *device) Name() string { return deviceName }

// Attr returns the limits.
func (d *device) Attr() rdma.DeviceAttr { return d.attr }

func (d *device) use() error {
	if d.closed {
		return fmt.Errorf("%w: device %s", rdma.ErrClosed, deviceName)
	}
	d.users++
	return nil
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (rdma.PD, error) {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.pds >= soft.MaxPDs {
		return nil, fmt.Errorf("%w: %d protection domains", rdma.ErrLimit, d.pds)
	}
	if err := d.use(); err != nil {
		return nil, err
	}
	d.pds++
	return &pd{dev: d}, nil
}

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	if depth < 1 || depth > soft.MaxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d is not within 1 and %d", rdma.ErrInvalid, depth, soft.MaxCQE)
	}
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if len(d.cqs) >= soft.MaxCQs {
		return nil, fmt.Errorf("%w: %d completion queues", rdma.ErrLimit, len(d.cqs))
	}
	if err := d.use(); err != nil {
		return nil, err
	}
	c := newCQ(d, depth)
	d.cqs[c] = struct{}{}
	return c, nil
}

// Listen starts to accept connections at ip:port.
func (d *device) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, opError("listen", addr, err)
	}
	n := d.net
	n.mu.Lock()
	defer n.mu.Unlock()
	at, err := parseAddr(addr, d.life.host.ip)
	if err != nil {
		return nil, opError("listen", addr, err)
	}
	switch {
	case at.Addr().IsUnspecified():
		return nil, opError("listen", addr, fmt.Errorf("%w: a device listens at its own address", rdma.ErrInvalid))
	case at.Port() == 0:
		at = n.freePort(at.Addr())
	case n.listeners[at] != nil:
		return nil, opError("listen", addr, fmt.Errorf("%w: address in use", rdma.ErrInvalid))
	}
	if d.life.dead {
		return nil, opError("listen", addr, fmt.Errorf("%w: the program was killed", rdma.ErrPeerGone))
	}
	if err := d.use(); err != nil {
		return nil, err
	}
	l := newListener(d, at)
	n.listeners[at] = l
	return l, nil
}

// Close fails with ErrBusy while PDs, CQs or listeners are open.
func (d *device) Close() error {
	d.net.mu.Lock()
	defer d.net.mu.Unlock()
	if d.users > 0 {
		return fmt.Errorf("%w: device %s has %d open PDs, CQs and listeners", rdma.ErrBusy, deviceName, d.users)
	}
	if !d.closed && !d.life.dead {
		for i, x := range d.life.devices {
			if x == d {
				d.life.devices = append(d.life.devices[:i], d.life.devices[i+1:]...)
				break
			}
		}
	}
	d.closed = true
	return nil
}

// A pd groups MRs, QPs and SRQs that may meet.
type pd struct {
	dev    *device
	closed bool
	users  int // MRs, QPs, SRQs
}

// Device returns the parent.
func (p *pd) Device() rdma.Device { return p.dev }

func (p *pd) use() error {
	if p.closed {
		return fmt.Errorf("%w: protection domain", rdma.ErrClosed)
	}
	p.users++
	return nil
}

// Close fails with ErrBusy while MRs, QPs or SRQs of it are open.
func (p *pd) Close() error {
	p.dev.net.mu.Lock()
	defer p.dev.net.mu.Unlock()
	if p.users > 0 {
		return fmt.Errorf("%w: protection domain has %d open MRs, QPs and SRQs", rdma.ErrBusy, p.users)
	}
	if !p.closed {
		p.closed = true
		p.dev.pds--
		p.dev.users--
	}
	return nil
}
