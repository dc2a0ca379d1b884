package membership

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// A memNet is a network in memory, for many nodes in one process. Packets are
// dropped when a receiver is slow, as UDP's are, and links can be cut, one way
// or both. memberlist's own mock network blocks for ever on a node that has
// shut down; otherwise this is the same.
type memNet struct {
	mu    sync.Mutex
	ends  map[string]*memEnd
	cut   func(from, to string) bool // by address; nil: nothing is cut
	mute  bool                       // packets are lost, and streams are not
	ports int
	began uint64

	packets, packetBytes atomic.Int64
}

type memEnd struct {
	net     *memNet
	addr    memAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	down    chan struct{}
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

func newMemNet() *memNet { return &memNet{ends: map[string]*memEnd{}} }

// end makes an end of the network, with an address of its own.
func (n *memNet) end() *memEnd {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports++
	return n.endAtLocked(fmt.Sprintf("10.0.%d.%d:7946", n.ports>>8, n.ports&255))
}

func (n *memNet) endAtLocked(addr string) *memEnd {
	e := &memEnd{
		net: n, addr: memAddr(addr), down: make(chan struct{}),
		packets: make(chan *memberlist.Packet, 256), streams: make(chan net.Conn),
	}
	n.ends[addr] = e
	return e
}

// life is that of the next start of a node: later than those before.
func (n *memNet) life(id string) Life {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.began++
	return Life{Store: [16]byte{byte(cluster.Hash(id))}, Epoch: n.began, Began: n.began}
}

func (n *memNet) setCut(cut func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *memNet) setMute(mute bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = mute
}

// to returns the end at an address, or nil if there is none.
func (e *memEnd) to(addr string) *memEnd {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	dest := e.net.ends[addr]
	if dest == nil || e.net.cut != nil && e.net.cut(string(e.addr), addr) {
		return nil
	}
	select {
	case <-dest.down:
		return nil
	default:
		return dest
	}
}

func (e *memEnd) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a, err := net.ResolveUDPAddr("udp", string(e.addr))
	if err != nil {
		return nil, 0, err
	}
	return a.IP.To4(), a.Port, nil
}

func (e *memEnd) WriteTo(b []byte, addr string) (time.Time, error) {
	e.net.packets.Add(1)
	e.net.packetBytes.Add(int64(len(b)))
	e.net.mu.Lock()
	mute := e.net.mute
	e.net.mu.Unlock()
	if dest := e.to(addr); dest != nil && !mute {
		select {
		case dest.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: e.addr, Timestamp: time.Now()}:
		default:
		}
	}
	return time.Now(), nil
}

func (e *memEnd) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return e.WriteTo(b, addr.Addr)
}

func (e *memEnd) PacketCh() <-chan *memberlist.Packet { return e.packets }
func (e *memEnd) StreamCh() <-chan net.Conn           { return e.streams }

type memConn struct {
	net.Conn
	local, remote memAddr
}

func (c memConn) LocalAddr() net.Addr  { return c.local }
func (c memConn) RemoteAddr() net.Addr { return c.remote }

func (e *memEnd) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	dest := e.to(addr)
	if dest == nil {
		return nil, fmt.Errorf("dial %s: nobody there", addr)
	}
	ours, theirs := bufferedPipe()
	select {
	case dest.streams <- memConn{theirs, dest.addr, e.addr}:
		return memConn{ours, e.addr, dest.addr}, nil
	case <-dest.down:
	case <-time.After(timeout):
	}
	return nil, fmt.Errorf("dial %s: no answer", addr)
}

func (e *memEnd) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return e.DialTimeout(addr.Addr, timeout)
}

func (e *memEnd) Shutdown() error {
	e.once.Do(func() { close(e.down) })
	return nil
}

// bufferedPipe is a pair of connections over loopback-like pipes. net.Pipe has
// no buffer, and memberlist writes to both ends before it reads.
func bufferedPipe() (net.Conn, net.Conn) {
	a, b := net.Pipe()
	return &writeBehind{Conn: a}, &writeBehind{Conn: b}
}

// writeBehind hands writes to a goroutine, in order, and lets Close wait for
// none: a reader that goes away ends it.
type writeBehind struct {
	net.Conn
	mu      sync.Mutex
	pending [][]byte
	busy    bool
	closing bool
}

func (w *writeBehind) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return 0, net.ErrClosed
	}
	w.pending = append(w.pending, append([]byte(nil), b...))
	if !w.busy {
		w.busy = true
		go w.flush()
	}
	return len(b), nil
}

func (w *writeBehind) flush() {
	for {
		w.mu.Lock()
		if len(w.pending) == 0 {
			w.busy = false
			closing := w.closing
			w.mu.Unlock()
			if closing {
				_ = w.Conn.Close()
			}
			return
		}
		b := w.pending[0]
		w.pending = w.pending[1:]
		w.mu.Unlock()
		if _, err := w.Conn.Write(b); err != nil {
			_ = w.Conn.Close()
			w.mu.Lock()
			w.pending, w.busy, w.closing = nil, false, true
			w.mu.Unlock()
			return
		}
	}
}

func (w *writeBehind) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	if !w.busy {
		return w.Conn.Close()
	}
	return nil // the flusher closes behind the last byte, or when the reader has gone
}

// listen makes an end at an address of one's own choice.
func (n *memNet) listen(addr string) *memEnd {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.endAtLocked(addr)
}
