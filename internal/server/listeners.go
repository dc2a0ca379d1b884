package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/rdma"
)

// A Listener is one place where clients connect: an address at a device of a
// fabric. The same host:port may stand in several: fabrics have ports of their
// own.
type Listener struct {
	// Fabric does the RDMA. Required.
	Fabric rdma.Fabric
	// Device is the device to open; empty lets the fabric choose. Listeners of
	// one device share it.
	Device string
	// Addr is the HOST:PORT; port 0 picks a free one. Default "127.0.0.1:0".
	Addr string
	// Why is the reason for this choice, for the log.
	Why string
	// Group ties listeners together that are to have the same port: those with
	// port 0 take what the first of the group got. Empty: none.
	Group string
	// Optional: when the device cannot be opened or the address not be listened
	// on, the node says so in the log and goes on without, as long as one
	// listener is left.
	Optional bool
	// Else takes the place of an Optional one that failed; may be nil.
	Else *Listener
}

func (l Listener) withDefaults() Listener {
	def(&l.Addr, "127.0.0.1:0")
	if l.Else != nil {
		other := l.Else.withDefaults()
		l.Else = &other
	}
	return l
}

// name is how errors and logs call it.
func (l Listener) name() string {
	dev := l.Fabric.Name()
	if l.Device != "" {
		dev += "/" + l.Device
	}
	return dev + " at " + l.Addr
}

// A port is an open listener of a device.
type port struct {
	Listener
	dev   *device
	ln    rdma.Listener // nil until it listens
	other *port         // stands in for it; nil if there is none

	closing atomic.Bool // the end of ln is our own doing
}

// maxListeners bounds Config.Listeners.
const maxListeners = 256

// portTries is how often another port is tried when the one that the first
// listener of a group got is taken on another fabric.
const portTries = 16

// openAll opens the devices of all listeners, each device once.
func (ds *devices) openAll(ctx context.Context) error {
	srv := ds.srv
	for _, l := range srv.cfg.Listeners {
		p, err := ds.openPort(ctx, l)
		if err != nil {
			return err
		}
		if p != nil {
			ds.ports = append(ds.ports, p)
		}
	}
	if len(ds.ports) == 0 {
		return errors.New("server: no listener is left: each of them failed, see the log")
	}
	return nil
}

// openPort opens the device of l, and of what may have to stand in for it: which
// listeners there are is settled at the start.
func (ds *devices) openPort(ctx context.Context, l Listener) (*port, error) {
	srv := ds.srv
	var other *port
	if l.Else != nil {
		var err error
		if other, err = ds.openPort(ctx, *l.Else); err != nil {
			return nil, err
		}
	}
	d, err := ds.deviceOf(ctx, l)
	if err == nil {
		return &port{Listener: l, dev: d, other: other}, nil
	}
	err = fmt.Errorf("server: listener %s: %w", l.name(), err)
	if !l.Optional || ctx.Err() != nil {
		return nil, err
	}
	srv.log.Warn(base.LogAlways, "a listener is left out: its device cannot be used", "listener", l.name(), "err", err)
	return other, nil
}

