package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/space"
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
//	lose ──▶ devices.run ──▶ closeAway ──▶ reopen, again and again ──▶ a new *device
//	                                                                   in the old one's place
//
// A *device is never used again: readers of devices.list and devices.ports see the old
// one, which is away, or the new one.

// Times between two attempts to open a device that is away: the first, and the
// longest, of a row that doubles.
const (
	reopenFirst = time.Second
	reopenMost  = 15 * time.Second
)

// all returns the devices as they are now; not to be changed.
func (ds *devices) all() []*device {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.list
}

// listening returns the ports as they are now; not to be changed.
func (ds *devices) listening() []*port {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.ports
}

// noteLost is told that a device is gone. It does not wait.
func (ds *devices) noteLost(d *base.Device, why error) {
	srv := ds.srv
	srv.log.Error(base.LogAlways, "a device is gone: what was made on it is closed, and it is opened again when it is back", "device", d.Name(), "err", why)
	select {
	case ds.lost <- struct{}{}:
	default: // run will look anyway
	}
}

// run takes care of devices that are gone, each on a goroutine of its own.
func (ds *devices) run(ctx context.Context) {
	srv := ds.srv
	for {
		select {
		case <-ctx.Done():
			return
		case <-srv.Fatal():
			return
		case <-ds.lost:
		}
		for _, d := range ds.all() {
			if d.Away() != nil && !d.mending {
				d.mending = true
				srv.wg.Go(func() { ds.mend(ctx, d) })
			}
		}
	}
}

// mend closes a device that is gone and brings it back.
func (ds *devices) mend(ctx context.Context, d *device) {
	srv := ds.srv
	if !ds.closeAway(ctx, d) {
		return
	}
	for wait := ds.reopenFirst; ; wait = min(2*wait, reopenMost) {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-srv.Fatal():
		}
		t.Stop()
		if ctx.Err() != nil || srv.Err() != nil {
			return
		}
		err := ds.reopen(ctx, d)
		if err == nil || ctx.Err() != nil {
			return
		}
		a := d.Tried(err)
		srv.log.Info("a device that is gone cannot be opened yet", "device", d.Name(), "tries", a.Tries, "err", err)
	}
}

// closeAway closes everything of a device that is gone. It returns false when the
// node ends first, which then closes what is left.
func (ds *devices) closeAway(ctx context.Context, d *device) bool {
	srv := ds.srv
	if d.stopChecks != nil { // first, because it makes listeners
		d.stopChecks()
		d.checking.Wait()
	}
	for _, p := range ds.listening() {
		if p.dev == d {
			p.closing.Store(true)
			p.ln.Close()
		}
	}
	// At once, because a space may be opening for minutes: a store that needs a region
	// meanwhile would fail to register it with the device.
	var errs []error
	for _, sp := range srv.spaces.every() {
		errs = append(errs, sp.Detach(d.Device))
	}
	srv.spaces.change.Lock() // no space comes or goes
	defer srv.spaces.change.Unlock()
	if ctx.Err() != nil {
		return false
	}
	spaces := srv.spaces.every()
	var own []*session.Rail
	for _, sp := range spaces {
		if r := sp.Rails.Of(d.Device); r != nil {
			errs = append(errs, sp.Regions.Detach(r.Index))
			sp.Regions.Changed()
			own = append(own, r)
		}
	}
	if !endSessions(ctx, own, d.Away().Why) {
		return false
	}
	for _, sp := range slices.Backward(spaces) {
		r := sp.Rails.Of(d.Device)
		if r == nil || sp.Err() != nil {
			continue // it may still use buffers; what is left of it keeps the device open
		}
		sp.Staging.Detach(r.Index)
		errs = append(errs, r.Close())
	}
	if srv.Err() != nil {
		return false
	}
	errs = append(errs, srv.groups.Release(ctx, d.Dev), d.close())
	srv.groups.Closed(d.Dev)
	if err := errors.Join(errs...); err != nil {
		srv.log.Error(base.LogAlways, "a device that is gone cannot be closed altogether: what is left of it stays until this process ends", "device", d.Name(), "err", err)
	} else {
		srv.log.Info("the device that is gone is closed", "device", d.Name())
	}
	return true
}

