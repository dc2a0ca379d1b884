package sim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
)

// This file is the connection manager. Messages and their senders:
//
//	dialer ── REQ ──▶ listener      queued until the program answers
//	dialer ◀── REP ── acceptor      dialer is in RTS      (or REJ)
//	dialer ── RTU ──▶ acceptor      acceptor is in RTS    (or its refusal)
//
// The manager repeats REQ and REP when they get lost, so a loss shows as a long
// time; a message that is lost for good ends with a deadline.

// backlog bounds the requests that wait for a listener's program.
const backlog = 1024

// An outcome is what a dialer waits for.
type outcome struct {
	info rdma.ConnInfo
	err  error
}

// A dial is one Connect.
type dial struct {
	q       *qp
	params  rdma.ConnParams
	from    netip.AddrPort
	to      netip.AddrPort
	result  chan outcome // room for one
	over    bool         // the dialer has its outcome
	die     chance
	expires *event
}

// settle gives the dialer its outcome, once.
func (d *dial) settle(o outcome) {
	if d.over {
		return
	}
	d.over = true
	d.q.net.cancel(d.expires)
	d.result <- o
}

// depths checks the private data and fills in the READ depths.
func (d *device) depths(p rdma.ConnParams, private int) (ird, ord int, err error) {
	if len(p.PrivateData) > private {
		return 0, 0, fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(p.PrivateData), private)
	}
	limit := d.net.opts.ReadDepth
	ird, ord = min(p.IRD, limit), min(p.ORD, limit)
	if ird <= 0 {
		ird = limit
	}
	if ord <= 0 {
		ord = limit
	}
	return ird, ord, nil
}

// claim takes the QP for one set-up.
func (q *qp) claim() error {
	switch {
	case q.gone:
		return fmt.Errorf("%w: queue pair", rdma.ErrClosed)
	case q.begun || q.state != rdma.QPInit:
		return fmt.Errorf("%w: the queue pair is in state %v and has been used for a connection", rdma.ErrNotConnected, q.state)
	}
	q.begun = true
	return nil
}

// connect is Connect: it sends REQ and waits for the outcome.
func (q *qp) connect(ctx context.Context, addr string, p rdma.ConnParams) (rdma.ConnInfo, error) {
	n := q.net
	n.mu.Lock()
	d, err := q.dial(ctx, addr, p)
	n.turn()
	n.mu.Unlock()
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	var o outcome
	select {
	case o = <-d.result:
	case <-q.done:
		select {
		case o = <-d.result: // it died of its outcome
		default:
			o.err = q.Err()
		}
	case <-ctx.Done():
		o.err = setup.CtxError(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.err == nil && q.state == rdma.QPError {
		o.err = q.err
	}
	if o.err != nil {
		d.over = true
		n.cancel(d.expires)
		q.fail(cause{err: o.err})
		n.turn()
		return o.info, o.err
	}
	return q.info, nil
}

// dial sends the request. The caller holds mu.
func (q *qp) dial(ctx context.Context, addr string, p rdma.ConnParams) (*dial, error) {
	n, dev := q.net, q.pd.dev
	host := dev.life.host
	if _, _, err := dev.depths(p, dev.attr.MaxConnectPrivate); err != nil {
		return nil, err
	}
	if err := q.claim(); err != nil {
		return nil, err
	}
	fail := func(err error) (*dial, error) {
		q.fail(cause{err: err})
		return nil, err
	}
	if ctx.Err() != nil {
		return fail(setup.CtxError(ctx))
	}
	to, err := parseAddr(addr, host.ip)
	if err != nil {
		return fail(err)
	}
	if dev.life.dead {
		return fail(fmt.Errorf("%w: the program was killed", rdma.ErrPeerGone))
	}
	host.dials++
	p.PrivateData = append([]byte(nil), p.PrivateData...)
	d := &dial{q: q, params: p, from: n.freePort(host.ip), to: to, result: make(chan outcome, 1)}
	q.conn = mix(hashName(host.name) ^ host.lives<<48 ^ host.dials)
	d.die = chancesOf(q, host.dials, askSetup)
	d.expires = n.after(3*n.opts.SetupTimeout, func() {
		d.settle(outcome{err: fmt.Errorf("%w: no answer within %v", rdma.ErrDeadline, 3*n.opts.SetupTimeout)})
	})
	n.logf("%s: REQ to %v", q.label(), to)
	copies := 1
	if d.die.is(n.adverse.Setup) {
		n.counts.SetupsDisturbed++
		copies = d.die.n(3) // lost, or doubled
		n.logf("%s: REQ carried %d times", q.label(), copies)
	}
	for range copies {
		dev.life.says(func() { n.after(d.delay(), func() { n.request(d) }) })
	}
	return d, nil
}

// delay is how long a message of the set-up takes.
func (d *dial) delay() (t time.Duration) {
	n := d.q.net
	t = d.q.path(&d.die)
	if d.die.is(n.adverse.Setup) {
		n.counts.SetupsDisturbed++
		t += d.die.delay(n.opts.SetupTimeout)
	}
	return t
}

// request delivers a REQ.
func (n *Network) request(d *dial) {
	l := n.listeners[d.to]
	if l == nil {
		n.after(0, func() {
			d.settle(outcome{err: fmt.Errorf("%w: nobody listens at %v", rdma.ErrPeerGone, d.to)})
		})
		return
	}
	if n.cut(d.q.host(), l.dev.life.host) {
		return // and the dialer's deadline tells
	}
	if len(l.queue) == cap(l.queue) {
		d.settle(outcome{err: fmt.Errorf("%w: too many connection requests", rdma.ErrRejected)})
		return
	}
	r := &connRequest{l: l, d: d}
	r.timer = n.after(n.opts.SetupTimeout, func() { r.expire() })
	l.dev.life.says(func() {
		select {
		case l.queue <- r:
		default:
			r.expire()
		}
	})
}

// established brings both ends together.
func (q *qp) established(p *qp, private []byte, local, remote net.Addr, ird, ord int) {
	q.peer = p
	q.state = rdma.QPRTS
	q.info = rdma.ConnInfo{
		PrivateData: append([]byte(nil), private...), IRD: ird, ORD: ord, LocalAddr: local, RemoteAddr: remote,
		Detail: fmt.Sprintf("simulated RC, seed %d", q.net.opts.Seed), Path: rdma.Path{Device: deviceName, Port: 1},
	}
	q.launch()
}

func tcpAddr(a netip.AddrPort) net.Addr { return net.TCPAddrFromAddrPort(a) }
