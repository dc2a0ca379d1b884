package sim

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/mem"
)

const (
	fabricName = "sim"
	deviceName = "sim0"
)

// A Host is a machine of the network with one adapter, and the fabric that the
// machine's program uses. All methods are safe for concurrent use.
type Host struct {
	net   *Network
	name  string
	ip    netip.Addr
	life  *life
	lives uint64
	dials uint64
}

// A life is the time between two starts of a machine's program. What was made
// in one life, with the adapter's memory of it, has no part in the next.
type life struct {
	host    *Host
	devices []*device
	paused  bool
	dead    bool // the program is gone; its adapter may still answer READs
	gone    bool // the adapter answers nothing any more
	held    []func()
}

var _ rdma.Fabric = (*Host)(nil)

// Host adds a machine. Machines of one name share nothing but the name; with
// Adversity.ReuseKeys they give out the same keys. addr is its IP address, by
// which listeners are found; empty means 127.0.0.1.
func (n *Network) Host(name, addr string) (*Host, error) {
	ip := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if addr != "" {
		var err error
		if ip, err = netip.ParseAddr(addr); err != nil {
			return nil, fmt.Errorf("%w: host %s: %w", rdma.ErrInvalid, name, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{net: n, name: name, ip: ip}
	h.life = &life{host: h}
	n.hosts = append(n.hosts, h)
	return h, nil
}

// Name is "sim".
func (h *Host) Name() string { return fabricName }

// Devices lists the one device of every host.
func (h *Host) Devices(ctx context.Context) ([]rdma.DeviceInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return []rdma.DeviceInfo{{Name: deviceName, Transport: "simulated", Detail: "adversarial adapter in this process, host " + h.name}}, nil
}

// Open opens "sim0", which is also what the empty name means.
func (h *Host) Open(ctx context.Context, name string) (rdma.Device, error) {
	fail := func(err error) (rdma.Device, error) { return nil, opError("open", name, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if name != "" && name != deviceName {
		return fail(fmt.Errorf("%w; there is: %s", rdma.ErrNoDevice, deviceName))
	}
	reason := "named"
	if name == "" {
		reason = "the only device"
	}
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices++
	d := newDevice(h.life, reason, n.devices)
	h.life.devices = append(h.life.devices, d)
	return d, nil
}

// Pause stops the machine's program as far as others can see, as SIGSTOP does:
// it gets no completion, no event and no request to connect, nothing that it
// posts leaves, and its memory stands still: the adapter answers READs from the
// memory as it was. (Its goroutines themselves run on, but no peer can tell.)
func (h *Host) Pause() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.life.paused {
		return
	}
	n.logf("%s: pause", h.name)
	h.life.freeze()
	h.life.paused = true
}

// Resume ends a Pause: READs see the memory as the program has left it, and what
// it has posted leaves.
func (h *Host) Resume() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l := h.life
	if !l.paused {
		return
	}
	n.logf("%s: resume", h.name)
	l.paused = false
	for _, d := range l.devices {
		d.thaw()
	}
	held := l.held
	l.held = nil
	for _, f := range held {
		f()
	}
	n.turn()
}

// Kill ends the machine's program as kill -9 does: its connections, listeners
// and devices are dead to it at once, and no peer is told. For the time linger
// the adapter goes on answering READs from the memory as it was, and
// acknowledges SENDs that no program reads; then it answers nothing. The Host's
// next Open begins a new life. What the old program still calls fails or has no
// effect on others, so it can be closed safely.
func (h *Host) Kill(linger time.Duration) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("%s: killed, memory readable for %v", h.name, linger)
	l := h.life
	if !l.paused {
		l.freeze()
	}
	l.paused, l.dead, l.held = false, true, nil
	h.lives++
	h.life = &life{host: h}
	for at, ln := range n.listeners {
		if ln.dev.life == l {
			delete(n.listeners, at)
			ln.shut()
		}
	}
	for _, d := range l.devices {
		for _, q := range d.qps {
			q.ghost = q.state == rdma.QPRTS
			q.fail(cause{err: fmt.Errorf("%w: the program was killed", rdma.ErrPeerGone), silent: true})
		}
	}
	if linger <= 0 {
		l.gone = true
	} else {
		n.after(linger, func() { l.gone = true })
	}
	n.turn()
}

// RemoveDevice pulls the adapter out (RDMA_CM_EVENT_DEVICE_REMOVAL): every
// connection of the host dies, here with StatusFatalErr; peers find out by
// themselves. What was opened must be closed; Open finds a new adapter.
func (h *Host) RemoveDevice() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("%s: device removed", h.name)
	for _, d := range h.life.devices {
		for _, q := range d.qps {
			q.fail(cause{err: fmt.Errorf("%w: device removed", rdma.ErrPeerGone), status: rdma.StatusFatalErr, silent: true})
		}
	}
	n.turn()
}

// CutConnections ends every connection of the host, told to both sides.
func (h *Host) CutConnections() {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("%s: connections cut", h.name)
	for _, d := range h.life.devices {
		for _, q := range d.qps {
			if q.state == rdma.QPRTS {
				q.fail(cause{err: fmt.Errorf("%w: connection lost", rdma.ErrPeerGone), status: rdma.StatusRetryExcErr})
			}
		}
	}
	n.turn()
}

// CutConnectionsTo ends every connection of the host to another one, also to a life of that which was killed and of which the memory lingers; this
// side is told.
func (h *Host) CutConnectionsTo(other *Host) {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("%s: connections to %s cut", h.name, other.name)
	for _, d := range h.life.devices {
		for _, q := range d.qps {
			if q.state == rdma.QPRTS && q.peer.host() == other {
				q.fail(cause{err: fmt.Errorf("%w: connection lost", rdma.ErrPeerGone), status: rdma.StatusRetryExcErr})
			}
		}
	}
	n.turn()
}

// freeze keeps a copy of all memory that peers may read.
func (l *life) freeze() {
	for _, d := range l.devices {
		for _, m := range d.mrs {
			if m.access&rdma.AccessRemoteRead != 0 && m.frozen == nil {
				m.frozen = make([]byte, len(m.buf))
				mem.Copy(m.frozen, m.buf, 0)
			}
		}
	}
}

// says runs f now, or when the program runs again: it is for actions that only a
// running program takes. A dead one takes none.
func (l *life) says(f func()) {
	switch {
	case l.dead:
	case l.paused:
		l.held = append(l.held, f)
	default:
		f()
	}
}

// thaw ends a pause for what belongs to the device.
func (d *device) thaw() {
	for key, m := range d.mrs {
		m.frozen = nil
		if m.closed { // deregistered meanwhile
			delete(d.mrs, key)
			d.free(m)
		}
	}
	for c := range d.cqs {
		c.signal()
	}
	for _, q := range d.qps {
		q.ghost = false
		q.launch()
	}
}
