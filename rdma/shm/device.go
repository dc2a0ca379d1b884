//go:build linux

package shm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// Limits of the device that are no options.
const (
	maxQPWR    = 16384
	maxSGE     = 16
	maxCQE     = 1 << 20
	maxCQs     = 1 << 16
	maxMRs     = 1 << 20
	maxPDs     = 1 << 16
	maxSRQs    = 1 << 12
	maxSRQWR   = 1 << 18
	maxInline  = 256
	maxMsgSize = 1 << 30

	defaultSendWR = 128
	defaultRecvWR = 128
	defaultSGE    = 4
)

// A count is a number of live objects with a limit.
type count struct {
	n     atomic.Int64
	limit int64
}

// add counts one more, or says that the limit is reached.
func (c *count) add(what string) error {
	if c.n.Add(1) > c.limit {
		c.n.Add(-1)
		return fmt.Errorf("%w: %d %s", rdma.ErrLimit, c.limit, what)
	}
	return nil
}

func (c *count) drop() { c.n.Add(-1) }

// A device is one opened device: a name space of keys and the limits.
type device struct {
	fabric *Fabric
	attr   rdma.DeviceAttr
	mrs    mrTable

	numPD, numCQ, numMR, numQP, numSRQ count

	mu     sync.Mutex
	closed bool
	users  int // PDs, CQs, listeners
}

func newDevice(f *Fabric, reason string) *device {
	o := f.opts
	d := &device{fabric: f}
	d.numPD.limit, d.numCQ.limit, d.numMR.limit = maxPDs, maxCQs, maxMRs
	d.numQP.limit, d.numSRQ.limit = int64(o.MaxQP), maxSRQs
	d.attr = rdma.DeviceAttr{
		Fabric: f.Name(), Reason: reason,
		Caps:  rdma.CapSRQ | rdma.CapInline | rdma.CapWrite | rdma.CapMapped,
		MaxQP: o.MaxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE, MaxCQ: maxCQs, MaxCQE: maxCQE,
		MaxMR: maxMRs, MaxMRSize: 1 << 46, MaxPD: maxPDs, MaxSRQ: maxSRQs, MaxSRQWR: maxSRQWR,
		MaxQPRdAtom: o.ReadDepth, MaxQPInitRdAtom: o.ReadDepth,
		MaxInline: maxInline, MaxMsgSize: maxMsgSize,
		MaxConnectPrivate: maxPrivate, MaxAcceptPrivate: maxPrivate,
	}
	return d
}

// Name is "shm0".
func (d *device) Name() string { return deviceName }

// Attr returns the limits.
func (d *device) Attr() rdma.DeviceAttr { return d.attr }

// use counts a PD, CQ or listener in; unuse counts it out.
func (d *device) use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%w: device %s", rdma.ErrClosed, deviceName)
	}
	d.users++
	return nil
}

func (d *device) unuse() {
	d.mu.Lock()
	d.users--
	d.mu.Unlock()
}

// AllocPD allocates a protection domain.
func (d *device) AllocPD() (rdma.PD, error) {
	if err := d.numPD.add("protection domains"); err != nil {
		return nil, err
	}
	if err := d.use(); err != nil {
		d.numPD.drop()
		return nil, err
	}
	return &pd{dev: d}, nil
}

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	if depth < 1 || depth > maxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d is not within 1 and %d", rdma.ErrInvalid, depth, maxCQE)
	}
	if err := d.numCQ.add("completion queues"); err != nil {
		return nil, err
	}
	if err := d.use(); err != nil {
		d.numCQ.drop()
		return nil, err
	}
	return newCQ(d, depth), nil
}

// Listen starts to accept connections.
func (d *device) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	l, err := listen(ctx, d, addr)
	if err != nil {
		d.unuse()
		return nil, err
	}
	return l, nil
}

// Close fails with ErrBusy while PDs, CQs or listeners are open.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users > 0 {
		return fmt.Errorf("%w: device %s has %d open PDs, CQs and listeners", rdma.ErrBusy, deviceName, d.users)
	}
	d.closed = true
	return nil
}

// A pd groups MRs, QPs and SRQs that may meet.
type pd struct {
	dev *device

	mu      sync.Mutex
	closed  bool
	users   int              // MRs, QPs, SRQs
	shared  map[*mr]struct{} // regions that lie in a memfd and may be read remotely
	sharing map[*qp]struct{} // connected QPs, whose peers are shown them
}

// Device returns the parent.
func (p *pd) Device() rdma.Device { return p.dev }

func (p *pd) use() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: protection domain", rdma.ErrClosed)
	}
	p.users++
	return nil
}

func (p *pd) unuse() {
	p.mu.Lock()
	p.users--
	p.mu.Unlock()
}

// Close fails with ErrBusy while MRs, QPs or SRQs of it are open.
func (p *pd) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users > 0 {
		return fmt.Errorf("%w: protection domain has %d open MRs, QPs and SRQs", rdma.ErrBusy, p.users)
	}
	if !p.closed {
		p.closed = true
		p.dev.numPD.drop()
		p.dev.unuse()
	}
	return nil
}