// deviceOf returns the device of l, opening it unless another listener has.
func (ds *devices) deviceOf(ctx context.Context, l Listener) (*device, error) {
	for _, d := range ds.list {
		if d.Fabric == l.Fabric && d.Asked == l.Device {
			return d, nil
		}
	}
	d, rail, err := ds.open(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, o := range ds.list { // one that was chosen may be one that was named
		if o.Fabric == d.Fabric && o.Dev.Name() == d.Dev.Name() {
			return o, errors.Join(rail.Close(), d.close())
		}
	}
	ds.list = append(ds.list, d)
	ds.srv.main.Rails.Add(rail)
	return d, nil
}

// spare says of each device whether every listener on it may be missed.
func (ds *devices) spare() []bool {
	spare := make([]bool, len(ds.list))
	for i := range spare {
		spare[i] = true
	}
	for _, p := range ds.ports {
		for ; p != nil; p = p.other {
			i := slices.Index(ds.list, p.dev)
			spare[i] = spare[i] && p.Optional
		}
	}
	return spare
}

// listen makes the lanes of all devices and starts every listener. What fails
// and may fail is taken out, with its device if nothing else uses it.
func (ds *devices) listen(ctx context.Context) error {
	srv := ds.srv
	for dev, why := range srv.main.Regions.Settle() {
		ds.list[dev].lost = why
	}
	for i := 0; i < len(ds.ports); {
		end := i + 1
		for end < len(ds.ports) && ds.ports[i].Group != "" && ds.ports[end].Group == ds.ports[i].Group {
			end++
		}
		if err := ds.listenGroup(ctx, ds.ports[i:end]); err != nil {
			return err
		}
		i = end
	}
	var left []*port
	for _, p := range ds.ports {
		if p.ln != nil {
			left = append(left, p)
		}
	}
	ds.ports = left
	if len(left) == 0 {
		return errors.New("server: no listener is left: each of them failed, see the log")
	}
	return ds.dropIdle()
}

// listenGroup starts the listeners of one group, all at the port that the
// first one got. A port that is free for one fabric may be taken for another:
// then all of them try the next one.
func (ds *devices) listenGroup(ctx context.Context, group []*port) error {
	for try := 1; ; try++ {
		err := ds.listenAt(ctx, group, try == portTries)
		if err == nil || try == portTries || !errors.Is(err, errTaken) {
			return err
		}
		for _, p := range group {
			if p.ln != nil {
				p.ln.Close()
				p.ln = nil
			}
		}
	}
}

// errTaken: a port that was free for one fabric is not for another.
var errTaken = errors.New("server: the port that the group got is taken")

// listenAt is one attempt of listenGroup; last says that no other follows.
func (ds *devices) listenAt(ctx context.Context, group []*port, last bool) error {
	srv := ds.srv
	got := "" // the port that the first listener with port 0 got
	for i := 0; i < len(group); i++ {
		p := group[i]
		addr, chosen := p.Addr, false
		if host, num, err := net.SplitHostPort(addr); err == nil && num == "0" && got != "" {
			addr, chosen = net.JoinHostPort(host, got), true
		}
		err := ds.start(ctx, p, addr)
		switch {
		case err == nil:
			if _, num, splitErr := net.SplitHostPort(p.ln.Addr().String()); splitErr == nil && got == "" {
				got = num
			}
			continue
		case chosen && !last && errors.Is(err, syscall.EADDRINUSE):
			return errTaken
		}
		err = fmt.Errorf("server: listener %s: %w", p.name(), err)
		if !p.Optional || ctx.Err() != nil {
			return err
		}
		srv.log.Warn(base.LogAlways, "a listener is left out: it cannot listen", "listener", p.name(), "err", err)
		if p.other != nil {
			group[i] = p.other // a view of ds.ports
			i--
		}
	}
	return nil
}

// start makes the main space's lanes on the device, once, and listens at addr.
func (ds *devices) start(ctx context.Context, p *port, addr string) (err error) {
	if p.dev.lost != nil {
		return p.dev.lost
	}
	if err = ds.srv.main.Rails.Of(p.dev.Device).MakeLanes(len(ds.list)); err != nil {
		return err
	}
	p.ln, err = p.dev.Dev.Listen(ctx, addr)
	if err != nil {
		p.ln = nil
	}
	return err
}

// dropIdle closes the devices on which nothing listens.
func (ds *devices) dropIdle() error {
	main := ds.srv.main
	used := make(map[*device]bool)
	for _, p := range ds.ports {
		used[p.dev] = true
	}
	var kept []*device
	for i, d := range ds.list {
		if used[d] {
			kept = append(kept, d)
			continue
		}
		rail := main.Rails.Of(d.Device)
		err := main.Regions.Detach(rail.Index)
		if err == nil {
			err = errors.Join(rail.Close(), d.close())
		}
		if err != nil {
			ds.list = append(kept, ds.list[i:]...)
			return fmt.Errorf("server: closing %s/%s, on which nothing listens: %w", d.Fabric.Name(), d.Dev.Name(), err)
		}
		main.Rails.Remove(rail)
	}
	ds.list = kept
	return nil
}

// closePorts stops listening.
func (ds *devices) closePorts() {
	for _, p := range ds.listening() {
		if p.ln != nil {
			p.closing.Store(true)
			p.ln.Close()
		}
	}
}
