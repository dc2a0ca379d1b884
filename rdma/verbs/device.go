package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
	"github.com/rdmakv/rdmakv/rdma/verbs/internal/tcp"
)

// A device is one opened RDMA device: a context of libibverbs, the port and GID
// that were chosen, and one goroutine that reads its asynchronous events.
//
// Lock order, over the whole package: cq.pollMu before qp.mu before device.mu;
// sendQueue.mu and recvQueue.mu are taken alone, except that PostSendSpin tries for
// sendQueue.mu while it holds cq.pollMu.
type device struct {
	fabric *Fabric
	name   string
	hw     *ibv.Context
	attr   rdma.DeviceAttr
	iwarp  bool
	kernel bool // the kernel does its work, on this machine's processors
	ports  int
	spare  *ibv.CQ // see fillHole; nil on most devices

	dead    atomic.Pointer[error] // why the device is lost; nil while it lives
	lastWQE atomic.Int32          // does it report that it has left an SRQ alone

	changes chan struct{}      // see PortChanges; room for one
	stop    context.CancelFunc // ends the goroutine of async
	workers sync.WaitGroup

	mu     sync.Mutex
	closed bool
	users  int // PDs, CQs, listeners
	port   port
	gid    ibv.GIDEntry // for bare verbs without a better one
	cm     *cmLoop      // nil until the first connection
	qps    map[uint32]*qp
	cqs    map[*ibv.CQ]*cq
}

const (
	lastWQEUnknown = iota
	lastWQESeen
	lastWQEAbsent
)

// Limits that keep room for what this package itself needs.
const (
	// cqSlack are completions of our own that a CQ may hold beside the
	// program's: the last work requests of QPs that are being closed.
	cqSlack = 64
	// maxDepth of IRD and ORD: they are bytes on the wire, and 255 means
	// "all" to librdmacm.
	maxDepth = 128
	// These bound what both ways to connect carry.
	maxRejectPrivate = tcp.MaxPrivate

	defaultSendWR = 128
	defaultRecvWR = 128
	defaultSGE    = 4
)

// openDevice opens a device by name and chooses its port and GID. On an error
// nothing stays open.
func openDevice(f *Fabric, name, reason string) (_ *device, err error) {
	var d *device
	hw, err := ibv.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrNoDevice, err)
	}
	defer func() {
		if err != nil {
			if d != nil && d.spare != nil {
				_ = d.spare.Close()
			}
			_ = hw.Close()
		}
	}()
	at, err := hw.QueryDevice()
	if err != nil {
		return nil, classify(err)
	}
	d = &device{fabric: f, name: name, hw: hw, ports: int(at.PhysPortCnt), changes: make(chan struct{}, 1), qps: make(map[uint32]*qp), cqs: make(map[*ibv.CQ]*cq)}
	d.iwarp = hw.Info().Transport == ibv.TransportIWARP
	d.kernel = at.VendorID == siwVendor || at.VendorID == rxeVendor
	ports, err := queryPorts(hw, d.ports)
	if err != nil {
		return nil, classify(err)
	}
	p, portReason, err := choosePort(ports, f.opts.Port)
	if err != nil {
		return nil, err
	}
	d.port = *p
	var gidReason string
	if d.gid, gidReason, err = chooseGID(p, f.opts.GIDIndex, netip.Addr{}); err != nil {
		return nil, err
	}
	if d.spare, err = fillHole(hw, at); err != nil {
		return nil, classify(err)
	}
	inline, err := probeInline(hw)
	if err != nil {
		return nil, fmt.Errorf("%w: device %s makes no reliable connected queue pair: %w", rdma.ErrNoDevice, name, classify(err))
	}
	d.attr = attributes(at, d.port.attr, d.iwarp, inline)
	d.attr.Reason = fmt.Sprintf("%s, %s, %s", reason, portReason, gidReason)
	if f.opts.ProbeRights {
		found, err := d.probeRights()
		if err != nil {
			return nil, err
		}
		d.attr.Caps |= found.caps()
		d.attr.Rights = found.why
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.workers.Go(func() { d.async(ctx) })
	return d, nil
}

// attributes turns what ibv_query_device(3) says into the words of package
// rdma, less what this package uses itself.
func attributes(at ibv.DeviceAttr, p ibv.PortAttr, iwarp bool, inline int) rdma.DeviceAttr {
	a := rdma.DeviceAttr{
		Fabric: fabricName,
		Caps:   rdma.CapWrite | rdma.CapSpinRead,
		MaxQP:  at.MaxQP, MaxQPWR: at.MaxQPWR - 1, MaxSGE: min(at.MaxSGE, ibv.MaxSGE),
		MaxCQ: at.MaxCQ, MaxCQE: at.MaxCQE - cqSlack, MaxMR: at.MaxMR, MaxMRSize: at.MaxMRSize, MaxPD: at.MaxPD,
		MaxSRQ: at.MaxSRQ, MaxSRQWR: at.MaxSRQWR,
		MaxQPRdAtom: min(at.MaxQPRdAtom, maxDepth), MaxQPInitRdAtom: min(at.MaxQPInitRdAtom, maxDepth),
		MaxInline: inline, MaxMsgSize: p.MaxMsgSz,
		MaxConnectPrivate: rdma.PrivateDataMax, MaxAcceptPrivate: maxRejectPrivate,
	}
	for _, c := range []struct {
		has bool
		cap rdma.Caps
	}{
		{at.MaxSRQ > 0 && at.MaxSRQWR > 0, rdma.CapSRQ},
		{inline > 0, rdma.CapInline},
		{at.AtomicCap > 0 && !iwarp, rdma.CapAtomics},
		{!iwarp, rdma.CapRNR | rdma.CapSendDelivers},
		{iwarp, rdma.CapReadSinkWrite},
		{at.VendorID == siwVendor, rdma.CapAccessIgnored | rdma.CapNoRevoke},
	} {
		if c.has {
			a.Caps |= c.cap
		}
	}
	return a
}

