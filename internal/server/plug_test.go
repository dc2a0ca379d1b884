package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A plug is a card that can be pulled out while it is in use, and put in again; and
// one whose listeners can go deaf.
type plug struct {
	*card
	changes chan struct{} // of rdma.PortWatcher; nil: it tells of none

	mu     sync.Mutex
	dev    *plugDevice // opened last
	refuse int         // how many calls of Open fail from now on
	opens  int         // calls of Open
	busy   error       // of Listen
}

func newPlug(name string) *plug { return &plug{card: newCard(name, iwarp.Options{})} }

var errPulled = fmt.Errorf("%w: the card was pulled out", rdma.ErrPeerGone)

func (p *plug) Open(ctx context.Context, name string) (rdma.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opens++
	if p.refuse > 0 {
		p.refuse--
		return nil, rdma.ErrNoDevice
	}
	if p.opens > 1 && name != p.name {
		return nil, fmt.Errorf("%w: %q", rdma.ErrNoDevice, name)
	}
	d, err := p.card.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	p.dev = &plugDevice{cardDevice: d.(*cardDevice), plug: p, out: make(chan struct{})}
	return p.dev, nil
}

func (p *plug) set(f func(p *plug)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *plug) tried() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opens
}

func (p *plug) current() *plugDevice {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dev
}

type plugDevice struct {
	*cardDevice
	plug *plug
	out  chan struct{} // closed when it is pulled out and its CQs say so

	mu    sync.Mutex
	gone  bool
	qps   []rdma.QP
	lists []*plugListener
}

// pull takes the card out: its QPs die. With tells, its CQs die too, and nothing
// that is outstanding completes, as after IBV_EVENT_DEVICE_FATAL; without, its
// listeners end, which is what librdmacm says of a removal.
func (d *plugDevice) pull(tells bool) {
	d.mu.Lock()
	d.gone = true
	qps, lists := d.qps, d.lists
	d.mu.Unlock()
	if tells {
		close(d.out)
	}
	for _, q := range qps {
		q.Disconnect()
	}
	for _, l := range lists {
		if !tells {
			l.Listener.Close()
		}
	}
}

func (d *plugDevice) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return errPulled
	}
	return nil
}

func (d *plugDevice) PortChanges() <-chan struct{} { return d.plug.changes }

func (d *plugDevice) AllocPD() (rdma.PD, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	pd, err := d.cardDevice.AllocPD()
	return &plugPD{PD: pd, dev: d}, err
}

func (d *plugDevice) CreateCQ(depth int) (rdma.CQ, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	cq, err := d.cardDevice.CreateCQ(depth)
	return &plugCQ{CQ: cq, dev: d}, err
}

func (d *plugDevice) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	d.plug.mu.Lock()
	busy := d.plug.busy
	d.plug.mu.Unlock()
	if busy != nil {
		return nil, busy
	}
	l, err := d.cardDevice.Listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &plugListener{Listener: l, deaf: make(chan struct{}), closed: make(chan struct{})}
	d.mu.Lock()
	d.lists = append(d.lists, p)
	d.mu.Unlock()
	return p, nil
}

// deafen makes the listeners that there are answer nobody, and not say so.
func (d *plugDevice) deafen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lists {
		close(l.deaf)
		l.Listener.Close()
	}
	d.lists = nil
}

type plugListener struct {
	rdma.Listener
	deaf, closed chan struct{}
	once         sync.Once
}

func (l *plugListener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	req, err := l.Listener.Accept(ctx)
	select {
	case <-l.deaf:
		select {
		case <-l.closed:
			return nil, rdma.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	default:
		return req, err
	}
}

func (l *plugListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type plugPD struct {
	rdma.PD
	dev *plugDevice
}

func (p *plugPD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	if err := p.dev.check(); err != nil {
		return nil, err
	}
	return p.PD.RegMR(buf, access)
}

func (p *plugPD) CreateQP(cfg rdma.QPConfig) (rdma.QP, error) {
	if err := p.dev.check(); err != nil {
		return nil, err
	}
	cfg.SendCQ, cfg.RecvCQ = cfg.SendCQ.(*plugCQ).CQ, cfg.RecvCQ.(*plugCQ).CQ
	q, err := p.PD.CreateQP(cfg)
	if err == nil {
		p.dev.mu.Lock()
		p.dev.qps = append(p.dev.qps, q)
		p.dev.mu.Unlock()
	}
	return q, err
}

type plugCQ struct {
	rdma.CQ
	dev *plugDevice
}

func (c *plugCQ) dead() error {
	select {
	case <-c.dev.out:
		return errPulled
	default:
		return nil
	}
}

func (c *plugCQ) Poll(wcs []rdma.WC) (int, error) {
	if err := c.dead(); err != nil {
		return 0, err
	}
	return c.CQ.Poll(wcs)
}

func (c *plugCQ) Arm() error { return errors.Join(c.dead(), c.CQ.Arm()) }

func (c *plugCQ) Wait(ctx context.Context) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.dev.out:
			cancel()
		case <-both.Done():
		}
	}()
	err := c.CQ.Wait(both)
	if dead := c.dead(); dead != nil && ctx.Err() == nil {
		return dead
	}
	return err
}
