package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// A tcpListener accepts sockets, reads their requests and queues them for the
// program.
type tcpListener struct {
	dev     *device
	tcp     *net.TCPListener
	queue   requestQueue[*tcpRequest]
	closed  chan struct{}
	workers sync.WaitGroup
	// places bounds the peers that have not sent their request.
	places chan struct{}

	mu     sync.Mutex
	silent []silentPeer // oldest first
	shut   bool
}

// A silentPeer has not sent its request.
type silentPeer struct {
	conn  *net.TCPConn
	since time.Time
}

// grace is how long a peer may be silent before another may take its place:
// longer than a request is on its way.
const grace = 250 * time.Millisecond

func (d *device) listenTCP(ctx context.Context, addr string) (rdma.Listener, error) {
	at, err := resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	nl, err := lc.Listen(ctx, "tcp", at[0].String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	l := &tcpListener{dev: d, tcp: nl.(*net.TCPListener), closed: make(chan struct{})}
	l.queue.init(d.fabric.opts.MaxPending)
	l.places = make(chan struct{}, d.fabric.opts.MaxPending)
	l.workers.Go(l.serve)
	return l, nil
}

// Addr is where the listener listens.
func (l *tcpListener) Addr() net.Addr { return l.tcp.Addr() }

// serve accepts until the listener is closed. An error of one accept, such as
// no descriptors left, is waited out. Beyond MaxPending the peer that has been
// silent longest makes room: silence must not keep others out.
func (l *tcpListener) serve() {
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
		if !l.place() || !l.hold(conn) {
			_ = conn.Close()
			return
		}
		l.workers.Go(func() {
			defer func() { <-l.places }()
			l.receive(conn)
		})
	}
}

// place takes a place for one more; false once the listener is closed.
func (l *tcpListener) place() bool {
	for {
		select {
		case l.places <- struct{}{}:
			return true
		default:
		}
		t := time.NewTimer(l.dropOldest())
		select {
		case l.places <- struct{}{}:
			t.Stop()
			return true
		case <-l.closed:
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// receive reads the request of a peer that is held, within the set-up time, and
// queues it.
func (l *tcpListener) receive(conn *net.TCPConn) {
	timeout := l.dev.fabric.opts.SetupTimeout
	_ = conn.SetDeadline(time.Now().Add(timeout))
	f, err := readFrame(conn)
	if !l.release(conn) || err != nil || f.kind != frameRequest {
		_ = conn.Close()
		return
	}
	r := &tcpRequest{l: l, conn: conn, req: f}
	if !l.queue.put(r) {
		r.life.finishLocked() // nobody else knows it
		r.reject([]byte("verbs: too many connection requests"))
		return
	}
	r.life.expireAfter(timeout, r.expire)
}

// hold and release keep the list of silent peers; release is false if somebody
// else has taken this one off.
func (l *tcpListener) hold(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false
	}
	l.silent = append(l.silent, silentPeer{conn, time.Now()})
	return true
}

func (l *tcpListener) release(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.silent, func(p silentPeer) bool { return p.conn == conn })
	if i < 0 {
		return false
	}
	l.silent = slices.Delete(l.silent, i, i+1)
	return true
}

// dropOldest gives up the peer that has been silent longest, if that is longer
// than grace. It returns when to look again.
func (l *tcpListener) dropOldest() (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.silent) == 0 {
		return grace // all places are about to be free
	}
	if left := grace - time.Since(l.silent[0].since); left > 0 {
		return left
	}
	_ = l.silent[0].conn.Close()
	l.silent = slices.Delete(l.silent, 0, 1)
	return grace
}

// Accept waits for a request.
func (l *tcpListener) Accept(ctx context.Context) (rdma.ConnRequest, error) {
	for {
		r, err := l.queue.get(ctx, l.Addr())
		if err != nil {
			return nil, err
		}
		if !r.life.take() {
			continue
		}
		if !waits(r.conn) { // it gave up in the queue
			r.expire()
			continue
		}
		return r, nil
	}
}

// Close stops listening and rejects requests nobody took.
func (l *tcpListener) Close() error {
	if !l.queue.close() {
		return nil
	}
	close(l.closed)
	_ = l.tcp.Close()
	l.mu.Lock()
	for _, p := range l.silent {
		_ = p.conn.Close()
	}
	l.silent, l.shut = nil, true
	l.mu.Unlock()
	l.workers.Wait()
	for _, r := range l.queue.rest() {
		_ = r.Reject([]byte("verbs: listener closed"))
	}
	l.dev.unuse()
	return nil
}

// A tcpRequest is a peer that wants a connection.
type tcpRequest struct {
	l    *tcpListener
	conn *net.TCPConn
	req  frame
	life requestLife
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *tcpRequest) PrivateData() []byte { return r.req.private }

// RemoteAddr is the peer's address.
func (r *tcpRequest) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// expire drops a request that nobody answered.
func (r *tcpRequest) expire() {
	if _, err := r.life.answer(); err == nil {
		_ = r.conn.Close()
	}
}

// Accept connects qp and returns once it is in RTS and the peer has said that
// it is too.
func (r *tcpRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	claim := func() error {
		_, err := r.life.answer()
		return err
	}
	return acceptInto(ctx, r.l.dev, target, p, r.conn.RemoteAddr().String(), claim,
		func(ctx context.Context, q *qp, ird, ord int) (rdma.ConnInfo, error) {
			info, err := r.accept(ctx, q, ird, ord, p.PrivateData)
			if err != nil {
				_ = r.conn.Close()
			}
			return info, err
		})
}

func (r *tcpRequest) accept(ctx context.Context, q *qp, ird, ord int, private []byte) (rdma.ConnInfo, error) {
	stop := interruptible(ctx, r.conn)
	defer stop()
	theirs := &r.req.end
	ird, ord = agreed(ird, ord, int(theirs.ird), int(theirs.ord))
	mine, g, err := q.endpoint(r.conn, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	if err := mine.judge(theirs); err != nil {
		return rdma.ConnInfo{}, err
	}
	path, err := q.bringByHand(&mine, theirs, g, ird, ord)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	rep := frame{kind: frameReply, end: mine, private: private}
	if _, err := r.conn.Write(rep.append(nil)); err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "reply", err)
	}
	ready, err := readFrame(r.conn)
	if err != nil {
		return rdma.ConnInfo{}, tcpError(ctx, "waiting for the peer to be ready", err)
	}
	if ready.kind != frameReady {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %v instead of ready", errExchange, ready.kind)
	}
	if !stop() {
		return rdma.ConnInfo{}, setupError(ctx, "ready", ctx.Err())
	}
	info := infoOf("QP data over TCP", r.req.private, ird, ord, r.conn.LocalAddr(), r.conn.RemoteAddr(), path)
	l := &tcpLink{conn: r.conn}
	if err := l.attach(q, info); err != nil {
		return rdma.ConnInfo{}, err
	}
	return info, nil
}

// Reject refuses, with private data for the peer.
func (r *tcpRequest) Reject(private []byte) error {
	addr := r.conn.RemoteAddr().String()
	if len(private) > maxRejectPrivate {
		return opError("reject", addr, fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), maxRejectPrivate))
	}
	if _, err := r.life.answer(); err != nil {
		return opError("reject", addr, err)
	}
	r.reject(private)
	return nil
}

func (r *tcpRequest) reject(private []byte) {
	rej := frame{kind: frameReject, private: private}
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = r.conn.Write(rej.append(nil))
	_ = r.conn.Close()
}
