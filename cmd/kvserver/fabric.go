package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/machine"
	"github.com/rdmakv/rdmakv/internal/server"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/rdma/shm"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// A fabricSet is the ways to do RDMA that this program knows.
type fabricSet struct {
	verbs verbsFabric
	iwarp rdma.Fabric
	shm   rdma.Fabric // nil: switched off
	err   error       // of the TLS files: nothing is served then
}

// verbsFabric is RDMA devices through rdma-core (package rdma/verbs).
type verbsFabric interface {
	rdma.Fabric
	rdma.Router
	// Unavailable is nil if rdma-core and a device are here, else it says what
	// is missing and what to do about it.
	Unavailable() error
}

// transportIWARP is the transport of devices that share the port numbers of
// TCP (RFC 5044), and so with the iWARP in this program.
const transportIWARP = "iWARP"

// pickLimit bounds the look at devices and addresses before the start: names are
// looked up for it, and a name server may be away.
const pickLimit = 15 * time.Second

// A picker turns the configuration's fabric, devices and addresses into
// listeners.
type picker struct {
	fabricSet
	cfg config.Config
	log *slog.Logger

	soft    bool              // iwarp may be used
	mapped  bool              // shm may be used
	hard    bool              // verbs may be used, and is here
	because error             // why verbs is not here
	kind    map[string]string // transport of each verbs device
	used    map[string]bool   // devices that were named and are used
}

