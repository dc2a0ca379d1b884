package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A device that goes while the node runs (unplugged, reset, its driver reloaded)
// and may come back.
//
// It is noticed by what ends without our doing: a CQ that answers ErrPeerGone, or a
// listener. Then everything that was made on it is closed, in the node and in every
// space: listeners, sessions, registrations of regions, staging, lanes, PDs, and
// the device itself last. What other devices serve goes on meanwhile. Then the
// device is opened again by the name that it had, at growing intervals: it gets new
// PDs and lanes, all regions are registered with it, and its listeners have their
// old addresses. Its sessions are all new, and are given its new rkeys as every
// session is; the other nodes learn them by gossip.
//
//	lose ──▶ devicesLoop ──▶ closeAway ──▶ reopen, again and again ──▶ a new *device
//	                                                                   in the old one's place
//
// A *device is never used again: readers of srv.devices and srv.ports see the old
// one, which is away, or the new one.

// Times between two attempts to open a device that is away: the first, and the
// longest, of a row that doubles.
const (
	reopenFirst = time.Second
	reopenMost  = 15 * time.Second
)

// An absence says since when a device is gone, and why.
type absence struct {
	why   error
	since time.Time
	tries int   // to open it again
	last  error // of the last of them
}

func (a *absence) String() string {
	text := fmt.Sprintf("away since %s (%v)", a.since.UTC().Format(time.RFC3339), a.why)
	if a.tries > 0 {
		text += fmt.Sprintf("; tries to open it again: %d, the last: %v", a.tries, a.last)
	}
	return text
}

// deviceList returns the devices as they are now; not to be changed.
func (srv *Server) deviceList() []*device {
	srv.devMu.RLock()
	defer srv.devMu.RUnlock()
	return srv.devices
}

// portList returns the ports as they are now; not to be changed.
func (srv *Server) portList() []*port {
	srv.devMu.RLock()
	defer srv.devMu.RUnlock()
	return srv.ports
}

// lose is told that the device is gone. It does not wait, and may be called again.
func (d *device) lose(why error) {
	n := d.node
	srv := n.srv
	if srv.draining.Load() || !n.away.CompareAndSwap(nil, &absence{why: why, since: time.Now()}) {
		return
	}
	srv.log.Error(limitNone, "a device is gone: what was made on it is closed, and it is opened again when it is back", "device", n.name(), "err", why)
	select {
	case srv.lostDevice <- struct{}{}:
	default: // devicesLoop will look anyway
	}
}

// devicesLoop takes care of devices that are gone, each on a goroutine of its own.
func (srv *Server) devicesLoop(ctx context.Context) {
	defer srv.wg.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.fenced:
			return
		case <-srv.lostDevice:
		}
		for _, d := range srv.deviceList() {
			if d.away.Load() != nil && !d.mending {
				d.mending = true
				srv.wg.Go(func() { srv.mend(ctx, d) })
			}
		}
	}
}

// mend closes a device that is gone and brings it back.
func (srv *Server) mend(ctx context.Context, d *device) {
	if !srv.closeAway(ctx, d) {
		return
	}
	for wait := srv.reopenFirst; ; wait = min(2*wait, reopenMost) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-srv.fenced:
		}
		t.Stop()
		if ctx.Err() != nil || srv.Err() != nil {
			return
		}
		err := srv.reopen(ctx, d)
		if err == nil || ctx.Err() != nil {
			return
		}
		a := *d.away.Load()
		a.tries, a.last = a.tries+1, err
		d.away.Store(&a)
		srv.log.Info("a device that is gone cannot be opened yet", "device", d.name(), "tries", a.tries, "err", err)
	}
}

// closeAway closes everything of a device that is gone. It returns false when the
// node ends first, which then closes what is left.
func (srv *Server) closeAway(ctx context.Context, d *device) bool {
	if d.stopChecks != nil { // first, because it makes listeners
		d.stopChecks()
		d.checking.Wait()
	}
	for _, p := range srv.portList() {
		if p.dev == d {
			p.closing.Store(true)
			p.ln.Close()
		}
	}
	// At once, because a space may be opening for minutes: a store that needs a region
	// meanwhile would fail to register it with the device.
	var errs []error
	for _, o := range srv.everyDevice(d) {
		errs = append(errs, o.srv.regions.detach(o.index))
	}
	srv.spaces.change.Lock() // no space comes or goes
	defer srv.spaces.change.Unlock()
	if ctx.Err() != nil {
		return false
	}
	own := srv.everyDevice(d)
	for _, o := range own {
		o.away.Store(d.away.Load()) // from here on nobody gets a place on its lanes
		errs = append(errs, o.srv.regions.detach(o.index))
		o.srv.regions.changed()
	}
	if !endSessions(ctx, own, d.away.Load().why) {
		return false
	}
	slices.Reverse(own) // the node's own last: it closes the device
	for _, o := range own {
		if o.srv.Err() != nil {
			continue // it may still use buffers; what is left of it keeps the device open
		}
		o.srv.staging.detach(o.index)
		errs = append(errs, o.close())
	}
	if srv.Err() != nil {
		return false
	}
	if err := errors.Join(errs...); err != nil {
		srv.log.Error(limitNone, "a device that is gone cannot be closed altogether: what is left of it stays until this process ends", "device", d.name(), "err", err)
	} else {
		srv.log.Info("the device that is gone is closed", "device", d.name())
	}
	return true
}

