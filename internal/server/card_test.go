package server

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
)

// A card is a fabric of one device that does what a test wants: iwarp with
// another name and with faults. It counts what is registered for clients to
// READ, and what is open.
type card struct {
	rdma.Fabric
	name string

	mu        sync.Mutex
	register  func(n int) error   // before each registration of n bytes to READ
	rights    map[rdma.Access]int // registrations that there were, by rights
	openErr   error
	listenErr error

	slabs atomic.Int64 // registrations of slabs
	open  atomic.Int64 // devices
}

func newCard(name string, o iwarp.Options) *card {
	return &card{Fabric: iwarp.New(o), name: name, rights: make(map[rdma.Access]int)}
}

// atRegister has f called before each registration of a slab; nil: nothing.
func (c *card) atRegister(f func(n int) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.register = f
}

// registered returns how many registrations there were with each set of rights.
func (c *card) registered() map[rdma.Access]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.rights)
}

func (c *card) Name() string { return "cards" }

func (c *card) Open(ctx context.Context, name string) (rdma.Device, error) {
	if c.openErr != nil {
		return nil, c.openErr
	}
	d, err := c.Fabric.Open(ctx, "")
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &cardDevice{Device: d, card: c}, nil
}

type cardDevice struct {
	rdma.Device
	card   *card
	closed bool
}

func (d *cardDevice) Name() string { return d.card.name }

func (d *cardDevice) Attr() rdma.DeviceAttr {
	a := d.Device.Attr()
	a.Fabric = d.card.Name()
	return a
}

func (d *cardDevice) AllocPD() (rdma.PD, error) {
	pd, err := d.Device.AllocPD()
	return &cardPD{PD: pd, dev: d}, err
}

func (d *cardDevice) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	if d.card.listenErr != nil {
		return nil, d.card.listenErr
	}
	return d.Device.Listen(ctx, addr)
}

func (d *cardDevice) Close() error {
	err := d.Device.Close()
	if err == nil && !d.closed {
		d.closed = true
		d.card.open.Add(-1)
	}
	return err
}

type cardPD struct {
	rdma.PD
	dev *cardDevice
}

func (p *cardPD) Device() rdma.Device { return p.dev }

// RegMR wraps the registrations of slabs, which no work request of the server
// names; the others stay what the fabric made.
func (p *cardPD) RegMR(buf []byte, access rdma.Access) (rdma.MR, error) {
	c := p.dev.card
	c.mu.Lock()
	c.rights[access]++
	hook := c.register
	c.mu.Unlock()
	if access != rdma.AccessRemoteRead {
		return p.PD.RegMR(buf, access)
	}
	if hook != nil {
		if err := hook(len(buf)); err != nil {
			return nil, err
		}
	}
	mr, err := p.PD.RegMR(buf, access)
	if err != nil {
		return nil, err
	}
	c.slabs.Add(1)
	return &cardMR{MR: mr, card: c}, nil
}

type cardMR struct {
	rdma.MR
	card *card
	once sync.Once
}

func (m *cardMR) Close() error {
	err := m.MR.Close()
	if err == nil {
		m.once.Do(func() { m.card.slabs.Add(-1) })
	}
	return err
}
