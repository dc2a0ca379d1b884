package sim

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
)

// A listener queues requests for its program.
type listener struct {
	dev    *device
	at     netip.AddrPort
	queue  chan *connRequest
	closed chan struct{}
	over   bool
	given  bool // back to the device
}

func newListener(d *device, at netip.AddrPort) *listener {
	return &listener{dev: d, at: at, queue: make(chan *connRequest, backlog), closed: make(chan struct{})}
}

// Addr is where the listener listens.
func (l *listener) Addr() net.Addr { return tcpAddr(l.at) }

// Accept waits for a request.
func (l *listener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		select {
		case <-l.closed:
			return nil, opError("accept", l.at.String(), fmt.Errorf("%w: listener", rdma.ErrClosed))
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-l.queue:
			if r.take() {
				return r, nil
			}
		}
	}
}

// shut refuses the requests that the program has not taken. The caller holds
// mu.
func (l *listener) shut() {
	if l.over {
		return
	}
	l.over = true
	close(l.closed)
	for {
		select {
		case r := <-l.queue:
			if !r.answered {
				r.finish()
				r.refuse(fmt.Errorf("%w: listener closed", rdma.ErrRejected), nil)
			}
			continue
		default:
		}
		return
	}
}

// Close stops listening and rejects requests that the program has not taken.
func (l *listener) Close() error {
	n := l.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[l.at] == l {
		delete(n.listeners, l.at)
	}
	l.shut()
	if !l.given {
		l.given = true
		l.dev.users--
	}
	n.turn()
	return nil
}

// A connRequest is a peer that asks for a connection.
type connRequest struct {
	l        *listener
	d        *dial
	answered bool
	timer    *event
}

// take reports whether the request is still there.
func (r *connRequest) take() bool {
	r.l.dev.net.mu.Lock()
	defer r.l.dev.net.mu.Unlock()
	return !r.answered
}

// finish marks the request as answered. The caller holds mu.
func (r *connRequest) finish() {
	r.answered = true
	r.l.dev.net.cancel(r.timer)
}

// expire drops a request that the program has not answered.
func (r *connRequest) expire() {
	if r.answered {
		return
	}
	r.finish()
	r.refuse(fmt.Errorf("%w: the request was not answered within %v", rdma.ErrPeerGone, r.l.dev.net.opts.SetupTimeout), nil)
}

// refuse sends REJ.
func (r *connRequest) refuse(err error, private []byte) {
	d, n := r.d, r.l.dev.net
	private = append([]byte(nil), private...)
	n.after(d.delay(), func() {
		if !n.cut(r.l.dev.life.host, d.q.host()) {
			d.settle(outcome{info: rdma.ConnInfo{PrivateData: private}, err: err})
		}
	})
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *connRequest) PrivateData() []byte { return r.d.params.PrivateData }

// RemoteAddr is the peer's address.
func (r *connRequest) RemoteAddr() net.Addr { return tcpAddr(r.d.from) }

// Reject refuses, with private data for the peer.
func (r *connRequest) Reject(private []byte) error {
	n := r.l.dev.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if limit := r.l.dev.attr.MaxAcceptPrivate; len(private) > limit {
		return opError("reject", r.d.from.String(), fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), limit))
	}
	if r.answered {
		return opError("reject", r.d.from.String(), fmt.Errorf("%w: the connection request was answered or dropped before", rdma.ErrNotConnected))
	}
	r.finish()
	r.l.dev.life.says(func() { r.refuse(fmt.Errorf("%w by the peer", rdma.ErrRejected), private) })
	n.turn()
	return nil
}

// Accept connects qp and returns once it is in RTS.
func (r *connRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	info, err := r.accept(ctx, target, p)
	if err != nil {
		return rdma.ConnInfo{}, opError("accept", r.d.from.String(), err)
	}
	return info, nil
}

// accept is Accept: it sends REP and waits for RTU.
func (r *connRequest) accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	n, dev := r.l.dev.net, r.l.dev
	b, ok := target.(*qp)
	if !ok || b == nil || b.pd.dev != dev {
		return rdma.ConnInfo{}, fmt.Errorf("%w: the queue pair is not of the listener's device", rdma.ErrInvalid)
	}
	n.mu.Lock()
	ready, err := r.reply(b, p)
	n.turn()
	n.mu.Unlock()
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	select {
	case <-ready:
		err = nil
	case <-b.done:
		err = b.Err()
	case <-ctx.Done():
		err = setup.CtxError(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && b.state == rdma.QPError {
		err = b.err
	}
	if err != nil {
		b.fail(cause{err: err})
		n.turn()
		return rdma.ConnInfo{}, err
	}
	return b.info, nil
}

// reply sends REP and returns a channel that is closed when RTU comes. The
// caller holds mu.
func (r *connRequest) reply(b *qp, p rdma.ConnParams) (<-chan struct{}, error) {
	n, dev, d := r.l.dev.net, r.l.dev, r.d
	a := d.q
	ird, ord, err := dev.depths(p, dev.attr.MaxAcceptPrivate)
	if err != nil {
		return nil, err
	}
	if err := b.claim(); err != nil {
		return nil, err
	}
	if r.answered {
		err := fmt.Errorf("%w: the connection request was answered or dropped before", rdma.ErrNotConnected)
		b.fail(cause{err: err})
		return nil, err
	}
	r.finish()
	aird, aord, _ := a.pd.dev.depths(d.params, a.pd.dev.attr.MaxConnectPrivate)
	ready := make(chan struct{})
	b.conn, b.end = a.conn, 1
	b.state = rdma.QPRTR
	b.peer = a
	private := append([]byte(nil), p.PrivateData...)
	expires := n.after(n.opts.SetupTimeout, func() {
		b.fail(cause{err: fmt.Errorf("%w: the dialer did not confirm within %v", rdma.ErrDeadline, n.opts.SetupTimeout)})
	})
	rep := func() {
		if n.cut(dev.life.host, a.host()) {
			return // b gives up when nobody confirms
		}
		if d.over || a.state != rdma.QPInit {
			n.after(d.delay(), func() {
				b.fail(cause{err: fmt.Errorf("%w: the dialer has left", rdma.ErrPeerGone)})
			})
			return
		}
		b.info.RemoteAddr = tcpAddr(d.from)
		a.established(b, private, tcpAddr(d.from), tcpAddr(d.to), aird, min(aord, ird))
		d.settle(outcome{})
		n.logf("%s: RTS with %s", a.label(), b.label())
		a.out = n.now() + int64(d.delay())
		n.at(a.out, func() {
			n.cancel(expires)
			if b.state != rdma.QPRTR {
				return
			}
			b.established(a, d.params.PrivateData, tcpAddr(d.to), tcpAddr(d.from), ird, min(ord, aird))
			close(ready)
			b.serve()
		})
	}
	if d.die.is(n.adverse.Setup / 4) {
		n.logf("%s: REP lost", b.label())
		n.counts.SetupsDisturbed++
		return ready, nil
	}
	dev.life.says(func() { n.after(d.delay(), rep) })
	return ready, nil
}
