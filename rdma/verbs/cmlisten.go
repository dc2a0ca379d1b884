package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// A cmListener accepts connections of librdmacm.
type cmListener struct {
	dev   *device
	loop  *cmLoop
	id    *ibv.CMID
	addr  net.Addr
	queue setup.Queue[*cmRequest]
	once  sync.Once
}

// kernelBacklog is how many requests the kernel keeps until the loop, which
// never waits, has read them.
const kernelBacklog = 1024

// listenCM listens by librdmacm.
func (d *device) listenCM(ctx context.Context, addr string) (rdma.Listener, error) {
	at, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	loop, err := d.loop()
	if err != nil {
		return nil, err
	}
	id, err := loop.ec.NewID()
	if err != nil {
		return nil, classify(err)
	}
	l := &cmListener{dev: d, loop: loop, id: id}
	l.queue.Init(fabricName, d.fabric.opts.MaxPending)
	loop.add(id, l)
	err = id.Bind(at[0])
	if err == nil && id.Device() != "" && id.Device() != d.name {
		err = fmt.Errorf("%w: %v belongs to device %s, this is %s", rdma.ErrInvalid, at[0].Addr(), id.Device(), d.name)
	}
	if err == nil {
		err = id.Listen(kernelBacklog)
	}
	if err != nil {
		loop.drop(id)
		return nil, classify(err)
	}
	l.addr = tcpAddr(id.LocalAddr())
	return l, nil
}

// cmEvent is called by the loop with each request.
func (l *cmListener) cmEvent(ev ibv.CMEvent) {
	if ev.Type == ibv.CMDeviceRemoval {
		l.dev.fabric.opts.Logger.Error("RDMA device was removed: its listener has ended", "device", l.dev.name, "address", l.addr)
		l.queue.Close()
		return
	}
	if ev.Type != ibv.CMConnectRequest {
		return
	}
	r := &cmRequest{l: l, conn: newCMConn(l.loop, ev.ID), param: ev.Param, remote: tcpAddr(ev.ID.PeerAddr())}
	r.param.PrivateData = slices.Clone(ev.Param.PrivateData)
	r.conn.onGone = r.abandoned
	l.loop.add(ev.ID, r.conn)
	if ev.ID.Device() != l.dev.name {
		r.refuse("verbs: another device listens here")
		return
	}
	if err := l.queue.Put(r); err != nil {
		r.refuse("verbs: " + err.Error())
		return
	}
	r.life.ExpireAfter(l.dev.fabric.opts.SetupTimeout, r.expire)
}

// Addr is where the listener listens.
func (l *cmListener) Addr() net.Addr { return l.addr }

// Accept waits for a request. When the device is removed it fails as if the
// listener had been closed.
func (l *cmListener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	for {
		r, err := l.queue.Get(ctx, l.addr)
		if err != nil {
			return nil, err
		}
		if r.life.Take() {
			return r, nil
		}
	}
}

// Close stops listening and rejects requests that the program has not taken.
func (l *cmListener) Close() error {
	l.once.Do(func() {
		l.queue.Close()
		l.loop.drop(l.id)
		for _, r := range l.queue.Rest() {
			_ = r.Reject([]byte("verbs: listener closed"))
		}
		l.dev.unuse()
	})
	return nil
}

// errLeft is the error of accepting a peer that has given up.
var errLeft = fmt.Errorf("%w: the peer has given up waiting", rdma.ErrPeerGone)

// A cmRequest is a peer that asks for a connection.
type cmRequest struct {
	l      *cmListener
	conn   *cmConn
	param  ibv.ConnParam
	remote net.Addr
	life   setup.Life
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *cmRequest) PrivateData() []byte { return r.param.PrivateData }

// RemoteAddr is the peer's address.
func (r *cmRequest) RemoteAddr() net.Addr { return r.remote }

// abandoned is called when the peer has given up.
func (r *cmRequest) abandoned() {
	if r.life.Leave() {
		r.l.loop.drop(r.conn.id)
	}
}

// expire drops a request that the program has not answered; the kernel refuses
// the peer.
func (r *cmRequest) expire() {
	if _, err := r.life.Answer(); err == nil {
		r.l.loop.drop(r.conn.id)
	}
}

// claim is for Accept: the request must not have been answered, and the peer
// must be there.
func (r *cmRequest) claim() error {
	left, err := r.life.Answer()
	if left {
		r.l.loop.drop(r.conn.id)
		return errLeft
	}
	return err
}

// Accept connects qp and returns once it is in RTS and the peer has said that
// it is too.
func (r *cmRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	return acceptInto(ctx, r.l.dev, target, p, r.remote.String(), r.claim,
		func(ctx context.Context, q *qp, ird, ord int) (rdma.ConnInfo, error) {
			info, err := r.accept(ctx, q, ird, ord, p.PrivateData)
			if err != nil {
				r.l.loop.drop(r.conn.id)
			}
			return info, err
		})
}

// accept brings q to RTS and answers the peer, then waits until the peer is ready.
func (r *cmRequest) accept(ctx context.Context, q *qp, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	id := r.conn.id
	ird, ord = r.l.dev.agree(ird, ord, &r.param)
	if err := r.conn.adoptPort(q); err != nil {
		return rdma.ConnInfo{}, err
	}
	path, err := r.conn.bring(q, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	if err := id.Accept(connParam(q, ird, ord, private)); err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("rdma_accept: %w", unreachable(err))
	}
	// The peer's last message; or its first data, which says the same.
	if _, err := r.conn.wait(ctx, "waiting for the peer to be ready", ibv.CMEstablished, q.setup.early.ch); err != nil {
		if errors.Is(err, rdma.ErrRejected) { // it refuses the answer that it has asked for
			err = fmt.Errorf("%w (%v)", errLeft, err)
		}
		return rdma.ConnInfo{}, err
	}
	info := infoOf("librdmacm", r.param.PrivateData, ird, ord, tcpAddr(id.LocalAddr()), r.remote, path)
	if err := r.conn.attach(q, info); err != nil {
		return rdma.ConnInfo{}, err
	}
	return info, nil
}

// Reject refuses, with private data for the peer.
func (r *cmRequest) Reject(private []byte) error {
	if len(private) > maxRejectPrivate {
		return opError("reject", r.remote.String(), fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), maxRejectPrivate))
	}
	if _, err := r.life.Answer(); err != nil {
		return opError("reject", r.remote.String(), err)
	}
	r.reject(private)
	return nil
}

func (r *cmRequest) refuse(why string) {
	if _, err := r.life.Answer(); err == nil {
		r.reject([]byte(why))
	}
}

func (r *cmRequest) reject(private []byte) {
	_ = r.conn.id.Reject(private) // it fails if the peer has gone
	r.l.loop.drop(r.conn.id)
}
