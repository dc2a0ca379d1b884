package simcluster

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// A gossipNet carries gossip between the nodes of a World. It loses what a cut of the world separates, and an end that is down hears
// nothing, so that a killed node is silent at once. Packets that find a full queue are lost, as UDP's are.
type gossipNet struct {
	cut func(from, to string) bool // by IP address

	mu   sync.Mutex
	ends map[string]*gossipEnd // by IP address: the newest life of each node
}

// A gossipEnd is the end of one life of a node. It implements memberlist.NodeAwareTransport.
type gossipEnd struct {
	net     *gossipNet
	host    string // its IP address
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	down    chan struct{}
}

var _ memberlist.NodeAwareTransport = (*gossipEnd)(nil)

const gossipPort = 7946

type gossipAddr string

func (gossipAddr) Network() string  { return "gossip" }
func (a gossipAddr) String() string { return string(a) }

func (e *gossipEnd) addr() gossipAddr { return gossipAddr(fmt.Sprintf("%s:%d", e.host, gossipPort)) }

// begin makes the end of a new life of the node at host.
func (n *gossipNet) begin(host string) *gossipEnd {
	e := &gossipEnd{net: n, host: host, packets: make(chan *memberlist.Packet, 256), streams: make(chan net.Conn), down: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[host] = e
	return e
}

// to is the end at an address; nil: it is not reached.
func (e *gossipEnd) to(addr string) *gossipEnd {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || e.isDown() || e.net.cut(e.host, host) {
		return nil
	}
	e.net.mu.Lock()
	dest := e.net.ends[host]
	e.net.mu.Unlock()
	if dest == nil || dest.isDown() {
		return nil
	}
	return dest
}

func (e *gossipEnd) isDown() bool {
	select {
	case <-e.down:
		return true
	default:
		return false
	}
}

// FinalAdvertiseAddr implements memberlist.Transport, like all down to Shutdown.
func (e *gossipEnd) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.ParseIP(e.host).To4(), gossipPort, nil
}

func (e *gossipEnd) WriteTo(b []byte, addr string) (time.Time, error) {
	if dest := e.to(addr); dest != nil {
		select {
		case dest.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: e.addr(), Timestamp: time.Now()}:
		default:
		}
	}
	return time.Now(), nil
}

func (e *gossipEnd) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return e.WriteTo(b, addr.Addr)
}

func (e *gossipEnd) PacketCh() <-chan *memberlist.Packet { return e.packets }
func (e *gossipEnd) StreamCh() <-chan net.Conn           { return e.streams }

func (e *gossipEnd) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	if dest := e.to(addr); dest != nil {
		ours, theirs := net.Pipe()
		a, b := &stream{Conn: ours, from: e, to: dest}, &stream{Conn: theirs, from: dest, to: e}
		select {
		case dest.streams <- b:
			return a, nil
		case <-dest.down:
		case <-late.C:
		}
	}
	return nil, fmt.Errorf("dial %s: no answer", addr)
}

func (e *gossipEnd) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return e.DialTimeout(addr.Addr, timeout)
}

func (e *gossipEnd) Shutdown() error {
	e.once.Do(func() { close(e.down) })
	return nil
}

// A stream is one end of a connection. net.Pipe has no buffer, and memberlist writes at both ends before it reads: so a goroutine writes
// what was given to it, in order, and the last one closes. What a cut separates is not written.
type stream struct {
	net.Conn
	from, to *gossipEnd

	mu      sync.Mutex
	pending [][]byte
	busy    bool
	closing bool
}

func (s *stream) LocalAddr() net.Addr  { return s.from.addr() }
func (s *stream) RemoteAddr() net.Addr { return s.to.addr() }

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.from.to(string(s.to.addr())) != s.to {
		return 0, net.ErrClosed
	}
	s.pending = append(s.pending, append([]byte(nil), b...))
	if !s.busy {
		s.busy = true
		go s.flush()
	}
	return len(b), nil
}

func (s *stream) flush() {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.busy = false
			closing := s.closing
			s.mu.Unlock()
			if closing {
				_ = s.Conn.Close()
			}
			return
		}
		b := s.pending[0]
		s.pending = s.pending[1:]
		s.mu.Unlock()
		if _, err := s.Conn.Write(b); err != nil {
			_ = s.Conn.Close()
			s.mu.Lock()
			s.pending, s.busy, s.closing = nil, false, true
			s.mu.Unlock()
			return
		}
	}
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if !s.busy {
		return s.Conn.Close()
	}
	return nil
}
