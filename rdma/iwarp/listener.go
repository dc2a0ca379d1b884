package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A listener accepts TCP connections, reads their MPA requests and queues
// them for the program.
type listener struct {
	dev     *device
	tcp     *net.TCPListener
	queue   chan *connRequest
	closed  chan struct{}
	once    sync.Once
	workers sync.WaitGroup
}

func listen(ctx context.Context, d *device, addr string) (*listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, opError("listen", addr, fmt.Errorf("%w: %w", rdma.ErrInvalid, err))
	}
	// The queue is as long as set-ups are bounded: who has read a request
	// never waits to hand it over.
	ln := &listener{dev: d, tcp: l.(*net.TCPListener), queue: make(chan *connRequest, d.fabric.opts.MaxPending), closed: make(chan struct{})}
	ln.workers.Add(1)
	go ln.serve()
	return ln, nil
}

// Addr is where the listener listens.
func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

// serve accepts until the listener is closed. An error of one accept, such as
// no descriptors left, is waited out.
func (l *listener) serve() {
	defer l.workers.Done()
	for {
		conn, err := l.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select {
			case <-l.closed:
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
		select {
		case <-l.closed:
			return nil, opError("accept", l.Addr().String(), fmt.Errorf("%w: listener", rdma.ErrClosed))
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-l.queue:
			if r.take() {
				return r, nil
			}
		}
	}
}

// Close stops listening and rejects requests nobody took.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		_ = l.tcp.Close()
		l.dev.fabric.pending.dropSilent(l)
		l.workers.Wait()
		for {
			select {
			case r := <-l.queue:
				_ = r.Reject([]byte("iwarp: listener closed"))
				continue
			default:
			}
			break
		}
		l.dev.unuse()
	})
	return nil
}

// A connRequest is a peer that wants a connection.
type connRequest struct {
	l      *listener
	conn   *net.TCPConn // to end it at any time
	stream stream       // conn, or TLS over it, once that stands
	req    mpaFrame

	mu    sync.Mutex
	state requestState
	timer *time.Timer // drops a request that the program leaves alone

	since  uint64 // age in the pendingSet; under its lock
	silent bool   // has not sent its request; likewise
}

type requestState uint8

const (
	requestQueued   requestState = iota // with the fabric
	requestTaken                        // Accept returned it
	requestAnswered                     // accepted, rejected or dropped
)

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
	r.mu.Lock()
	r.timer = time.AfterFunc(o.SetupTimeout, r.expire)
	r.mu.Unlock()
	select {
	case r.l.queue <- r:
	default:
		r.l.dev.fabric.pending.remove(r)
		_ = r.Reject([]byte("iwarp: too many connection requests"))
	}
}

// take marks the request as the program's; false if it was dropped meanwhile.
func (r *connRequest) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != requestQueued {
		return false
	}
	r.state = requestTaken
	return true
}

// answered claims the right to answer, once.
func (r *connRequest) answered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == requestAnswered {
		return fmt.Errorf("%w: the connection request was answered or dropped before", rdma.ErrNotConnected)
	}
	r.state = requestAnswered
	if r.timer != nil {
		r.timer.Stop()
	}
	r.l.dev.fabric.pending.remove(r)
	return nil
}

// expire drops a request that nobody answered.
func (r *connRequest) expire() {
	if r.answered() == nil {
		_ = r.conn.Close()
	}
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *connRequest) PrivateData() []byte { return r.req.private }

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
	ird, ord, err := d.depths(p, d.attr.MaxAcceptPrivate)
	if err != nil {
		return fail(err)
	}
	if err := q.begin(); err != nil {
		return fail(err)
	}
	if err := r.answered(); err != nil {
		q.fail(cause{err: err})
		return fail(err)
	}
	if err := r.accept(ctx, q, ird, ord, p.PrivateData); err != nil {
		_, err = fail(err)
		q.fail(cause{err: err})
		return rdma.ConnInfo{}, err
	}
	return q.Info(), nil
}

// accept sends the reply and brings q to RTS.
func (r *connRequest) accept(ctx context.Context, q *qp, ird, ord int, private []byte) error {
	o := &r.l.dev.fabric.opts
	rep, t := o.answer(&r.req, ird, ord, private)
	_ = r.conn.SetDeadline(time.Now().Add(o.SetupTimeout))
	stop := interruptible(ctx, r.conn)
	_, err := r.stream.Write(rep.append(nil))
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = r.conn.Close()
		return setupError(ctx, "MPA reply", err)
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
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == rdma.QPError {
		return q.err
	}
	q.state = rdma.QPRTS
	q.kick()
	return nil
}

// Reject refuses, with private data for the peer.
func (r *connRequest) Reject(private []byte) error {
	if limit := r.l.dev.attr.MaxAcceptPrivate; len(private) > limit {
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
	rep := mpaFrame{
		reply: true, reject: true, crc: r.req.crc || !r.l.dev.fabric.opts.NoCRC,
		revision: min(max(r.req.revision, 1), 2), private: private,
	}
	if rep.revision == 2 {
		rep.enhanced = r.req.enhanced
		rep.ird, rep.ord = mpaNoNegotiation, mpaNoNegotiation
	}
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = r.stream.Write(rep.append(nil))
}
