package clienttest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A Rig is a fabric for tests: iwarp under another name, with whatever a device,
// a driver or a network may do to it. A rig counts as hardware.
type Rig struct {
	rdma.Fabric
	name    string
	devices []string // the first one is the one that an empty name opens

	Mu sync.Mutex
	// Connect, if set, is asked before each connection; an error is its outcome.
	Connect func(ctx context.Context, device, addr string) error
	// Register, if set, is asked before memory of so many bytes is registered.
	Register func(n int, access rdma.Access) error
	// Queue, if set, is asked before a completion queue is made.
	Queue func() error
	// Swallow says which completions do not come for now; nil: all do.
	Swallow func(rdma.WC) bool
	// Lose says which completions never come, not even when the QP is closed.
	Lose func(rdma.WC) bool

	Caps     rdma.Caps
	opens    map[string]int // by device
	connects int            // asked for
	Granted  rdma.Access    // on any QP, ever
	Accesses []rdma.Access  // of every registration
	qps      []*rigQP
}

// NewRig is a rig of that name with those devices, one if none is named.
func NewRig(name string, devices ...string) *Rig {
	if len(devices) == 0 {
		devices = []string{name + "0"}
	}
	return &Rig{Fabric: iwarp.New(iwarp.Options{}), name: name, devices: devices, opens: map[string]int{}}
}

// Set changes the rig while it is in use.
func (r *Rig) Set(f func(*Rig)) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	f(r)
}

// Refuse makes every connection fail with err; nil heals it.
func (r *Rig) Refuse(err error) {
	r.Set(func(r *Rig) {
		r.Connect = nil
		if err != nil {
			r.Connect = func(context.Context, string, string) error { return err }
		}
	})
}

// Count returns how often the rig was asked for a connection.
func (r *Rig) Count() int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.connects
}

// Opened returns how often a device was opened.
func (r *Rig) Opened(device string) int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.opens[device]
}

// Cut ends all connections.
func (r *Rig) Cut() {
	r.Mu.Lock()
	qps := slices.Clone(r.qps)
	r.Mu.Unlock()
	for _, q := range qps {
		q.Disconnect()
	}
}

func (r *Rig) Name() string { return r.name }

func (r *Rig) Devices(context.Context) (list []rdma.DeviceInfo, _ error) {
	for _, d := range r.devices {
		list = append(list, rdma.DeviceInfo{Name: d})
	}
	return list, nil
}

func (r *Rig) Open(ctx context.Context, name string) (rdma.Device, error) {
	if name == "" {
		name = r.devices[0]
	}
	if !slices.Contains(r.devices, name) {
		return nil, &rdma.OpError{Op: "open", Fabric: r.name, Addr: name, Err: rdma.ErrNoDevice}
	}
	d, err := r.Fabric.Open(ctx, "")
	if err == nil {
		r.Set(func(r *Rig) { r.opens[name]++ })
	}
	return &rigDevice{d, r, name}, err
}

// A RoutedRig knows its way, or does not.
type RoutedRig struct {
	*Rig
	Way func(addr string) (rdma.Route, error)
}

func (r *RoutedRig) Route(_ context.Context, addr string) (rdma.Route, error) { return r.Way(addr) }
func (r *RoutedRig) Local(context.Context, string) ([]rdma.Route, error)      { return nil, nil }

type rigDevice struct {
	rdma.Device
	r    *Rig
	name string
}

func (d *rigDevice) Name() string { return d.name }

func (d *rigDevice) Attr() rdma.DeviceAttr {
	a := d.Device.Attr()
	a.Fabric, a.Caps, a.Reason = d.r.name, a.Caps&^rdma.CapDiesWithProcess|d.r.Caps, "the rig's choice"
	return a
}

func (d *rigDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return &rigPD{pd, d}, err
}

func (d *rigDevice) CreateCQ(depth int) (rdma.CQ, error) {
	d.r.Mu.Lock()
	ask := d.r.Queue
	d.r.Mu.Unlock()
	if ask != nil {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	cq, err := d.Device.CreateCQ(depth)
	if err != nil {
		return nil, err
	}
	return &rigCQ{CQ: cq, r: d.r}, nil
}

type rigPD struct {
	rdma.PD
	d *rigDevice
}

func (p *rigPD) Device() rdma.Device { return p.d }

func (p *rigPD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	r := p.d.r
	r.Mu.Lock()
	ask := r.Register
	r.Accesses = append(r.Accesses, access)
	r.Mu.Unlock()
	if ask != nil {
		if err := ask(len(buf), access); err != nil {
			return nil, err
		}
	}
	return p.PD.RegMR(buf, access)
}

func (p *rigPD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	cq := cfg.SendCQ.(*rigCQ)
	cfg.SendCQ, cfg.RecvCQ = cq.CQ, cq.CQ
	qp, err := p.PD.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	q := &rigQP{QP: qp, r: p.d.r, device: p.d.name, cq: cq}
	q.r.Set(func(r *Rig) { r.qps = append(r.qps, q); r.Granted |= cfg.Access })
	return q, nil
}

type rigQP struct {
	rdma.QP
	r      *Rig
	device string
	cq     *rigCQ
}

func (q *rigQP) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	q.r.Mu.Lock()
	q.r.connects++
	ask := q.r.Connect
	q.r.Mu.Unlock()
	if ask != nil {
		if err := ask(ctx, q.device, addr); err != nil {
			return rdma.ConnInfo{}, &rdma.OpError{Op: "connect", Fabric: q.r.name, Addr: addr, Err: err}
		}
	}
	return q.QP.Connect(ctx, addr, p)
}

func (q *rigQP) SetAccess(a rdma.Access) error {
	q.r.Set(func(r *Rig) { r.Granted |= a })
	return q.QP.SetAccess(a)
}

// Close flushes, as it must: what was swallowed comes now.
func (q *rigQP) Close() error {
	q.cq.mu.Lock()
	q.cq.flush = true
	q.cq.mu.Unlock()
	return q.QP.Close()
}

// A rigCQ keeps completions back, until the rig no longer does or the QP is
// closed.
type rigCQ struct {
	rdma.CQ
	r *Rig

	mu    sync.Mutex
	flush bool
	kept  []rdma.WC
}

func (c *rigCQ) Poll(wcs []rdma.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) > 0 && (c.flush || c.r.swallows() == nil) {
		n := copy(wcs, c.kept)
		c.kept = c.kept[n:]
		for i := range n {
			if c.flush {
				wcs[i] = rdma.WC{ID: wcs[i].ID, Status: rdma.StatusWRFlushErr}
			}
		}
		return n, nil
	}
	n, err := c.CQ.Poll(wcs)
	n = c.r.without(wcs[:n])
	swallow := c.r.swallows() // asked after the poll: what was posted after it was set is kept back
	if c.flush || swallow == nil {
		return n, err
	}
	passed := 0
	for _, wc := range wcs[:n] {
		if swallow(wc) {
			c.kept = append(c.kept, wc)
			continue
		}
		wcs[passed] = wc
		passed++
	}
	return passed, err
}

// without takes out what is lost, and returns how many are left.
func (r *Rig) without(wcs []rdma.WC) int {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Lose == nil {
		return len(wcs)
	}
	return len(slices.DeleteFunc(wcs, r.Lose))
}

func (r *Rig) swallows() func(rdma.WC) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Swallow
}

// Hang is a connect that gets no answer.
func Hang(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

var ErrNotListening = errors.New("nothing listens")
