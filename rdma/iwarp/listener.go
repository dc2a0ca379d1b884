package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"github.com/rdmakv/rdmakv/rdma/iwarp/internal/proto"
)

// A listener accepts TCP connections, reads their MPA requests and queues
// them for the program.
type listener struct {
	dev     *device
	tcp     *net.TCPListener
	queue   setup.Queue[*connRequest]
	once    sync.Once
	workers sync.WaitGroup
}

// listen listens at a host:port address and starts to accept.
func listen(ctx context.Context, d *device, addr string) (*listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, opError("listen", addr, fmt.Errorf("%w: %w", rdma.ErrInvalid, err))
	}
	// The queue is as long as the bound on set-ups, so a goroutine that has read a
	// request never waits to hand it over.
	ln := &listener{dev: d, tcp: l.(*net.TCPListener)}
	ln.queue.Init("iwarp", d.fabric.opts.MaxPending)
	ln.workers.Add(1)
	go ln.serve()
	return ln, nil
}

// Addr is where the listener listens.
func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// serve accepts until the listener is closed. If one accept fails, for instance
// because no descriptors are left, serve waits and tries again.
func (l *listener) serve() {
	defer l.workers.Done()
	for {
		conn, err := l.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-l.queue.Closed():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		r := &connRequest{l: l, conn: conn}
		l.dev.fabric.pending.add(r)
		l.workers.Add(1)
		go r.receive()
	}
}

// Accept waits for a request.
func (l *listener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	for {
		r, err := l.queue.Get(ctx, l.Addr())
		if err != nil {
			return nil, err
		}
		if r.life.Take() {
			return r, nil
		}
	}
}

// Close stops listening and rejects requests that the program has not taken.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.queue.Close()
		_ = l.tcp.Close()
		l.dev.fabric.pending.dropSilent(l)
		l.workers.Wait()
		for _, r := range l.queue.Rest() {
			_ = r.Reject([]byte("iwarp: listener closed"))
		}
		l.dev.Unuse()
	})
	return nil
}

// A connRequest is a peer that asks for a connection.
type connRequest struct {
	l      *listener
	conn   *net.TCPConn // to end it at any time
	stream stream       // conn, or TLS over it, once that stands
	req    proto.Frame
	life   setup.Life

	since  uint64 // age in the pendingSet; under its lock
	silent bool   // has not sent its request; likewise
}

// receive does the TLS handshake, if there is one, and reads the MPA request,
// both within the set-up time, and queues it. Until then the peer costs a
// socket and a small goroutine.
func (r *connRequest) receive() {
	defer r.l.workers.Done()
	o := &r.l.dev.fabric.opts
	_ = r.conn.SetDeadline(time.Now().Add(o.SetupTimeout))
	if r.acceptTLS(o.TLS) != nil {
		return
	}
	req, err := readMPA(r.stream, false)
	if err != nil {
		r.l.dev.fabric.pending.remove(r)
		_ = r.conn.Close()
		return
	}
	r.req = req
	if !r.l.dev.fabric.pending.heard(r) {
		_ = r.conn.Close()
		return
	}
	if why := refusal(&req); why != "" {
		r.l.dev.fabric.pending.remove(r)
		r.reject([]byte(why))
		return
	}
	r.life.ExpireAfter(o.SetupTimeout, r.expire)
	if err := r.l.queue.Put(r); err != nil {
		_ = r.Reject([]byte("iwarp: " + err.Error()))
	}
}

// answered claims the right to answer, once, and gives the place in the pendingSet
// back.
func (r *connRequest) answered() error {
	if _, err := r.life.Answer(); err != nil {
		return err
	}
	r.l.dev.fabric.pending.remove(r)
	return nil
}

// expire drops a request that the program has not answered.
func (r *connRequest) expire() {
	if r.answered() == nil {
		_ = r.conn.Close()
	}
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *connRequest) PrivateData() []byte { return r.req.Private }

// RemoteAddr is the peer's address.
func (r *connRequest) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// Accept connects qp and returns once it is in RTS.
func (r *connRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	fail := func(err error) (rdma.ConnInfo, error) {
		return rdma.ConnInfo{}, opError("accept", r.conn.RemoteAddr().String(), err)
	}
	d := r.l.dev
	q, ok := target.(*qp)
	if !ok || q == nil || q.pd.dev != d {
		return fail(fmt.Errorf("%w: the queue pair is not of the listener's device", rdma.ErrInvalid))
	}
	ird, ord, err := d.Depths(p, d.Attr().MaxAcceptPrivate)
	if err != nil {
		return fail(err)
	}
	if err := q.Begin(); err != nil {
		return fail(err)
	}
	if err := r.answered(); err != nil {
		q.Fail(soft.Cause{Err: err})
		return fail(err)
	}
	if err := r.accept(ctx, q, ird, ord, p.PrivateData); err != nil {
		_, err = fail(err)
		q.Fail(soft.Cause{Err: err})
		return rdma.ConnInfo{}, err
	}
	return q.Info(), nil
}

// accept sends the reply and brings q to RTS.
func (r *connRequest) accept(ctx context.Context, q *qp, ird, ord int, private []byte) error {
	o := &r.l.dev.fabric.opts
	rep, t := o.answer(&r.req, isWithin(r.conn), ird, ord, private)
	_ = r.conn.SetDeadline(time.Now().Add(o.SetupTimeout))
	stop := setup.Interruptible(ctx, r.conn)
	_, err := r.stream.Write(rep.Append(nil))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = r.conn.Close()
		return setup.Error(ctx, "MPA reply", err)
	}
	state := rdma.QPRTS
	if t.rtr != 0 {
		state = rdma.QPRTR
	}
	if err := q.attach(r.stream, r.conn, &t, state); err != nil {
		_ = r.conn.Close()
		return err
	}
	if t.rtr == 0 {
		return nil
	}
	if err := q.waitStarted(ctx); err != nil {
		return err
	}
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.ReadyLocked() == nil { // else it has ended since, and its Err says how
		q.tx.kick()
	}
	return nil
}

// Reject refuses, with private data for the peer.
func (r *connRequest) Reject(private []byte) error {
	if limit := r.l.dev.Attr().MaxAcceptPrivate; len(private) > limit {
		return opError("reject", r.conn.RemoteAddr().String(), fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), limit))
	}
	if err := r.answered(); err != nil {
		return opError("reject", r.conn.RemoteAddr().String(), err)
	}
	r.reject(private)
	return nil
}

// reject sends the refusal, in the peer's own revision or our newest, and
// closes.
func (r *connRequest) reject(private []byte) {
	r.refuse(private)
	_ = r.conn.Close()
}

// refuse sends the refusal.
func (r *connRequest) refuse(private []byte) {
	rep := proto.Frame{
		Reply: true, Reject: true, CRC: r.req.CRC || !r.l.dev.fabric.opts.NoCRC,
		Revision: min(max(r.req.Revision, 1), 2), Private: private,
	}
	if rep.Revision == 2 {
		rep.Enhanced = r.req.Enhanced
		rep.IRD, rep.ORD = proto.NoNegotiation, proto.NoNegotiation
	}
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = r.stream.Write(rep.Append(nil))
}
