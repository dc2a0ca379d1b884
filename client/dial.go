package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/rdma"
)

// One attempt to connect: the servers in turn, and for each the fabrics in
// order of preference.
//
//	server ──▶ fabric ──▶ way (device, address) ──▶ connection ──▶ session
//	  ▲          ▲ next if no device reaches it, or nobody is there
//	  └ next if none of them reaches it, or the one that answers refuses
//
// The line between "nobody is there" and "somebody refuses" is drawn where the
// other end has said anything in our protocol: a wrong secret stays one on every
// fabric, and whoever could make us leave a fabric by refusing on it would choose
// the fabric for us.

// A way is how a server's address can be reached.
type way struct {
	fabric int    // index in Config.Fabrics
	device string // as Fabric.Open takes it
	addr   string // what to connect to
	why    string // why this device
}

// ways lists how fabric i could reach addr, best first. It fails if there is no
// way, and says why.
func (c *peer) ways(ctx context.Context, i int, addr string) ([]way, error) {
	f, devices := c.cfg.Fabrics[i], c.cfg.Devices
	router, routes := f.(rdma.Router)
	if routes {
		r, err := router.Route(ctx, addr)
		switch {
		case err == nil && (len(devices) == 0 || slices.Contains(devices, r.Device)):
			return []way{{i, r.Device, r.Addr, r.Reason}}, nil
		case err != nil && len(devices) == 0:
			return nil, err
		}
	}
	if len(devices) == 0 {
		return []way{{fabric: i, addr: addr}}, nil
	}
	// Told by name: tried, whatever the routes say.
	there, err := f.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var ws []way
	for _, name := range devices {
		if slices.ContainsFunc(there, func(d rdma.DeviceInfo) bool { return d.Name == name }) {
			ws = append(ws, way{i, name, addr, "named in the configuration"})
		}
	}
	if len(ws) == 0 {
		// The fabric's own words: they list the devices that there are.
		dev, err := f.Open(ctx, devices[0])
		if err == nil { // it has come meanwhile
			return []way{{i, devices[0], addr, "named in the configuration"}}, dev.Close()
		}
		return nil, err
	}
	return ws, nil
}

// dialAny is one attempt: each server in turn.
func (k *connector) dialAny(ctx context.Context) (*session, error) {
	var errs []error
	servers := k.c.servers()
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: nobody knows an address of node %q for the fabrics of this client", ErrUnavailable, k.c.node)
	}
	for _, addr := range servers {
		s, err := k.dialAddr(ctx, addr, len(k.c.cfg.Fabrics))
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, because(ErrUnavailable, err)
		}
		errs = append(errs, err)
	}
	return nil, because(dialClass(errs), fabricErrors(errs))
}