// everyDevice returns what stands for a device of the node: itself, then what each
// space has made on it. It is all of them while spaces.change is held.
func (srv *Server) everyDevice(d *device) (list []*device) {
	for _, sp := range srv.everySpace() {
		if own := sp.deviceFor(d); own != nil {
			list = append(list, own)
		}
	}
	return list
}

// endSessions ends every session on the devices, those included that are being set
// up, and waits until they are gone. It returns false when ctx ends first.
func endSessions(ctx context.Context, devices []*device, why error) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		places := int32(0)
		for _, d := range devices {
			for _, s := range d.srv.sessionList() {
				if s.lane.dev == d {
					s.end(causeFabric, why)
				}
			}
			for _, l := range d.lanes {
				places += l.sessions.Load()
			}
		}
		if places == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// reopen opens a device that is away, makes on it what the old one had, and puts it
// in its place. After an error nothing of it is left.
func (srv *Server) reopen(ctx context.Context, old *device) (err error) {
	dev, err := old.fabric.Open(ctx, old.dev.Name())
	if err != nil {
		return err
	}
	srv.spaces.change.Lock()
	defer srv.spaces.change.Unlock()
	fresh, err := srv.newDevice(old.fabric, old.asked, dev, false)
	if err != nil {
		return err // it has closed dev
	}
	ports := make(map[*port]*port) // by the one before
	made := []*device{fresh}
	defer func() {
		if err != nil {
			for _, p := range ports {
				p.ln.Close()
			}
			for _, d := range slices.Backward(made) {
				err = errors.Join(err, d.srv.regions.detach(d.index), d.close())
			}
		}
	}()
	fresh.index = old.index
	// First, because an address that is not there yet is what fails most often.
	// Nobody is accepted before all is in place.
	for _, p := range srv.portList() {
		if p.dev == old {
			ln, err := dev.Listen(ctx, p.ln.Addr().String())
			if err != nil {
				return err
			}
			ports[p] = &port{Listener: p.Listener, dev: fresh, ln: ln}
		}
	}
	for _, sp := range srv.everySpace()[1:] {
		was := sp.deviceFor(old)
		if was == nil || sp.Err() != nil {
			continue
		}
		own, err := sp.newDevice(old.fabric, old.asked, dev, true)
		if err != nil {
			return err
		}
		own.node, own.index = fresh, was.index
		made = append(made, own)
	}
	for _, d := range made {
		if err := d.srv.regions.attach(ctx, d.index, d.pd); err != nil {
			return err
		}
		d.srv.staging.attach(d)
		if err := d.makeLanes(); err != nil {
			return err
		}
	}
	return srv.install(made, ports)
}

// install puts a device that is back in the place of the one before, in the node
// and in its spaces, and begins to serve on it. It fails once the node ends.
func (srv *Server) install(made []*device, ports map[*port]*port) error {
	srv.devMu.Lock()
	if srv.draining.Load() { // closePorts may have been here
		srv.devMu.Unlock()
		return errNotServing
	}
	srv.ports = slices.Clone(srv.ports)
	for i, p := range srv.ports {
		if q := ports[p]; q != nil {
			srv.ports[i] = q
		}
	}
	srv.devMu.Unlock()
	was := srv.replaceDevice(made[0]).away.Load()
	for _, d := range made[1:] {
		d.srv.replaceDevice(d)
	}
	srv.checkConnects(made[0])
	for _, d := range made { // from here on it may be lost again, and is found in the list
		d.runLanes()
	}
	for _, p := range ports {
		srv.wg.Add(1)
		go srv.acceptLoop(srv.run, p)
	}
	srv.regions.changed()
	srv.log.Info("a device is back and serves", "device", made[0].name(), "away", time.Since(was.since).Round(time.Millisecond), "tries", was.tries+1)
	return nil
}

// replaceDevice puts d in the place of the one with its index, which it returns.
func (srv *Server) replaceDevice(d *device) (old *device) {
	srv.devMu.Lock()
	defer srv.devMu.Unlock()
	srv.devices = slices.Clone(srv.devices)
	for i, o := range srv.devices {
		if o.index == d.index {
			old, srv.devices[i] = o, d
		}
	}
	return old
}

// far says of a device that it serves other machines too.
func (d *device) far() bool { return !d.attr.Caps.Has(rdma.CapMapped) }

// state is what is wrong with the device, in brackets, for people; empty: nothing.
func (d *device) state() string {
	if d.away.Load() != nil {
		return " (away)"
	}
	if c := d.cm.Load(); c != nil && c.err != nil {
		return " (no new connections)"
	}
	return ""
}

// cutOff says whether devices are away and no listener is left: of those that serve
// other machines, if the node had one.
func (srv *Server) cutOff() bool {
	far, farLeft, left, away := false, false, false, false
	for _, d := range srv.deviceList() {
		here := d.away.Load() == nil
		away = away || !here
		left = left || here
		far = far || d.far()
		farLeft = farLeft || here && d.far()
	}
	return away && (!left || far && !farLeft)
}

// ailing are lines about devices that are away, or on which no connection can be
// made.
func (srv *Server) ailing() (lines []string) {
	if !srv.serving.Load() {
		return nil
	}
	for _, d := range srv.deviceList() {
		if a := d.away.Load(); a != nil {
			lines = append(lines, fmt.Sprintf("device %s: %v", d.name(), a))
		} else if c := d.cm.Load(); c != nil && c.err != nil {
			lines = append(lines, fmt.Sprintf("degraded: device %s: %v", d.name(), c.err))
		}
	}
	return lines
}
