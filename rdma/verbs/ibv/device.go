package ibv

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
)

// A process begins with these calls. When one fails for lack of a module or a
// permission, the error is ErrUnavailable.
const (
	callDeviceList   = "ibv_get_device_list"
	callOpenDevice   = "ibv_open_device"
	callEventChannel = "rdma_create_event_channel"
)

// Devices lists the devices that a provider of rdma-core knows, by name. A
// machine without any gives an empty list; one whose kernel has devices that
// rdma-core does not show, an error that is ErrUnavailable.
func Devices() ([]DeviceInfo, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	list, errno := sysDevices()
	if errno != 0 {
		return nil, callError(callDeviceList, errno)
	}
	if entries, err := os.ReadDir(sysfsRoot); err == nil && len(list) == 0 && len(entries) > 0 {
		return nil, fmt.Errorf("%w: the kernel has %s, but libibverbs shows no device: /dev/infiniband/uverbsN is missing (modprobe ib_uverbs), or the provider (Debian: apt-get install ibverbs-providers)",
			ErrUnavailable, entries[0].Name())
	}
	slices.SortFunc(list, func(a, b DeviceInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// A Context is an open device, struct ibv_context. All methods are safe for
// concurrent use, as those of all objects of this package.
type Context struct {
	object
	info  DeviceInfo
	async *notifier
}

// Open opens the device with that name. No other is taken if there is none:
// the error is ErrNoSuchDevice then and lists those that are there.
func Open(name string) (*Context, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	h, info, fd, found, errno := sysOpen(name)
	if !found && errno == 0 {
		return nil, noSuchDevice(name)
	}
	if errno != 0 {
		return nil, callError(callOpenDevice, errno)
	}
	async, err := newNotifier(fd, "async events of "+name)
	if err != nil {
		sysCloseDevice(h)
		return nil, err
	}
	return &Context{object: object{key: newKey(), h: h}, info: info, async: async}, nil
}

// noSuchDevice is the error of a name that no device has; it lists those that
// exist.
func noSuchDevice(name string) error {
	list, err := Devices()
	if err != nil {
		return err
	}
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %q: this machine has none", ErrNoSuchDevice, name)
	}
	return fmt.Errorf("%w: %q: there is %s", ErrNoSuchDevice, name, strings.Join(names, ", "))
}

// Info is what Devices said of the device.
func (c *Context) Info() DeviceInfo { return c.info }

// Close closes the device and ends AsyncEvent. It fails with EBUSY while a PD,
// CQ or completion channel of it is open.
func (c *Context) Close() error {
	done, err := c.destroy("ibv_close_device", sysCloseDevice)
	if done {
		c.async.close()
	}
	return err
}

// QueryDevice is ibv_query_device(3).
func (c *Context) QueryDevice() (DeviceAttr, error) {
	if err := c.use(); err != nil {
		return DeviceAttr{}, err
	}
	defer c.mu.RUnlock()
	attr, errno := sysQueryDevice(c.h)
	return attr, callError("ibv_query_device", errno)
}

// QueryPort is ibv_query_port(3). Ports count from 1.
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	if err := c.use(); err != nil {
		return PortAttr{}, err
	}
	defer c.mu.RUnlock()
	attr, errno := sysQueryPort(c.h, port)
	return attr, callError("ibv_query_port", errno)
}

// QueryPKey is ibv_query_pkey(3): the key in host order.
func (c *Context) QueryPKey(port uint8, index int) (uint16, error) {
	if err := c.use(); err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	pkey, errno := sysQueryPKey(c.h, port, index)
	return pkey, callError("ibv_query_pkey", errno)
}

// GIDTable is ibv_query_gid_table(3): the entries of port that are not zero,
// by index. A libibverbs without that call (before version 32) is helped out
// by sysfs.
func (c *Context) GIDTable(port uint8) ([]GIDEntry, error) {
	attr, err := c.QueryPort(port)
	if err != nil {
		return nil, err
	}
	entries, ifindex, err := c.queryGIDs(port)
	if err != nil {
		return nil, err
	}
	if entries == nil {
		return sysfsGIDs(sysfsRoot, c.info.Name, port, attr.LinkLayer)
	}
	table := entries[:0]
	for i, e := range entries {
		if e.Port != port || e.GID == (GID{}) {
			continue
		}
		if ifi, err := net.InterfaceByIndex(ifindex[i]); ifindex[i] > 0 && err == nil {
			e.NetDev = ifi.Name
		}
		table = append(table, e)
	}
	slices.SortFunc(table, func(a, b GIDEntry) int { return cmp.Compare(a.Index, b.Index) })
	return table, nil
}

// queryGIDs returns the tables of all ports, and the interface of each entry;
// nil if the library cannot.
func (c *Context) queryGIDs(port uint8) ([]GIDEntry, []int, error) {
	dev, err := c.QueryDevice()
	if err != nil {
		return nil, nil, err
	}
	room := 0
	for p := 1; p <= int(dev.PhysPortCnt); p++ {
		attr, err := c.QueryPort(uint8(p))
		if err != nil {
			return nil, nil, err
		}
		room += attr.GIDTblLen
	}
	if err := c.use(); err != nil {
		return nil, nil, err
	}
	defer c.mu.RUnlock()
	entries, ifindex, errno := sysGIDTable(c.h, room)
	if errno == syscall.ENOSYS || errno == syscall.EOPNOTSUPP {
		return nil, nil, nil
	}
	return entries, ifindex, callError("ibv_query_gid_table", errno)
}

// AsyncEvent waits for the next asynchronous event of the device and
// acknowledges it (ibv_get_async_event(3)). It ends with ctx's error, or with
// ErrClosed. A program that never calls it misses only the events.
func (c *Context) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	var ev asyncRaw
	var failed error
	err := c.async.wait(ctx, func() bool {
		if failed = c.use(); failed != nil {
			return true
		}
		defer c.mu.RUnlock()
		var errno syscall.Errno
		ev, errno = sysAsyncEvent(c.h)
		failed = callError("ibv_get_async_event", errno)
		return !again(errno)
	})
	if err = cmp.Or(err, failed); err != nil {
		return AsyncEvent{}, err
	}
	out := AsyncEvent{Type: ev.kind, QPN: ev.qpn, Port: ev.port}
	switch {
	case ev.kind.ofQP():
		out.QP = liveQPs.get(ev.key)
	case ev.kind == AsyncCQErr:
		out.CQ = liveCQs.get(ev.key)
	case ev.kind == AsyncSRQErr || ev.kind == AsyncSRQLimitReached:
		out.SRQ = liveSRQs.get(ev.key)
	}
	return out, nil
}

// asyncRaw is struct rk_async_event.
type asyncRaw struct {
	kind AsyncType
	key  uint64 // of the CQ, QP or SRQ
	qpn  uint32
	port uint8
}

// again says if errno means that there is nothing to read yet.
func again(errno syscall.Errno) bool {
	return errno == syscall.EAGAIN || errno == syscall.EINTR
}
