package client

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A rig is a fabric for tests: iwarp under another name, with whatever a device,
// a driver or a network may do to it. A rig counts as hardware.
type rig struct {
	rdma.Fabric
	name    string
	devices []string // the first one is the one that an empty name opens

	mu sync.Mutex
	// connect, if set, is asked before each connection; an error is its outcome.
	connect func(ctx context.Context, device, addr string) error
	// register, if set, is asked before memory of so many bytes is registered.
	register func(n int, access rdma.Access) error
	// queue, if set, is asked before a completion queue is made.
	queue func() error
	// swallow says which completions do not come for now; nil: all do.
	swallow func(rdma.WC) bool
	// lose says which completions never come, not even when the QP is closed.
	lose func(rdma.WC) bool

	caps     rdma.Caps
	opens    map[string]int // by device
	connects int            // asked for
	granted  rdma.Access    // on any QP, ever
	accesses []rdma.Access  // of every registration
	qps      []*rigQP
}

func newRig(name string, devices ...string) *rig {
	if len(devices) == 0 {
		devices = []string{name + "0"}
	}
	return &rig{Fabric: iwarp.New(iwarp.Options{}), name: name, devices: devices, opens: map[string]int{}}
}

// set changes the rig while it is in use.
func (r *rig) set(f func(*rig)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

// refuse makes every connection fail with err; nil heals it.
func (r *rig) refuse(err error) {
	r.set(func(r *rig) {
		r.connect = nil
		if err != nil {
			r.connect = func(context.Context, string, string) error { return err }
		}
	})
}

// count returns how often the rig was asked for a connection.
func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connects
}

func (r *rig) opened(device string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opens[device]
}

// cut ends all connections.
func (r *rig) cut() {
	r.mu.Lock()
	qps := slices.Clone(r.qps)
	r.mu.Unlock()
	for _, q := range qps {
		q.Disconnect()
	}
}

func (r *rig) Name() string { return r.name }

func (r *rig) Devices(context.Context) (list []rdma.DeviceInfo, _ error) {
	for _, d := range r.devices {
		list = append(list, rdma.DeviceInfo{Name: d})
	}
	return list, nil
}

func (r *rig) Open(ctx context.Context, name string) (rdma.Device, error) {
	if name == "" {
		name = r.devices[0]
	}
	if !slices.Contains(r.devices, name) {
		return nil, &rdma.OpError{Op: "open", Fabric: r.name, Addr: name, Err: rdma.ErrNoDevice}
	}
	d, err := r.Fabric.Open(ctx, "")
	if err == nil {
		r.set(func(r *rig) { r.opens[name]++ })
	}
	return &rigDevice{d, r, name}, err
}

// A routedRig knows its way, or does not.
type routedRig struct {
	*rig
	route func(addr string) (rdma.Route, error)
}

func (r *routedRig) Route(_ context.Context, addr string) (rdma.Route, error) { return r.route(addr) }
func (r *routedRig) Local(context.Context, string) ([]rdma.Route, error)      { return nil, nil }

type rigDevice struct {
	rdma.Device
	r    *rig
	name string
}

func (d *rigDevice) Name() string { return d.name }

func (d *rigDevice) Attr() rdma.DeviceAttr {
	a := d.Device.Attr()
	a.Fabric, a.Caps, a.Reason = d.r.name, a.Caps&^rdma.CapDiesWithProcess|d.r.caps, "the rig's choice"
	return a
}

func (d *rigDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return &rigPD{pd, d}, err
}

func (d *rigDevice) CreateCQ(depth int) (rdma.CQ, error) {
	d.r.mu.Lock()
	ask := d.r.queue
	d.r.mu.Unlock()
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
	r.mu.Lock()
	ask := r.register
	r.accesses = append(r.accesses, access)
	r.mu.Unlock()
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
	q.r.set(func(r *rig) { r.qps = append(r.qps, q); r.granted |= cfg.Access })
	return q, nil
}

type rigQP struct {
	rdma.QP
	r      *rig
	device string
	cq     *rigCQ
}

func (q *rigQP) Connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	q.r.mu.Lock()
	q.r.connects++
	ask := q.r.connect
	q.r.mu.Unlock()
	if ask != nil {
		if err := ask(ctx, q.device, addr); err != nil {
			return rdma.ConnInfo{}, &rdma.OpError{Op: "connect", Fabric: q.r.name, Addr: addr, Err: err}
		}
	}
	return q.QP.Connect(ctx, addr, p)
}

func (q *rigQP) SetAccess(a rdma.Access) error {
	q.r.set(func(r *rig) { r.granted |= a })
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
	r *rig

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
func (r *rig) without(wcs []rdma.WC) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lose == nil {
		return len(wcs)
	}
	return len(slices.DeleteFunc(wcs, r.lose))
}

func (r *rig) swallows() func(rdma.WC) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.swallow
}

// hang is a connect that nobody answers.
func hang(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

var errNobodyListens = errors.New("nobody listens")

// rigged is a server in this process and a client on some fabrics.
func (n *node) rigged(fabrics []rdma.Fabric, change func(*Config)) *Client {
	n.t.Helper()
	return n.dial(func(cfg *Config) {
		cfg.Fabric, cfg.Fabrics = nil, fabrics
		if change != nil {
			change(cfg)
		}
	})
}
