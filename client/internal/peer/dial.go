package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/device"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/rdma"
)

// One attempt to connect: the servers in turn, and for each the fabrics in
// order of preference.
//
//	server ──▶ fabric ──▶ way (device, address) ──▶ connection ──▶ session
//	  ▲          ▲ next if no device reaches it, or no server is there
//	  └ next if none of them reaches it, or the one that answers refuses
//
// An attempt has met a server as soon as the other end has said anything in our
// protocol; until then no server is there. A server that refuses is not asked by another
// fabric, because a wrong secret stays one on every fabric, and an attacker that could make
// us leave a fabric by refusing on it would choose the fabric for us.

// ways lists how fabric i could reach addr, best first. It fails if there is no
// way, and says why.
func (p *Peer) ways(ctx context.Context, i int, addr string) ([]session.Way, error) {
	f, devices := p.cfg.Fabrics[i], p.cfg.Devices
	router, routes := f.(rdma.Router)
	if routes {
		r, err := router.Route(ctx, addr)
		switch {
		case err == nil && (len(devices) == 0 || slices.Contains(devices, r.Device)):
			return []session.Way{{Fabric: i, Device: r.Device, Addr: r.Addr, Why: r.Reason}}, nil
		case err != nil && len(devices) == 0:
			return nil, err
		}
	}
	if len(devices) == 0 {
		return []session.Way{{Fabric: i, Addr: addr}}, nil
	}
	// Told by name: tried, whatever the routes say.
	there, err := f.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var ws []session.Way
	for _, name := range devices {
		if slices.ContainsFunc(there, func(d rdma.DeviceInfo) bool { return d.Name == name }) {
			ws = append(ws, session.Way{Fabric: i, Device: name, Addr: addr, Why: "named in the configuration"})
		}
	}
	if len(ws) == 0 {
		// The fabric's own words: they list the devices that there are.
		dev, err := f.Open(ctx, devices[0])
		if err == nil { // it has come meanwhile
			return []session.Way{{Fabric: i, Device: devices[0], Addr: addr, Why: "named in the configuration"}}, dev.Close()
		}
		return nil, err
	}
	return ws, nil
}

// dialAny is one attempt: each server in turn.
func (k *connector) dialAny(ctx context.Context) (*session.Session, error) {
	var errs []error
	servers := k.c.servers()
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: nobody knows an address of node %q for the fabrics of this client", base.ErrUnavailable, k.c.Node)
	}
	for _, addr := range servers {
		s, err := k.dialAddr(ctx, addr, len(k.c.cfg.Fabrics))
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, base.Because(base.ErrUnavailable, err)
		}
		errs = append(errs, err)
	}
	return nil, base.Because(dialClass(errs), base.FabricErrors(errs))
}

// dialAddr connects to one address by the first of the first n fabrics that
// reaches it, within Config.DialTimeout.
func (k *connector) dialAddr(ctx context.Context, addr string, n int) (*session.Session, error) {
	c := k.c
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	var skipped []base.Skipped
	u := &base.Unreached{Server: addr, Node: c.Node}
	reached := false // some device was able to ask for a connection
	for i, f := range c.cfg.Fabrics[:n] {
		t := dialing{k: k, addr: addr, fabric: i, left: n - i}
		s, answered, err := t.dial(ctx)
		if err == nil {
			s.Skipped = skipped
			return s, nil
		}
		reached = reached || t.reached
		c.log.Debug("not connected", "server", addr, "fabric", f.Name(), "device", t.device, "err", err)
		if n > 1 {
			err = fmt.Errorf("%s: %w", f.Name(), err)
		}
		if answered {
			err = refusal{err}
		}
		base.Farthest(u, f.Name(), err, t.reached, answered)
		if answered || ctx.Err() != nil {
			break
		}
		skipped = append(skipped, base.Skipped{Fabric: f.Name(), Device: t.device, Reason: shortReason(err, f.Name())})
	}
	if c.cfg.RequireRDMA && !reached {
		u.Err = base.Because(base.ErrNoRDMA, base.Reasons(u))
		return nil, base.Because(base.ErrNoRDMA, u)
	}
	return nil, u
}

