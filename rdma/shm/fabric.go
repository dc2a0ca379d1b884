//go:build linux

package shm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

// A Fabric is the shared memory of this process. It implements rdma.Fabric and
// rdma.Router.
type Fabric struct {
	opts    Options
	optErr  error // reported by Open, because New returns no error
	pending atomic.Int64
	qpns    soft.Numbers
	maps    soft.Count
	// accepted are the bytes of peers that accepted connections map.
	accepted sum
}

var (
	_ rdma.Fabric = (*Fabric)(nil)
	_ rdma.Router = (*Fabric)(nil)
)

// New makes a fabric. Bad options are reported by Open.
func New(opts Options) *Fabric {
	opts = opts.withDefaults()
	f := &Fabric{opts: opts, optErr: opts.validate()}
	f.maps.Limit, f.accepted.limit = int64(opts.MaxMaps), opts.MaxAcceptedBytes
	return f
}

// validate names the first option that is out of range.
func (o Options) validate() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{o.ReadDepth < 1 || o.ReadDepth > 1<<15, fmt.Sprintf("ReadDepth %d is not within 1 and %d", o.ReadDepth, 1<<15)},
		{o.MaxQP < 1, fmt.Sprintf("MaxQP %d is not positive", o.MaxQP)},
		{o.MaxPending < 1, fmt.Sprintf("MaxPending %d is not positive", o.MaxPending)},
		{o.MaxMaps < 1, fmt.Sprintf("MaxMaps %d is not positive", o.MaxMaps)},
		{o.MaxAcceptedBytes < 0, fmt.Sprintf("MaxAcceptedBytes %d is negative", o.MaxAcceptedBytes)},
		{o.SetupTimeout < 0, fmt.Sprintf("SetupTimeout %v is negative", o.SetupTimeout)},
		{o.Trust > Trusted, fmt.Sprintf("Trust %d is unknown", o.Trust)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", rdma.ErrInvalid, c.text)
		}
	}
	return nil
}

// Name is "shm".
func (f *Fabric) Name() string { return fabricName }

// Devices lists the one device that is always there.
func (f *Fabric) Devices(ctx context.Context) ([]rdma.DeviceInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return []rdma.DeviceInfo{{
		Name: deviceName, Transport: "shared memory", Detail: "processes of this host; sockets in " + f.place(),
	}}, nil
}

// Open opens "shm0", which is also what the empty name means.
func (f *Fabric) Open(ctx context.Context, name string) (rdma.Device, error) {
	fail := func(err error) (rdma.Device, error) { return nil, opError("open", name, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if name != "" && name != deviceName {
		return fail(fmt.Errorf("%w; there is: %s", rdma.ErrNoDevice, deviceName))
	}
	if f.optErr != nil {
		return fail(f.optErr)
	}
	if err := probe(); err != nil {
		return fail(fmt.Errorf("%w: no memory can be shared here: %w", rdma.ErrNoDevice, err))
	}
	reason := "named"
	if name == "" {
		reason = "the only device"
	}
	return newDevice(f, reason), nil
}

// probe finds out, before the device is opened, whether this kernel gives the
// memfds and seals that regions need: then the program can still take another
// device.
func probe() error {
	b, err := mem.Alloc(1, mem.Options{Shared: true, Tag: "shm probe"})
	if err != nil {
		return err
	}
	return b.Free()
}

// Route names the device if a server of this host says that it is the one at addr:
// its socket is there, and is one that may be believed.
func (f *Fabric) Route(ctx context.Context, addr string) (rdma.Route, error) {
	fail := func(err error) (rdma.Route, error) {
		return rdma.Route{}, opError("route", addr, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err))
	}
	want, err := resolve(ctx, addr)
	if err != nil {
		return fail(err)
	}
	places, err := f.find(want.Port())
	if err != nil {
		return fail(err)
	}
	return rdma.Route{Device: deviceName, Addr: addr, Reason: "on this host, by " + places[0].path}, nil
}

// Local names the device: it listens wherever a socket can be made.
func (f *Fabric) Local(ctx context.Context, addr string) ([]rdma.Route, error) {
	if _, err := resolve(ctx, addr); err != nil {
		return nil, opError("route", addr, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err))
	}
	dir, err := f.makeDir()
	if err != nil {
		return nil, opError("route", addr, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err))
	}
	return []rdma.Route{{Device: deviceName, Addr: addr, Reason: "for clients of this host, in " + dir}}, nil
}
