// Package ether is an Ethernet switch whose cables can be cut.
//
// Each port is a UDP socket; a datagram is an Ethernet frame without its check
// sum, as QEMU's "dgram" network sends and takes it. The switch learns which
// address is behind which port and floods what it does not know, as any other
// (IEEE 802.1D, 7.8 and 7.9). What passes from one port to another can be cut in
// one direction or both, and thinned out.
//
//	guest 1 ---- port 1 +--------+ port 2 ---- guest 2
//	                    | switch |
//	guest 3 ---- port 3 +--------+
package ether

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	rand  *rand.Rand
	table map[address]int // port behind which an address is

	done sync.WaitGroup
}

type address [6]byte

type path struct{ from, to int }

// A rule is what is wrong with a path.
type rule struct {
	cut  bool
	loss float64 // 0 to 1
}

type port struct {
	conn *net.UDPConn // connected to the other end of the cable
	end  *net.UDPConn // that end, given away by Port

	in, out, dropped atomic.Uint64
}

// Counters are frames since the start: In came from the port, Out went to it,
// Dropped would have gone to it but for a cut or loss.
type Counters struct{ In, Out, Dropped uint64 }

// New makes a switch with n ports. seed decides which frames are lost.
func New(n int, seed uint64) (*Switch, error) {
	s := &Switch{paths: map[path]*rule{}, table: map[address]int{}, rand: rand.New(rand.NewPCG(seed, 0))}
	for range n {
		a, b, err := Cable()
		if err != nil {
			s.Close()
			return nil, err
		}
		s.ports = append(s.ports, &port{conn: a, end: b})
	}
	for i := range s.ports {
		s.done.Go(func() { s.forward(i + 1) })
	}
	return s, nil
}

// Port returns the end of the cable that is plugged into a port. It belongs to
// the switch, which closes it.
func (s *Switch) Port(n int) *net.UDPConn { return s.ports[n-1].end }

// Counters returns those of a port.
func (s *Switch) Counters(n int) Counters {
	p := s.ports[n-1]
	return Counters{p.in.Load(), p.out.Load(), p.dropped.Load()}
}

// Cut stops all frames between two ports.
func (s *Switch) Cut(a, b int) {
	s.CutOneWay(a, b)
	s.CutOneWay(b, a)
}

// CutOneWay stops the frames from one port to another. What goes back passes.
func (s *Switch) CutOneWay(from, to int) {
	s.change(from, to, func(r *rule) { r.cut = true })
}

// Isolate cuts a port from all others.
func (s *Switch) Isolate(n int) {
	for i := range s.ports {
		if i+1 != n {
			s.Cut(n, i+1)
		}
	}
}

// Lose makes frames between two ports vanish at random, each with the given
// probability, in both directions.
func (s *Switch) Lose(a, b int, probability float64) {
	set := func(r *rule) { r.loss = min(max(probability, 0), 1) }
	s.change(a, b, set)
	s.change(b, a, set)
}

// Heal ends every cut and every loss.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.paths)
}

func (s *Switch) change(from, to int, f func(*rule)) {
	if from < 1 || to < 1 || from > len(s.ports) || to > len(s.ports) {
		panic(fmt.Sprintf("ether: ports %d and %d of %d", from, to, len(s.ports)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := path{from, to}
	if s.paths[p] == nil {
		s.paths[p] = &rule{}
	}
	f(s.paths[p])
}

// Close ends the switch. Frames under way are lost.
func (s *Switch) Close() error {
	for _, p := range s.ports {
		p.conn.Close()
		p.end.Close()
	}
	s.done.Wait()
	return nil
}

// forward passes on what comes from one port until the switch is closed.
func (s *Switch) forward(from int) {
	p := s.ports[from-1]
	frame := make([]byte, MaxFrame+1)
	var targets []int
	for {
		n, err := p.conn.Read(frame)
		if errors.Is(err, net.ErrClosed) {
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
			t := s.ports[to-1]
			_, err := t.conn.Write(frame[:n])
			if errors.Is(err, syscall.ECONNREFUSED) {
				// That an earlier frame was refused; this one was not sent.
				_, err = t.conn.Write(frame[:n])
			}
			if err == nil {
				t.out.Add(1)
			}
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
		if r := s.paths[path{from, to}]; r != nil && (r.cut || r.loss > 0 && s.rand.Float64() < r.loss) {
			s.ports[to-1].dropped.Add(1)
			continue
		}
		targets = append(targets, to)
	}
	return targets
}

// Cable returns two UDP sockets on the loopback interface, each connected to
// the other, so that nobody else can send to either.
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
