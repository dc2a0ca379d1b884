package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// keepAlive finds a host that died without closing the connection.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// byeTimeout bounds how long a closing queue pair waits for the peer to confirm that
// it has heard of the end. Unconfirmed, the message may be lost, and the peer finds
// out by itself.
const byeTimeout = 250 * time.Millisecond

// An End is the queue pair that is being connected. Its methods are called
// without a lock: by the goroutine that sets up the connection, PeerGone by another.
type End interface {
	// Describe says what the peer must know of the queue pair, all but its PSN. Local
	// is the address that the peer is reached from. Theirs is what the peer has said
	// of its own end, nil if this end speaks first.
	Describe(local netip.Addr, theirs *Endpoint) (Endpoint, error)
	// Bring moves the queue pair to RTS with what the two ends have told each other.
	Bring(mine, theirs *Endpoint) error
	// Connected is called when both ends are in RTS, with the peer's private data. It
	// returns the outcome for the program. From then on the link is the queue pair's
	// to close; on an error it is still the caller's.
	Connected(l *Link, private []byte) (rdma.ConnInfo, error)
	// PeerGone is called once after Connected, when the peer has disconnected or died.
	// It does not wait.
	PeerGone(why string)
}

// A Link is the socket over which two QPs were connected by hand. It stays open,
// because the end of the socket is how an end notices that its peer has gone.
type Link struct {
	conn *net.TCPConn
	once sync.Once
	over chan struct{} // closed when the watcher has ended
}

// LocalAddr and RemoteAddr are those of the socket.
func (l *Link) LocalAddr() net.Addr  { return l.conn.LocalAddr() }
func (l *Link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// watch waits for the peer's bye, or for the end of the socket, and tells e.
func (l *Link) watch(e End) {
	defer close(l.over)
	f, err := readFrame(l.conn)
	why := "the peer has closed its socket"
	switch {
	case err == nil && f.kind == frameBye:
		why = "the peer has disconnected"
	case err == nil:
		why = fmt.Sprintf("the peer sent %v after the set-up", f.kind)
	case errors.Is(err, net.ErrClosed):
	case !errors.Is(err, io.EOF):
		why = err.Error()
	}
	e.PeerGone(why)
}

// Disconnect sends bye. A peer that does not read makes no difference: the few bytes
// fit into the socket's buffer, or their deadline passes.
func (l *Link) Disconnect() {
	l.once.Do(func() {
		bye := frame{kind: frameBye}
		_ = l.conn.SetWriteDeadline(time.Now().Add(byeTimeout))
		_, _ = l.conn.Write(bye.append(nil))
		_ = l.conn.CloseWrite()
	})
}

// Close waits a moment for the peer to close too, and frees the socket.
func (l *Link) Close() {
	t := time.NewTimer(byeTimeout)
	defer t.Stop()
	select {
	case <-l.over:
	case <-t.C:
	}
	_ = l.conn.Close()
	<-l.over
}

// randomPSN is where the numbers of a QP's packets begin. It is unpredictable, so that
// packets of an old connection, or of another host, do not fit.
func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint32(b[:]) & maxQPN
}

// judge refuses a peer that this end cannot reach.
func (mine *Endpoint) judge(theirs *Endpoint) error {
	switch {
	case mine.Link != theirs.Link:
		return fmt.Errorf("%w: one end is InfiniBand and the other Ethernet", errExchange)
	case mine.Link == ibv.LinkEthernet && mine.GIDType != theirs.GIDType:
		return fmt.Errorf("%w: this end uses %v, the peer %v", errExchange, mine.GIDType, theirs.GIDType)
	}
	return nil
}

// attach makes the socket the link of e and begins to watch it.
func (l *Link) attach(e End, private []byte) (rdma.ConnInfo, error) {
	if err := l.conn.SetDeadline(time.Time{}); err != nil {
		return rdma.ConnInfo{}, fmt.Errorf("%w: %w", rdma.ErrPeerGone, err)
	}
	l.over = make(chan struct{})
	info, err := e.Connected(l, private)
	if err != nil {
		return rdma.ConnInfo{}, err
	}
	go l.watch(e)
	return info, nil
}

// localAddr is this end's address of a socket; the zero Addr if it has none.
func localAddr(conn *net.TCPConn) netip.Addr {
	if a, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
