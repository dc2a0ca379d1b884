//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/internal/memfd"
	"github.com/rdmakv/rdmakv/rdma/internal/setup"
	"github.com/rdmakv/rdmakv/rdma/internal/soft"
	"golang.org/x/sys/unix"
)

// A listener accepts connections at its socket, reads their hellos and queues
// them for the program.
type listener struct {
	dev   *device
	self  netip.AddrPort
	sock  *net.UnixListener
	file  *lockedName
	queue setup.Queue[*connRequest]
	once  sync.Once

	mu      sync.Mutex
	silent  map[*connRequest]struct{} // no hello yet
	workers sync.WaitGroup
}

// portTries is how many random ports are tried for port 0.
const portTries = 64

// listen listens at a host:port address of this host, in the first directory that
// can be used.
func listen(ctx context.Context, d *device, addr string) (*listener, error) {
	fail := func(err error) (*listener, error) {
		return nil, opError("listen", addr, fmt.Errorf("%w: %w", rdma.ErrInvalid, err))
	}
	at, err := resolve(ctx, addr)
	if err != nil {
		return fail(err)
	}
	if !ownAddr(at.Addr()) {
		return fail(fmt.Errorf("%w: %s is no address of this host", unix.EADDRNOTAVAIL, at.Addr()))
	}
	dir, err := d.fabric.makeDir()
	if err != nil {
		return fail(err)
	}
	tries := 1
	if at.Port() == 0 {
		tries = portTries
	}
	for range tries {
		self := at
		if at.Port() == 0 {
			self = netip.AddrPortFrom(at.Addr(), uint16(32768+rand.IntN(28000)))
		}
		var l *listener
		if l, err = listenAt(d, dir, self); err == nil {
			return l, nil
		}
		if !errors.Is(err, errNameTaken) {
			break
		}
	}
	return fail(err)
}

// listenAt makes the socket of an address in a directory and starts to accept.
func listenAt(d *device, dir string, self netip.AddrPort) (*listener, error) {
	f := d.fabric
	mode := os.FileMode(0o600)
	if f.opts.Trust == Trusted {
		mode = 0o666
	}
	sweep(dir)
	name, sock, err := listenSocket(filepath.Join(dir, socketName(self)), mode)
	if err != nil {
		return nil, err
	}
	l := &listener{dev: d, self: self, sock: sock, file: name, silent: make(map[*connRequest]struct{})}
	l.queue.Init(fabricName, f.opts.MaxPending)
	l.workers.Go(l.serve)
	return l, nil
}

// Addr is the address that the listener stands for.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.self) }

// serve accepts until the listener is closed. If one accept fails, for instance
// because no descriptors are left, serve waits and tries again.
func (l *listener) serve() {
	for {
		conn, err := l.sock.AcceptUnix()
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
		if !l.enter(r) {
			_ = conn.Close()
			continue
		}
		l.workers.Go(r.receive)
	}
}

// enter bounds the connections that are being set up.
func (l *listener) enter(r *connRequest) bool {
	p := &l.dev.fabric.pending
	if p.Add(1) > int64(l.dev.fabric.opts.MaxPending) {
		p.Add(-1)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.queue.Closed():
		p.Add(-1)
		return false
	default:
	}
	l.silent[r] = struct{}{}
	return true
}

// heard takes r from the requests that have not said anything. It returns false if
// the listener was closed meanwhile.
func (l *listener) heard(r *connRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.silent[r]
	delete(l.silent, r)
	return ok
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

// Close stops listening, takes the socket away and rejects requests that the program
// has not taken.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.queue.Close()
		for r := range l.silent {
			_ = r.conn.Close()
		}
		l.mu.Unlock()
		_ = l.sock.Close()
		l.workers.Wait()
		for _, r := range l.queue.Rest() {
			_ = r.Reject([]byte("shm: listener closed"))
		}
		l.file.release()
		l.dev.Unuse()
	})
	return nil
}

// A connRequest is a peer that asks for a connection.
type connRequest struct {
	l     *listener
	conn  *net.UnixConn
	hello hello
	life  setup.Life
}

// receive judges the peer, reads its hello and queues it.
func (r *connRequest) receive() {
	f := r.l.dev.fabric
	drop := func() {
		r.l.heard(r)
		f.pending.Add(-1)
		_ = r.conn.Close()
	}
	_ = r.conn.SetDeadline(time.Now().Add(f.opts.SetupTimeout))
	if err := f.judge(r.conn, false, ^uint32(0)); err != nil {
		r.refuse(&welcome{private: []byte(err.Error())})
		drop()
		return
	}
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxNotices))
	n, fds, err := readMessage(r.conn, buf, oob)
	closeAll(fds)
	if err != nil || len(fds) > 0 || !r.l.heard(r) {
		drop()
		return
	}
	if r.hello, err = parseHello(buf[:n]); err != nil {
		r.refuse(&welcome{private: []byte(err.Error())})
		drop()
		return
	}
	if !owns(r.l.self, r.hello.addr, r.hello.netns) {
		r.refuse(&welcome{foreign: true})
		drop()
		return
	}
	r.life.ExpireAfter(f.opts.SetupTimeout, r.expire)
	switch err := r.l.queue.Put(r); err {
	case nil: // it has room for all that are pending
	case setup.ErrFull: // the program takes none, and these have waited too long
		r.expire()
	default:
		_ = r.Reject([]byte("shm: " + err.Error()))
	}
}

