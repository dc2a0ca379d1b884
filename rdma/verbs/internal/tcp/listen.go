package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
)

// A Listener accepts sockets, reads their requests and queues them for the
// program.
type Listener struct {
	opts    Options
	tcp     *net.TCPListener
	queue   setup.Queue[*Request]
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

// Options bound what peers cost.
type Options struct {
	MaxPending   int           // requests that wait for the program, and as many peers that have not sent theirs
	SetupTimeout time.Duration // for a peer to send its request, and for the program to answer it
}

// Listen starts to accept connections.
func Listen(ctx context.Context, at netip.AddrPort, o Options) (*Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	nl, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rdma.ErrInvalid, err)
	}
	l := &Listener{opts: o, tcp: nl.(*net.TCPListener)}
	l.queue.Init(fabric, o.MaxPending)
	l.places = make(chan struct{}, o.MaxPending)
	l.workers.Go(l.serve)
	return l, nil
}

// Addr is where the listener listens.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// serve accepts until the listener is closed. If one accept fails, for instance because no
// descriptors are left, serve waits and tries again. Beyond MaxPending the peer that has been
// silent longest makes room, because silent peers must not keep others out.
func (l *Listener) serve() {
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
func (l *Listener) place() bool {
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
		case <-l.queue.Closed():
			t.Stop()
			return false
		case <-t.C:
		}
	}
}

// receive reads the request of a peer that is held, within the set-up time, and
// queues it.
func (l *Listener) receive(conn *net.TCPConn) {
	timeout := l.opts.SetupTimeout
	_ = conn.SetDeadline(time.Now().Add(timeout))
	f, err := readFrame(conn)
	if !l.release(conn) || err != nil || f.kind != frameRequest {
		_ = conn.Close()
		return
	}
	r := &Request{l: l, conn: conn, req: f}
	if err := l.queue.Put(r); err != nil {
		_, _ = r.life.Answer() // this goroutine alone knows it
		r.reject([]byte("verbs: " + err.Error()))
		return
	}
	r.life.ExpireAfter(timeout, r.expire)
}

// hold and release keep the list of silent peers. release returns false if dropOldest or Close
// has taken this one off.
func (l *Listener) hold(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false
	}
	l.silent = append(l.silent, silentPeer{conn, time.Now()})
	return true
}

func (l *Listener) release(conn *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.silent, func(p silentPeer) bool { return p.conn == conn })
	if i < 0 {
		return false
	}
	l.silent = slices.Delete(l.silent, i, i+1)
	return true
}

// dropOldest closes the socket of the peer that has been silent longest, if that is longer
// than grace. It returns when to look again.
func (l *Listener) dropOldest() (wait time.Duration) {
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
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	for {
		r, err := l.queue.Get(ctx, l.Addr())
		if err != nil {
			return nil, err
		}
		if !r.life.Take() {
			continue
		}
		if !waits(r.conn) { // it gave up in the queue
			r.expire()
			continue
		}
		return r, nil
	}
}

// Close stops listening and rejects requests that the program has not taken. A second Close does
// nothing.
func (l *Listener) Close() {
	if !l.queue.Close() {
		return
	}
	_ = l.tcp.Close()
	l.mu.Lock()
	for _, p := range l.silent {
		_ = p.conn.Close()
	}
	l.silent, l.shut = nil, true
	l.mu.Unlock()
	l.workers.Wait()
	for _, r := range l.queue.Rest() {
		_ = r.Reject([]byte("verbs: listener closed"))
	}
}

// A Request is a peer that asks for a connection.
type Request struct {
	l    *Listener
	conn *net.TCPConn
	req  frame
	life setup.Life
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *Request) PrivateData() []byte { return r.req.private }

// RemoteAddr is the peer's address.
func (r *Request) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// expire drops a request that the program has not answered.
func (r *Request) expire() {
	if _, err := r.life.Answer(); err == nil {
		_ = r.conn.Close()
	}
}

// Claim takes the right to answer, once: call it before Accept.
func (r *Request) Claim() error {
	_, err := r.life.Answer()
	return err
}

// Accept connects e, with private data for the peer, and returns once e is in RTS
// and the peer has said that it is too. The request must have been claimed. It ends
// with ctx.
func (r *Request) Accept(ctx context.Context, e End, private []byte) (rdma.ConnInfo, error) {
	info, err := r.accept(ctx, e, private)
	if err != nil {
		_ = r.conn.Close()
	}
	return info, err
}

// accept answers the peer with e's own data, once e is in RTS, and waits for Ready.
func (r *Request) accept(ctx context.Context, e End, private []byte) (rdma.ConnInfo, error) {
	stop := setup.Interruptible(ctx, r.conn)
	defer stop()
	theirs := &r.req.end
	mine, err := ownEndpoint(e, r.conn, theirs)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	if err := mine.judge(theirs); err != nil {
		return rdma.ConnInfo{}, err
	}
	if err := e.Bring(&mine, theirs); err != nil {
		return rdma.ConnInfo{}, err
	}
	rep := frame{kind: frameReply, end: mine, private: private}
	if _, err := r.conn.Write(rep.append(nil)); err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "reply", err)
	}
	ready, err := readFrame(r.conn)
	if err != nil {
		return rdma.ConnInfo{}, setupError(ctx, "waiting for the peer to be ready", err)
	}
	if ready.kind != frameReady {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %v instead of ready", errExchange, ready.kind)
	}
	if !stop() {
		return rdma.ConnInfo{}, setupError(ctx, "ready", ctx.Err())
	}
	l := &Link{conn: r.conn}
	return l.attach(e, r.req.private)
}

// Reject refuses, with private data for the peer.
func (r *Request) Reject(private []byte) error {
	if len(private) > MaxPrivate {
		return fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), MaxPrivate)
	}
	if _, err := r.life.Answer(); err != nil {
		return err
	}
	r.reject(private)
	return nil
}

func (r *Request) reject(private []byte) {
	rej := frame{kind: frameReject, private: private}
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = r.conn.Write(rej.append(nil))
	_ = r.conn.Close()
}
