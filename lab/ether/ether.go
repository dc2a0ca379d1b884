// Package ether is an Ethernet switch whose cables can be cut.
//
// Each port is a UDP socket; a datagram is an Ethernet frame without its check
// sum, as QEMU's "dgram" network sends and takes it. The switch learns which
// address is behind which port and floods frames to addresses that it does not
// know, as any other (IEEE 802.1D, 7.8 and 7.9). Frames from one port to another
// can be cut in one direction or both, all of them or those of some TCP and UDP
// ports alone, lost at random, and delayed.
//
//	guest 1 ---- port 1 +--------+ port 2 ---- guest 2
//	                    | switch |
//	guest 3 ---- port 3 +--------+
package ether

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// MaxFrame is the largest frame that is passed on, in bytes.
const MaxFrame = 16 << 10

// maxAddresses bounds what the switch learns; then it forgets everything.
const maxAddresses = 4096

// A Switch passes frames between ports, numbered from 1. Its methods may be
// called at the same time.
type Switch struct {
	ports []*port // ports[0] is port 1

	mu    sync.Mutex
	paths map[path]*rule
	lines map[path]chan late // delay lines that were ever needed
	rand  *rand.Rand
	table map[address]int // port behind which an address is

	closed chan struct{}
	once   sync.Once
	done   sync.WaitGroup
}

type address [6]byte

type path struct{ from, to int }

type port struct {
	conn io.ReadWriteCloser // one frame each Read and Write
	end  *net.UDPConn       // the other end of a cable, given away by Port; nil without one

	in, out, dropped atomic.Uint64
}

// Counters are frames since the start: In came from the port, Out went to it,
// Dropped would have gone to it but for a cut or loss.
type Counters struct{ In, Out, Dropped uint64 }

// New makes a switch with n ports. seed decides which frames are lost.
func New(n int, seed uint64) (*Switch, error) {
	var ports []*port
	for range n {
		a, b, err := Cable()
		if err != nil {
			for _, p := range ports {
				p.close()
			}
			return nil, err
		}
		ports = append(ports, &port{conn: a, end: b})
	}
	return start(ports, seed), nil
}

// NewOn makes a switch whose port n is ends[n-1], of which each Read and Write is
// one frame: TAP devices, say. They belong to the switch, which closes them.
func NewOn(ends []io.ReadWriteCloser, seed uint64) *Switch {
	var ports []*port
	for _, e := range ends {
		ports = append(ports, &port{conn: e})
	}
	return start(ports, seed)
}

func start(ports []*port, seed uint64) *Switch {
	s := &Switch{
		ports: ports, paths: map[path]*rule{}, lines: map[path]chan late{}, table: map[address]int{},
		rand: rand.New(rand.NewPCG(seed, 0)), closed: make(chan struct{}),
	}
	for i := range s.ports {
		s.done.Go(func() { s.forward(i + 1) })
	}
	return s
}

// Port returns the end of the cable that is plugged into a port. It belongs to
// the switch, which closes it.
func (s *Switch) Port(n int) *net.UDPConn { return s.ports[n-1].end }

// Counters returns those of a port.
func (s *Switch) Counters(n int) Counters {
	p := s.ports[n-1]
	return Counters{p.in.Load(), p.out.Load(), p.dropped.Load()}
}

// Close ends the switch. Frames under way are lost.
func (s *Switch) Close() error {
	s.once.Do(func() { close(s.closed) })
	for _, p := range s.ports {
		p.close()
	}
	s.done.Wait()
	return nil
}

func (p *port) close() {
	p.conn.Close()
	if p.end != nil {
		p.end.Close()
	}
}

// send writes a frame to a port. One that cannot be written is lost.
func (p *port) send(frame []byte) {
	_, err := p.conn.Write(frame)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// That an earlier frame was refused; this one was not sent.
		_, err = p.conn.Write(frame)
	}
	if err == nil {
		p.out.Add(1)
	}
}

// forward passes on what comes from one port until the switch is closed.
func (s *Switch) forward(from int) {
	p := s.ports[from-1]
	frame := make([]byte, MaxFrame+1)
	var targets []int
	for {
		n, err := p.conn.Read(frame)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// The other end has gone, or is not there yet: a frame to it was
			// refused. It may come back.
			time.Sleep(time.Millisecond)
			continue
		}
		if n < 14 || n > MaxFrame {
			continue // no Ethernet header, or a giant
		}
		p.in.Add(1)
		targets = s.route(from, frame[:n], targets[:0])
		for _, to := range targets {
			s.ports[to-1].send(frame[:n])
		}
	}
}

// route learns where a frame came from and appends the ports it goes to.
func (s *Switch) route(from int, frame []byte, targets []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	dst, src := address(frame[0:6]), address(frame[6:12])
	const group = 1 // bit of the first byte of an address that names several
	if src[0]&group == 0 {
		if len(s.table) >= maxAddresses {
			clear(s.table)
		}
		s.table[src] = from
	}
	first, last := 1, len(s.ports)
	if to, known := s.table[dst]; known && dst[0]&group == 0 {
		first, last = to, to
	}
	for to := first; to <= last; to++ {
		if to == from {
			continue
		}
		if r := s.paths[path{from, to}]; r != nil {
			if r.stops(frame) || r.loss > 0 && s.rand.Float64() < r.loss {
				s.ports[to-1].dropped.Add(1)
				continue
			}
			if r.delay > 0 {
				s.hold(path{from, to}, frame, r.delay)
				continue
			}
		}
		targets = append(targets, to)
	}
	return targets
}

// Cable returns two UDP sockets on the loopback interface, each connected to the
// other, so that no other socket can send to either.
func Cable() (a, b *net.UDPConn, err error) {
	local := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	// Each must know the other's port when it is connected, so the first is
	// bound, learns its port, and is made anew, connected, once both are known.
	for range 10 {
		if a, err = net.ListenUDP("udp4", local); err != nil {
			return nil, nil, err
		}
		at := a.LocalAddr().(*net.UDPAddr)
		if b, err = net.DialUDP("udp4", local, at); err != nil {
			a.Close()
			return nil, nil, err
		}
		a.Close()
		if a, err = net.DialUDP("udp4", at, b.LocalAddr().(*net.UDPAddr)); err == nil {
			return a, b, nil
		}
		b.Close() // another program took the port in between
	}
	return nil, nil, err
}