// pick names the listeners of a server, verbs before iwarp, in the order of the
// addresses. The error says which key cannot be satisfied, and why.
func (f fabricSet) pick(ctx context.Context, c config.Config, log *slog.Logger) ([]server.Listener, error) {
	if f.err != nil {
		return nil, f.err
	}
	ctx, cancel := context.WithTimeout(ctx, pickLimit)
	defer cancel()
	p := &picker{fabricSet: f, cfg: c, log: log, kind: make(map[string]string), used: make(map[string]bool)}
	p.soft = (c.Fabric == "auto" || c.Fabric == "iwarp") && !c.RequireRDMA
	p.mapped = (c.Fabric == "auto" || c.Fabric == "shm") && !c.RequireRDMA && f.shm != nil
	if c.Fabric == "auto" || c.Fabric == "verbs" {
		if err := p.lookForDevices(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.checkNames(ctx); err != nil {
		return nil, err
	}
	var out []server.Listener
	for _, addr := range c.Listen {
		l, err := p.at(ctx, addr)
		if err != nil {
			return nil, err
		}
		out = append(out, l...)
	}
	for _, name := range c.Device {
		if !p.used[name] {
			return nil, fmt.Errorf("device %s: it has none of the addresses in listen (%s); listen at one of its own", name, strings.Join(c.Listen, ", "))
		}
	}
	return out, nil
}

// lookForDevices finds out whether verbs is available. Where it is required and
// cannot, the error has the remedy.
func (p *picker) lookForDevices(ctx context.Context) error {
	if p.because = p.verbs.Unavailable(); p.because != nil {
		switch {
		case p.cfg.Fabric == "verbs":
			return fmt.Errorf("fabric: verbs: %w", p.because)
		case p.cfg.RequireRDMA:
			return fmt.Errorf("require_rdma: %w", p.because)
		}
		p.log.Info("no RDMA device is used", "fabric", p.cfg.Fabric, "why", p.because)
		return nil
	}
	devices, err := p.verbs.Devices(ctx)
	if err != nil {
		return fmt.Errorf("fabric: verbs: %w", err)
	}
	for _, d := range devices {
		p.kind[d.Name] = d.Transport
	}
	p.hard = true
	return nil
}

// checkNames refuses device names that no fabric in use has: with a mistyped name
// a server would else listen on less than was meant.
func (p *picker) checkNames(ctx context.Context) error {
	if len(p.cfg.Device) == 0 {
		return nil
	}
	var known []string
	for name := range p.kind {
		known = append(known, name)
	}
	slices.Sort(known)
	if p.soft {
		known = append(known, p.softName(ctx))
	}
	if p.mapped {
		known = append(known, p.mappedName(ctx))
	}
	for _, name := range p.cfg.Device {
		if !slices.Contains(known, name) {
			err := fmt.Errorf("device %q: %w; there is: %s", name, rdma.ErrNoDevice, strings.Join(known, ", "))
			if p.because != nil {
				err = fmt.Errorf("%w (%w)", err, p.because)
			}
			return err
		}
	}
	return nil
}

// softName is the name of the device in software; "" if there is none.
func (p *picker) softName(ctx context.Context) string {
	list, err := p.iwarp.Devices(ctx)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Name
}

// mappedName is the name of the device of shared memory; "" if there is none.
func (p *picker) mappedName(ctx context.Context) string {
	list, err := p.shm.Devices(ctx)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Name
}

// allowed says whether the configuration allows a device. No names at all allow
// every one.
func (p *picker) allowed(name string) bool {
	return len(p.cfg.Device) == 0 || slices.Contains(p.cfg.Device, name)
}

// at names the listeners for one address: that of shared memory comes last,
// because it stands beside the others for clients of this host, at their port.
func (p *picker) at(ctx context.Context, addr string) ([]server.Listener, error) {
	beside, err := p.mappedAt(ctx, addr)
	if err != nil {
		return nil, err
	}
	if len(beside) > 0 && (p.cfg.Fabric == "shm" || slices.Equal(p.cfg.Device, []string{beside[0].Device})) {
		beside[0].Optional = false // it is all there is
		return beside, nil
	}
	out, err := p.wiredAt(ctx, addr)
	if err != nil {
		return nil, err
	}
	return append(out, beside...), nil
}

// mappedAt names the listener in shared memory. Where it is optional, the reason
// why it cannot listen is logged when it is tried.
func (p *picker) mappedAt(ctx context.Context, addr string) ([]server.Listener, error) {
	name := ""
	if p.mapped {
		name = p.mappedName(ctx)
	}
	must := p.cfg.Fabric == "shm"
	if name == "" || !p.allowed(name) {
		if must {
			return nil, fmt.Errorf("fabric: shm: %w here: shared memory needs Linux, shm: user or trusted, and a device list with shm0 or none", rdma.ErrNoDevice)
		}
		return nil, nil
	}
	p.used[name] = true
	why := "fabric: shm"
	if !must {
		why = "beside the others, for clients of this host"
	}
	return []server.Listener{{Fabric: p.shm, Device: name, Addr: addr, Group: addr, Why: why, Optional: !must}}, nil
}

// wiredAt names the listeners for one address that other hosts reach.
func (p *picker) wiredAt(ctx context.Context, addr string) ([]server.Listener, error) {
	out, why, err := p.hardAt(ctx, addr)
	if err != nil {
		return nil, err
	}
	name := p.softName(ctx)
	if !p.soft || !p.allowed(name) {
		if len(out) == 0 {
			return nil, fmt.Errorf("listen %s: no device in use has this address: %w", addr, why)
		}
		return out, nil
	}
	p.used[name] = true
	soft := server.Listener{Fabric: p.iwarp, Device: name, Addr: addr, Group: addr, Why: "beside verbs, for clients without an RDMA device"}
	switch {
	case p.cfg.Fabric == "iwarp":
		soft.Why = "fabric: iwarp"
	case len(out) == 0:
		soft.Why = fmt.Sprintf("no RDMA device at %s: %v", addr, why)
	}
	// A device with iWARP on the wire, and bare verbs, listen at a TCP port,
	// and there is but one of that number.
	taken := false
	for i := range out {
		l := &out[i]
		if p.cfg.VerbsConnect != "tcp" && p.kind[l.Device] != transportIWARP {
			continue
		}
		taken = true
		p.log.Info("iwarp does not listen beside verbs: both need the TCP port, and the device is preferred", "addr", l.Addr, "device", l.Device)
		if l.Optional {
			other := soft
			other.Addr, other.Why = l.Addr, "instead of "+l.Device
			l.Else = &other
		}
	}
	if taken {
		return out, nil
	}
	return append(out, soft), nil
}

// hardAt names the listeners of RDMA devices for one address; why says why there
// are none.
func (p *picker) hardAt(ctx context.Context, addr string) (out []server.Listener, why, err error) {
	if !p.hard {
		return nil, p.because, nil
	}
	routes, err := p.verbs.Local(ctx, addr)
	switch {
	case ctx.Err() != nil:
		return nil, nil, fmt.Errorf("listen %s: %w", addr, err)
	case err != nil && !errors.Is(err, rdma.ErrNoDevice):
		return nil, nil, fmt.Errorf("listen %s: %w", addr, err)
	}
	why = err
	for _, r := range routes {
		if !p.allowed(r.Device) {
			why = fmt.Errorf("%w: %s has it, which device does not name", rdma.ErrNoDevice, r.Device)
			continue
		}
		p.used[r.Device] = true
		out = append(out, server.Listener{
			Fabric: p.verbs, Device: r.Device, Addr: r.Addr, Why: r.Reason, Group: addr,
			// A device that was named is required; one that was found may be
			// missed.
			Optional: p.soft && len(p.cfg.Device) == 0,
		})
	}
	return out, why, nil
}

// newFabrics makes the fabrics of the configuration. An error of the TLS files
// stands in the set: pick, which a server calls, refuses what needs them; other
// callers of the set do not.
func newFabrics(c config.Config, log *slog.Logger) fabricSet {
	tls, err := c.TLSConfig()
	f := fabricSet{verbs: verbs.New(verbsOptions(c, log)), iwarp: iwarp.New(iwarpOptions(c, tls)), err: err}
	if c.Shm != "off" {
		f.shm = shm.New(shmOptions(c))
	}
	return f
}

// shmOptions are those of both programs, and a server's own: how many connections
// may wait for their handshake, which any process of this host can open, and the
// proof that a reader may see the store's directory, which a cache does not have.
func shmOptions(c config.Config) shm.Options {
	o := fabrics.Shm(c)
	if limit, err := machine.OpenFiles(); err == nil {
		o.MaxPending = min(256, pendingConns(limit))
	}
	if c.Mode != "cache" {
		o.Proof = server.ReaderProof(c.DataDir)
	}
	return o
}

// iwarpOptions are those of both programs, and how many connections may wait for
// their handshake: any host can open one, and they must not use up the store's
// files.
func iwarpOptions(c config.Config, tls *tls.Config) iwarp.Options {
	o := fabrics.IWARP(c, tls)
	if limit, err := machine.OpenFiles(); err == nil {
		o.MaxPending = pendingConns(limit)
	}
	return o
}

// verbsOptions are those of both programs; a server also finds out whether its
// devices keep to the remote rights of queue pairs, because unknown peers connect
// to it.
func verbsOptions(c config.Config, log *slog.Logger) verbs.Options {
	o := fabrics.Verbs(c, log)
	o.ProbeRights = true
	return o
}