// A refusal is an error that a server answered with: the way to it works.
type refusal struct{ cause error }

func (e refusal) Error() string { return e.cause.Error() }
func (e refusal) Unwrap() error { return e.cause }

// refused reports whether a server is there and does not want us. One that is
// about to end does not count: soon another one may be there.
func refused(err error) bool {
	return errors.As(err, new(refusal)) && !errors.Is(err, base.ErrClosing)
}

// shortReason is err without the name of the fabric, which stands beside it.
func shortReason(err error, fabric string) string {
	text := err.Error()
	for {
		rest, cut := strings.CutPrefix(text, fabric+": ")
		if !cut {
			return text
		}
		text = rest
	}
}

// dialing is an attempt on one address by one fabric.
type dialing struct {
	k       *connector
	addr    string
	fabric  int
	left    int    // fabrics that wait for their turn, this one included
	device  string // the last one that was tried
	reached bool   // a connection was asked for
}

// errNoAnswer: within its share of the time a way showed no server at its end.
var errNoAnswer = errors.New("no answer")

// dial tries every way of the fabric. A share of the time is all it has to find
// a server; the rest is for the fabrics behind it.
func (d *dialing) dial(ctx context.Context) (s *session.Session, answered bool, err error) {
	reach, share := ctx, time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok && d.left > 1 {
		share = time.Until(deadline) / time.Duration(d.left)
		var cancel context.CancelFunc
		reach, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	s, answered, err = d.dialWays(ctx, reach)
	if err != nil && !answered && reach.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w within %v: %w", errNoAnswer, share.Round(time.Millisecond), err)
	}
	return s, answered, err
}

func (d *dialing) dialWays(ctx, reach context.Context) (*session.Session, bool, error) {
	ws, err := d.k.c.ways(reach, d.fabric, d.addr)
	if err != nil {
		return nil, false, err
	}
	var errs base.FabricErrors
	for _, w := range ws {
		s, answered, err := d.dialWay(ctx, reach, w)
		if err == nil || answered || reach.Err() != nil {
			return s, answered, err
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, false, errs[0]
	}
	return nil, false, errs
}

// dialWay connects by one way. The session is of the store that this client has
// been using.
func (d *dialing) dialWay(ctx, reach context.Context, w session.Way) (*session.Session, bool, error) {
	k := d.k
	t, err := k.c.Devices.Use(reach, device.Key{Fabric: w.Fabric, Name: w.Device})
	if err != nil {
		return nil, false, err
	}
	d.device, d.reached = t.Dev.Name(), true
	if w.Why == "" {
		w.Why = t.Reason
	}
	s, answered, err := session.Connect(ctx, reach, &k.c.options, d.addr, w, t)
	if err != nil {
		return nil, answered, err
	}
	l := k.c.Clock.Unlimited(ctx)
	if err := k.c.admit(&l, s); err != nil {
		s.Fail(err)
		<-s.Gone
		return nil, true, err
	}
	if server := k.server; server != "" && s.ServerID != server {
		err := fmt.Errorf("%w: store %q answers at %s, this client has been using %q; a client serves one store",
			base.ErrUnavailable, s.ServerID, d.addr, server)
		s.Fail(err)
		<-s.Gone
		return nil, true, err
	}
	return s, true, nil
}

// dialClass is what an attempt that failed everywhere counts as: a refusal that
// a person must deal with if there was one, else unavailable.
func dialClass(errs []error) error {
	for _, class := range []error{base.ErrAuth, base.ErrVersion, base.ErrOtherCluster, base.ErrProtocol, base.ErrNoRDMA} {
		for _, err := range errs {
			if errors.Is(err, class) {
				return class
			}
		}
	}
	return base.ErrUnavailable
}