// endSessions ends every session on the rails, those included that are being set
// up, and waits until they are gone. It returns false when ctx ends first.
func endSessions(ctx context.Context, rails []*session.Rail, why error) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		places := 0
		for _, r := range rails {
			places += r.End(why)
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

// A newRail is a rail that is to take the place of a space's rail on a device that was gone.
type newRail struct {
	sp *space.Space
	*session.Rail
}

// reopen opens a device that is away, makes on it what the old one had, and puts it
// in its place. After an error nothing of it is left.
func (ds *devices) reopen(ctx context.Context, old *device) (err error) {
	srv := ds.srv
	dev, err := old.Fabric.Open(ctx, old.Dev.Name())
	if err != nil {
		return err
	}
	srv.spaces.change.Lock()
	defer srv.spaces.change.Unlock()
	fresh := &device{Device: ds.opened(old.Fabric, old.Asked, dev)}
	ports := make(map[*port]*port) // by the one before
	var made []newRail
	defer func() {
		if err != nil {
			for _, p := range ports {
				p.ln.Close()
			}
			for _, r := range slices.Backward(made) {
				err = errors.Join(err, r.sp.Regions.Detach(r.Index), r.Close())
			}
			err = errors.Join(err, fresh.close())
		}
	}()
	add := func(sp *space.Space) error {
		was := sp.Rails.Of(old.Device)
		if was == nil || sp.Err() != nil {
			return nil
		}
		r, err := sp.MakeRail(fresh.Device)
		if err != nil {
			return err
		}
		r.Index = was.Index
		made = append(made, newRail{sp, r})
		return nil
	}
	if err := add(srv.main); err != nil {
		return err
	}
	ds.warnOfRights(fresh)
	// First, because an address that is not there yet is what fails most often.
	// Nobody is accepted before all is in place.
	for _, p := range ds.listening() {
		if p.dev == old {
			ln, err := dev.Listen(ctx, p.ln.Addr().String())
			if err != nil {
				return err
			}
			ports[p] = &port{Listener: p.Listener, dev: fresh, ln: ln}
		}
	}
	for _, sp := range srv.spaces.tenants() {
		if err := add(sp); err != nil {
			return err
		}
	}
	for _, r := range made {
		if err := r.sp.Attach(ctx, r.Rail); err != nil {
			return err
		}
	}
	return ds.install(old, fresh, made, ports)
}

// install puts a device that is back in the place of the one before, in the node
// and in its spaces, and begins to serve on it. It fails once the node ends.
func (ds *devices) install(old, fresh *device, made []newRail, ports map[*port]*port) error {
	srv := ds.srv
	ds.mu.Lock()
	if srv.main.Draining.Load() { // closePorts may have been here
		ds.mu.Unlock()
		return space.ErrNotServing
	}
	ds.ports = slices.Clone(ds.ports)
	for i, p := range ds.ports {
		if q := ports[p]; q != nil {
			ds.ports[i] = q
		}
	}
	ds.list = slices.Clone(ds.list)
	ds.list[slices.Index(ds.list, old)] = fresh
	ds.mu.Unlock()
	was := old.Away()
	for _, r := range made {
		r.sp.Rails.Replace(r.Rail)
	}
	srv.selfDial.watch(fresh)
	for _, r := range made { // from here on it may be lost again, and is found in the list
		r.RunLanes()
	}
	for _, p := range ports {
		srv.wg.Go(func() { srv.acceptor.run(srv.run, p) })
	}
	srv.main.Regions.Changed()
	srv.log.Info("a device is back and serves", "device", fresh.Name(), "away", time.Since(was.Since).Round(time.Millisecond), "tries", was.Tries+1)
	return nil
}

// state is what is wrong with the device, in brackets, for people; empty: nothing.
func (d *device) state() string {
	if d.Away() != nil {
		return " (away)"
	}
	if c := d.cm.Load(); c != nil && c.err != nil {
		return " (no new connections)"
	}
	return ""
}

// cutOff says whether devices are away and no listener is left: of those that serve
// other machines, if the node had one.
func (ds *devices) cutOff() bool {
	far, farLeft, left, away := false, false, false, false
	for _, d := range ds.all() {
		here := d.Away() == nil
		away = away || !here
		left = left || here
		far = far || d.Far()
		farLeft = farLeft || here && d.Far()
	}
	return away && (!left || far && !farLeft)
}

// ailing are lines about devices that are away, or on which no connection can be
// made.
func (ds *devices) ailing() (lines []string) {
	srv := ds.srv
	if !srv.main.Serving.Load() {
		return nil
	}
	for _, d := range ds.all() {
		if a := d.Away(); a != nil {
			lines = append(lines, fmt.Sprintf("device %s: %v", d.Name(), a))
		} else if c := d.cm.Load(); c != nil && c.err != nil {
			lines = append(lines, fmt.Sprintf("degraded: device %s: %v", d.Name(), c.err))
		}
	}
	return lines
}