// answered claims the right to answer, once, and gives the place of a pending
// connection back.
func (r *connRequest) answered() error {
	if _, err := r.life.Answer(); err != nil {
		return err
	}
	r.l.dev.fabric.pending.Add(-1)
	return nil
}

// expire drops a request that the program has not answered.
func (r *connRequest) expire() {
	if r.answered() == nil {
		_ = r.conn.Close()
	}
}

// PrivateData is what the peer sent: hostile bytes until checked.
func (r *connRequest) PrivateData() []byte { return r.hello.private }

// RemoteAddr stands for the peer: sockets of dialers have no address, so it is the
// host that was dialled, which is the peer's host too.
func (r *connRequest) RemoteAddr() net.Addr { return localAddr(r.hello.addr) }

// Accept connects qp and returns once it is in RTS.
func (r *connRequest) Accept(ctx context.Context, target rdma.QP, p rdma.ConnParams) (rdma.ConnInfo, error) {
	fail := func(err error) (rdma.ConnInfo, error) {
		return rdma.ConnInfo{}, opError("accept", r.RemoteAddr().String(), err)
	}
	d := r.l.dev
	q, ok := target.(*qp)
	if !ok || q == nil || q.pd.dev != d {
		return fail(fmt.Errorf("%w: the queue pair is not of the listener's device", rdma.ErrInvalid))
	}
	ird, ord, err := d.Depths(p, maxPrivate)
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
		_ = r.conn.Close()
		_, err = fail(err)
		q.Fail(soft.Cause{Err: err})
		return rdma.ConnInfo{}, err
	}
	return q.Info(), nil
}

// accept makes the channel, sends the welcome and brings q to RTS.
func (r *connRequest) accept(ctx context.Context, q *qp, ird, ord int, private []byte) error {
	f := r.l.dev.fabric
	pages, fd, err := memfd.NewChannel(channelSize)
	if err != nil {
		return fmt.Errorf("%w: %w", rdma.ErrLimit, err)
	}
	fds := []int{fd}
	defer func() { closeAll(fds) }()
	a := attachment{
		conn: r.conn, ch: newChannel(pages, false), ird: ird, ord: min(ord, int(r.hello.ird)),
		// The dialer shows us what it stages, and needs to show no more. It may be
		// hostile, so what it shows must not cost us memory.
		limits: mapLimits{maps: acceptorMaps, bytes: acceptorBytes, backed: true},
		info:   rdma.ConnInfo{PrivateData: r.hello.private, LocalAddr: r.l.Addr(), RemoteAddr: r.RemoteAddr()},
	}
	a.ch.reset()
	give := func(err error) error {
		_ = a.ch.unmap()
		return err
	}
	w := welcome{accept: true, ird: uint16(ird), ord: uint16(a.ord), private: private}
	if f.opts.Proof != nil {
		proof, err := f.opts.Proof()
		if err != nil {
			return give(fmt.Errorf("%w: the proof for those who come after us: %w", rdma.ErrLimit, err))
		}
		// Our copy is closed at once: only the peer's copy counts.
		defer proof.Close()
		w.proof = true
		fds = append(fds, dupOf(proof))
		if fds[1] < 0 {
			fds = fds[:1]
			return give(fmt.Errorf("%w: no descriptors left", rdma.ErrLimit))
		}
	}
	_ = r.conn.SetDeadline(time.Now().Add(f.opts.SetupTimeout))
	stop := setup.Interruptible(ctx, r.conn)
	_, _, err = r.conn.WriteMsgUnix(w.append(nil), unix.UnixRights(fds...), nil)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return give(setup.Error(ctx, "welcome", err))
	}
	return q.attach(&a)
}

// Bounds of what an acceptor maps for one connection.
const (
	acceptorMaps  = 256
	acceptorBytes = 1 << 30
)

// Reject refuses, with private data for the peer.
func (r *connRequest) Reject(private []byte) error {
	if limit := r.l.dev.Attr().MaxAcceptPrivate; len(private) > limit {
		return opError("reject", r.RemoteAddr().String(), fmt.Errorf("%w: %d bytes of private data, the limit is %d", rdma.ErrInvalid, len(private), limit))
	}
	if err := r.answered(); err != nil {
		return opError("reject", r.RemoteAddr().String(), err)
	}
	r.refuse(&welcome{private: private})
	_ = r.conn.Close()
	return nil
}

// refuse sends the refusal.
func (r *connRequest) refuse(w *welcome) {
	w.private = w.private[:min(len(w.private), maxPrivate)]
	_ = r.conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = r.conn.Write(w.append(nil))
}
