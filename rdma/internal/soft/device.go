package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
)

// Limits that all devices have in common.
const (
	MaxQPWR    = 16384
	MaxSGE     = 16
	MaxCQE     = 1 << 20
	MaxCQs     = 1 << 16
	MaxMRs     = 1 << 20
	MaxPDs     = 1 << 16
	MaxSRQs    = 1 << 12
	MaxSRQWR   = 1 << 18
	MaxInline  = 256
	MaxMsgSize = 1 << 30
)

// Limits returns attributes with what all devices have in common. The fabric
// fills in its name, the reason, Caps, MaxQP and the bounds of its connections.
func Limits() rdma.DeviceAttr {
	return rdma.DeviceAttr{
		MaxQPWR: MaxQPWR, MaxSGE: MaxSGE, MaxCQ: MaxCQs, MaxCQE: MaxCQE,
		MaxMR: MaxMRs, MaxMRSize: 1 << 46, MaxPD: MaxPDs, MaxSRQ: MaxSRQs, MaxSRQWR: MaxSRQWR,
		MaxInline: MaxInline, MaxMsgSize: MaxMsgSize,
	}
}

// A Kind tells the objects of one fabric package from those of another, which have
// the same Go type: each package has one Kind. A region of another kind in a work
// request is a mistake of the program, and the post refuses it.
type Kind struct {
	Fabric string // as errors name it
}

// A Count is a number of live objects with a limit. Limit is set before use;
// everything else is safe for concurrent use.
type Count struct {
	n     atomic.Int64
	Limit int64
}

// Add counts one more, or says that the limit is reached (ErrLimit).
func (c *Count) Add(what string) error {
	if c.n.Add(1) > c.Limit {
		c.n.Add(-1)
		return fmt.Errorf("%w: %d %s", rdma.ErrLimit, c.Limit, what)
	}
	return nil
}

// Drop counts one less.
func (c *Count) Drop() { c.n.Add(-1) }

// N returns the number of live objects.
func (c *Count) N() int64 { return c.n.Load() }

// A Device is one opened device: a name space of keys, the limits, and the counts
// of its objects. A fabric embeds it in its own device, and adds AllocPD, CreateCQ
// and Listen, which make objects of the fabric.
type Device struct {
	kind    *Kind
	outer   rdma.Device
	name    string
	attr    rdma.DeviceAttr
	numbers *Numbers

	// Regions are the open regions of all protection domains, by key.
	Regions Table

	// PDs are the open protection domains.
	PDs                 Count
	cqs, mrs, qps, srqs Count

	mu     sync.Mutex
	closed bool
	users  int // PDs, CQs, listeners
}

// Init makes d ready; outer is the fabric's device, in which d is embedded.
// numbers are those of the fabric's QPs: devices of one fabric share them.
func (d *Device) Init(outer rdma.Device, kind *Kind, name string, attr rdma.DeviceAttr, numbers *Numbers) {
	d.kind, d.outer, d.name, d.attr, d.numbers = kind, outer, name, attr, numbers
	d.PDs.Limit, d.cqs.Limit, d.mrs.Limit = int64(attr.MaxPD), int64(attr.MaxCQ), int64(attr.MaxMR)
	d.qps.Limit, d.srqs.Limit = int64(attr.MaxQP), int64(attr.MaxSRQ)
}

// Name returns the device's name.
func (d *Device) Name() string { return d.name }

// Attr returns the limits.
func (d *Device) Attr() rdma.DeviceAttr { return d.attr }

// Use counts a PD, CQ or listener in; Unuse counts it out.
func (d *Device) Use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%w: device %s", rdma.ErrClosed, d.name)
	}
	d.users++
	return nil
}

// Unuse counts a PD, CQ or listener out.
func (d *Device) Unuse() {
	d.mu.Lock()
	d.users--
	d.mu.Unlock()
}

// Close fails with ErrBusy while PDs, CQs or listeners are open.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users > 0 {
		return fmt.Errorf("%w: device %s has %d open PDs, CQs and listeners", rdma.ErrBusy, d.name, d.users)
	}
	d.closed = true
	return nil
}

// A PD groups the MRs, QPs and SRQs that may be used together. A fabric embeds it
// in its own, and adds CreateQP.
type PD struct {
	dev   *Device
	outer rdma.PD

	// Withdrawn, if the fabric sets it, is called for each region that is being
	// closed. At that moment peers can no longer find the region, and Close has
	// not yet waited for the accesses under way. No lock is held.
	Withdrawn func(*MR)

	mu     sync.Mutex
	closed bool
	users  int // MRs, QPs, SRQs
}

// Init makes p a protection domain of dev; outer is the fabric's, in which p is
// embedded. An error means that there is none: ErrLimit, ErrClosed.
func (p *PD) Init(dev *Device, outer rdma.PD) error {
	if err := dev.PDs.Add("protection domains"); err != nil {
		return err
	}
	if err := dev.Use(); err != nil {
		dev.PDs.Drop()
		return err
	}
	p.dev, p.outer = dev, outer
	return nil
}

// Device returns the parent.
func (p *PD) Device() rdma.Device { return p.dev.outer }

// use counts an MR, QP or SRQ in; unuse counts it out.
func (p *PD) use() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: protection domain", rdma.ErrClosed)
	}
	p.users++
	return nil
}

func (p *PD) unuse() {
	p.mu.Lock()
	p.users--
	p.mu.Unlock()
}

// Close fails with ErrBusy while MRs, QPs or SRQs of it are open.
func (p *PD) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users > 0 {
		return fmt.Errorf("%w: protection domain has %d open MRs, QPs and SRQs", rdma.ErrBusy, p.users)
	}
	if !p.closed {
		p.closed = true
		p.dev.PDs.Drop()
		p.dev.Unuse()
	}
	return nil
}
