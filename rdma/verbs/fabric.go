package verbs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

const fabricName = "verbs"

// A Fabric is the RDMA devices of this machine. It implements rdma.Fabric and
// rdma.Router.
type Fabric struct {
	opts   Options
	optErr error // reported by Open, because New returns no error

	// vector is the completion vector of the next CQ, of whichever device: modulo
	// how many that has. It begins at random, so that the programs of a machine do
	// not all begin with the same.
	vector atomic.Uint32
}

var (
	_ rdma.Fabric = (*Fabric)(nil)
	_ rdma.Router = (*Fabric)(nil)
)

// New makes a fabric. It touches nothing: bad options, and a machine without
// RDMA, are reported by Open.
func New(opts Options) *Fabric {
	opts = opts.withDefaults()
	f := &Fabric{opts: opts, optErr: opts.validate()}
	f.vector.Store(rand.Uint32())
	return f
}

// Name is "verbs".
func (f *Fabric) Name() string { return fabricName }

// Unavailable is nil if rdma-core and at least one device are here; else it wraps
// rdma.ErrNoDevice and says what is missing and what to install. Where rdma-core
// or the kernel's part of it is missing it wraps ibv.ErrUnavailable too.
func (f *Fabric) Unavailable() error {
	list, err := f.list()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%w: this machine has no RDMA device (rdma link shows them; for Soft-RoCE: rdma link add rxe0 type rxe netdev INTERFACE)", rdma.ErrNoDevice)
	}
	return nil
}

// list is ibv.Devices with the class of a missing device.
func (f *Fabric) list() ([]ibv.DeviceInfo, error) {
	err := ibv.Load()
	if err == nil && f.opts.Connect == ConnectCM {
		err = ibv.LoadCM()
	}
	var list []ibv.DeviceInfo
	if err == nil {
		list, err = ibv.Devices()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	return list, nil
}

// Devices lists the devices by name. Without rdma-core the list is empty;
// Unavailable has the reason.
func (f *Fabric) Devices(ctx context.Context) ([]rdma.DeviceInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	list, err := f.list()
	if err != nil {
		if errors.Is(err, ibv.ErrUnavailable) {
			return nil, nil
		}
		return nil, opError("devices", "", err)
	}
	var infos []rdma.DeviceInfo
	for _, d := range list {
		info := rdma.DeviceInfo{Name: d.Name, Transport: transportName(d.Transport, nil)}
		ports, err := f.look(d.Name)
		if err != nil {
			info.Detail = err.Error()
		} else {
			if len(ports) > 0 {
				info.Transport = transportName(d.Transport, &ports[0])
			}
			info.Detail = describe(ports)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// describe is one line about the ports of a device, for people.
func describe(ports []port) string {
	var parts []string
	for _, p := range ports {
		s := fmt.Sprintf("port %d %s, MTU %d", p.num, stateName(p.attr.State), p.attr.ActiveMTU.Bytes())
		if g, _, err := chooseGID(&p, -1, gidAddr(ibv.GID{})); err == nil {
			s += fmt.Sprintf(", GID %d %s", g.Index, gidText(g.GID))
			if g.NetDev != "" {
				s += " on " + g.NetDev
			}
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// look opens a device for as long as it takes to ask about its ports.
func (f *Fabric) look(name string) ([]port, error) {
	c, err := ibv.Open(name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	attr, err := c.QueryDevice()
	if err != nil {
		return nil, err
	}
	return queryPorts(c, int(attr.PhysPortCnt))
}

// queryPorts asks an open device for its n ports and their GID tables.
func queryPorts(c *ibv.Context, n int) ([]port, error) {
	ports := make([]port, n)
	for i := range ports {
		p := &ports[i]
		p.num = uint8(i + 1)
		var err error
		if p.attr, err = c.QueryPort(p.num); err != nil {
			return nil, err
		}
		if p.gids, err = c.GIDTable(p.num); err != nil {
			return nil, err
		}
	}
	return ports, nil
}

// Open opens a device by name; the empty name lets the fabric choose.
func (f *Fabric) Open(ctx context.Context, name string) (rdma.Device, error) {
	fail := func(err error) (rdma.Device, error) { return nil, opError("open", name, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if f.optErr != nil {
		return fail(f.optErr)
	}
	list, err := f.list()
	if err != nil {
		return fail(err)
	}
	d, err := f.openAny(name, list)
	if err != nil {
		return fail(err)
	}
	f.opts.Logger.Info("opened RDMA device", "device", d.name, "why", d.attr.Reason)
	return d, nil
}

// openAny opens the named device, or the first of list that can be used. A device
// that makes no RC queue pair (it has other transports only) shows that only when
// it is opened; then the next one is tried.
func (f *Fabric) openAny(name string, list []ibv.DeviceInfo) (*device, error) {
	if name != "" {
		if err := known(name, list); err != nil {
			return nil, err
		}
		return openDevice(f, name, "named")
	}
	cands := f.candidates(list)
	for {
		name, reason, err := chooseDevice(cands, f.opts.Port)
		if err != nil {
			return nil, err
		}
		d, err := openDevice(f, name, reason)
		if err == nil || !errors.Is(err, rdma.ErrNoDevice) {
			return d, err
		}
		for i := range cands {
			if cands[i].name == name {
				cands[i].err = err
			}
		}
	}
}

// known is nil if there is a device of that name; else the error lists the
// names that there are.
func known(name string, list []ibv.DeviceInfo) error {
	var names []string
	for _, d := range list {
		if d.Name == name {
			return nil
		}
		names = append(names, d.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: this machine has no RDMA device", rdma.ErrNoDevice)
	}
	return fmt.Errorf("%w; there is: %s", rdma.ErrNoDevice, strings.Join(names, ", "))
}

// candidates are the devices that Open("") chooses from.
func (f *Fabric) candidates(list []ibv.DeviceInfo) []candidate {
	var cands []candidate
	for _, d := range list {
		c := candidate{name: d.Name, transport: d.Transport}
		c.ports, c.err = f.look(d.Name)
		cands = append(cands, c)
	}
	return cands
}