// Vendors of devices that the kernel makes in software, in ibv_query_device(3):
// soft-iWARP and Soft-RoCE.
const (
	siwVendor = 0x626d74
	rxeVendor = 0xffffff
)

// fillHole keeps siw usable: its library takes the map offset 0x90000 for "no
// queue", so that from 576 KiB of queues on a context can make no more. One
// large CQ, made first and never used, lies across that offset.
func fillHole(hw *ibv.Context, at ibv.DeviceAttr) (*ibv.CQ, error) {
	const entries = 20000 // of 48 bytes
	if at.VendorID != siwVendor {
		return nil, nil
	}
	return hw.CreateCQ(min(entries, at.MaxCQE), nil)
}

// probeInline finds how many bytes a device takes inline, which
// ibv_query_device(3) does not tell: by creating QPs. It fails if the device makes
// no RC queue pair at all, as those do that have other transports only.
func probeInline(hw *ibv.Context) (bytes int, err error) {
	pd, err := hw.AllocPD()
	if err != nil {
		return 0, err
	}
	defer pd.Close()
	cq, err := hw.CreateCQ(1, nil)
	if err != nil {
		return 0, err
	}
	defer cq.Close()
	var last error
	for _, n := range []uint32{512, 256, 128, 64, 32, 0} {
		q, _, err := pd.CreateQP(ibv.QPInit{SendCQ: cq, RecvCQ: cq, Cap: ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: n}})
		if err == nil {
			return int(n), q.Close()
		}
		last = err
	}
	return 0, last
}

// nextVector is the completion vector of the next CQ. CQs take the vectors in turn,
// because a vector is an interrupt, and one interrupt is served by one processor.
func (d *device) nextVector() int {
	return int(d.fabric.vector.Add(1) % uint32(d.hw.CompVectors()))
}

// Name is as Open took it.
func (d *device) Name() string { return d.name }

// Attr returns the limits.
func (d *device) Attr() rdma.DeviceAttr { return d.attr }

// use counts a PD, CQ or listener in; unuse counts it out.
func (d *device) use() error {
	if why := d.dead.Load(); why != nil {
		return *why
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%w: device %s", rdma.ErrClosed, d.name)
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
	if err := d.use(); err != nil {
		return nil, err
	}
	hw, err := d.hw.AllocPD()
	if err != nil {
		d.unuse()
		return nil, classify(err)
	}
	return &pd{dev: d, hw: hw}, nil
}

// CreateCQ creates a completion queue.
func (d *device) CreateCQ(depth int) (rdma.CQ, error) {
	if depth < 1 || depth > d.attr.MaxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d is not within 1 and %d", rdma.ErrInvalid, depth, d.attr.MaxCQE)
	}
	if err := d.use(); err != nil {
		return nil, err
	}
	c, err := newCQ(d, depth)
	if err != nil {
		d.unuse()
		return nil, classify(err)
	}
	return c, nil
}

// Listen starts to accept connections.
func (d *device) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	fail := func(err error) (rdma.Listener, error) { return nil, opError("listen", addr, err) }
	if err := d.use(); err != nil {
		return fail(err)
	}
	var l rdma.Listener
	var err error
	if d.fabric.opts.Connect == ConnectCM {
		l, err = d.listenCM(ctx, addr)
	} else {
		l, err = d.listenTCP(ctx, addr)
	}
	if err != nil {
		d.unuse()
		return fail(err)
	}
	return l, nil
}

// Close fails with ErrBusy while PDs, CQs or listeners are open.
func (d *device) Close() error {
	d.mu.Lock()
	if d.users > 0 {
		defer d.mu.Unlock()
		return fmt.Errorf("%w: device %s has %d open PDs, CQs and listeners", rdma.ErrBusy, d.name, d.users)
	}
	again := d.closed
	d.closed = true
	cm := d.cm
	d.cm = nil
	d.mu.Unlock()
	if again {
		return nil
	}
	d.stop()
	d.workers.Wait()
	if cm != nil {
		cm.close()
	}
	if d.spare != nil {
		_ = d.spare.Close()
	}
	return classify(d.hw.Close())
}

// localGID is the entry to use from a local address, and the port that it is
// in.
func (d *device) localGID(local netip.Addr) (ibv.GIDEntry, port, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	g, _, err := chooseGID(&d.port, d.fabric.opts.GIDIndex, local)
	return g, d.port, err
}

// gidAt is entry i of the GID table of a port, as far as it is known.
func (d *device) gidAt(num uint8, i int) (ibv.GIDEntry, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if num != d.port.num {
		return ibv.GIDEntry{}, false
	}
	for _, g := range d.port.gids {
		if g.Index == i {
			return g, true
		}
	}
	return ibv.GIDEntry{}, false
}

// enter makes a QP known by its number.
func (d *device) enter(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.qps[q.num] = q
}

// leave takes it out, but not a younger one: a device may give the number away
// as soon as the QP is destroyed.
func (d *device) leave(q *qp) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.qps[q.num] == q {
		delete(d.qps, q.num)
	}
}

// findQP is the QP with that number, nil if it is gone.
func (d *device) findQP(num uint32) *qp {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[num]
}