// dialAddr connects to one address by the first of the first n fabrics that
// reaches it, within Config.DialTimeout.
func (k *connector) dialAddr(ctx context.Context, addr string, n int) (*session, error) {
	c := k.c
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	var skipped []Skipped
	u := &Unreached{Server: addr, Node: c.node}
	reached := false // some device was able to ask for a connection
	for i, f := range c.cfg.Fabrics[:n] {
		t := dialing{k: k, addr: addr, fabric: i, left: n - i}
		s, answered, err := t.dial(ctx)
		if err == nil {
			s.skipped = skipped
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
		u.farthest(f.Name(), err, t.reached, answered)
		if answered || ctx.Err() != nil {
			break
		}
		skipped = append(skipped, Skipped{Fabric: f.Name(), Device: t.device, Reason: shortReason(err, f.Name())})
	}
	if c.cfg.RequireRDMA && !reached {
		u.Err = because(ErrNoRDMA, u.all)
		return nil, because(ErrNoRDMA, u)
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
	return errors.As(err, new(refusal)) && !errors.Is(err, errClosing)
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

// fabricErrors is why several ways failed, on one line.
type fabricErrors []error

func (e fabricErrors) Error() string {
	parts := make([]string, len(e))
	for i, err := range e {
		parts[i] = err.Error()
	}
	return strings.Join(parts, "; ")
}

func (e fabricErrors) Unwrap() []error { return e }

// dialing is an attempt on one address by one fabric.
type dialing struct {
	k       *connector
	addr    string
	fabric  int
	left    int    // fabrics that wait for their turn, this one included
	device  string // the last one that was tried
	reached bool   // a connection was asked for
}

// errNobody: within its share of the time a way showed nobody at its end.
var errNobody = errors.New("no answer")

// dial tries every way of the fabric. A share of the time is all it has to find
// somebody; the rest is for the fabrics behind it.
func (d *dialing) dial(ctx context.Context) (s *session, answered bool, err error) {
	reach, share := ctx, time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok && d.left > 1 {
		share = time.Until(deadline) / time.Duration(d.left)
		var cancel context.CancelFunc
		reach, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	s, answered, err = d.dialWays(ctx, reach)
	if err != nil && !answered && reach.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w within %v: %w", errNobody, share.Round(time.Millisecond), err)
	}
	return s, answered, err
}

func (d *dialing) dialWays(ctx, reach context.Context) (*session, bool, error) {
	ws, err := d.k.c.ways(reach, d.fabric, d.addr)
	if err != nil {
		return nil, false, err
	}
	var errs fabricErrors
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
func (d *dialing) dialWay(ctx, reach context.Context, w way) (*session, bool, error) {
	k := d.k
	t, err := k.c.transports.use(reach, transportKey{w.fabric, w.device})
	if err != nil {
		return nil, false, err
	}
	d.device, d.reached = t.dev.Name(), true
	if w.why == "" {
		w.why = t.reason
	}
	s, answered, err := k.c.connect(ctx, reach, d.addr, w, t)
	if err != nil {
		return nil, answered, err
	}
	if server := k.server; server != "" && s.server != server {
		err := fmt.Errorf("%w: store %q answers at %s, this client has been using %q; a client serves one store",
			ErrUnavailable, s.server, d.addr, server)
		s.fail(err)
		<-s.gone
		return nil, true, err
	}
	return s, true, nil
}

// dialClass is what an attempt that failed everywhere counts as: a refusal that
// a person must deal with if there was one, else unavailable.
func dialClass(errs []error) error {
	for _, class := range []error{ErrAuth, ErrVersion, ErrOtherCluster, ErrProtocol, ErrNoRDMA} {
		for _, err := range errs {
			if errors.Is(err, class) {
				return class
			}
		}
	}
	return ErrUnavailable
}

// connectError explains why a connection was not made, and whether it was a
// server that refused it.
func connectError(err error, private []byte) (answered bool, _ error) {
	if !errors.Is(err, rdma.ErrRejected) {
		return false, because(ErrUnavailable, err)
	}
	r, perr := wire.ParseReject(wire.Unpad(private, wire.RejectSize))
	if perr != nil {
		return false, because(ErrUnavailable, err)
	}
	if r.Status == wire.StatusProtocol && (r.Max < wire.VersionMin || r.Min > wire.VersionMax) {
		r.Status = wire.StatusVersion // version 2 does not know what it has before it
	}
	switch r.Status {
	case wire.StatusVersion:
		return true, fmt.Errorf("%w: the server speaks %d to %d, this client %d to %d",
			ErrVersion, r.Min, r.Max, wire.VersionMin, wire.VersionMax)
	case wire.StatusAuth:
		return true, ErrAuth // the status says no more
	case wire.StatusClosing:
		return true, because(ErrUnavailable, because(errClosing, r.Status.Err()))
	}
	if r.Status == wire.StatusBusy { // a bound on connections is reached
		return true, because(ErrUnavailable, because(ErrOverloaded, r.Status.Err()))
	}
	return true, because(ErrUnavailable, r.Status.Err())
}
