package ether

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"
)

// A rule is what is wrong with a path.
type rule struct {
	cut   bool
	ports []uint16 // cut for these TCP and UDP ports
	loss  float64  // 0 to 1
	delay time.Duration
}

// stops reports whether the rule cuts a frame.
func (r *rule) stops(frame []byte) bool {
	return r.cut || len(r.ports) > 0 && concerns(frame, r.ports)
}

// concerns reports whether a frame is IPv4 with TCP or UDP from or to one of
// some ports. Only the first fragment of a packet tells; without it the others
// are of no use.
func concerns(frame []byte, ports []uint16) bool {
	const ethernet, ipv4, tcp, udp = 14, 0x0800, 6, 17
	if len(frame) < ethernet+20 || binary.BigEndian.Uint16(frame[12:]) != ipv4 {
		return false
	}
	ip := frame[ethernet:]
	length, offset := int(ip[0]&15)*4, binary.BigEndian.Uint16(ip[6:])&0x1fff
	if (ip[9] != tcp && ip[9] != udp) || offset != 0 || length < 20 || len(ip) < length+4 {
		return false
	}
	return slices.Contains(ports, binary.BigEndian.Uint16(ip[length:])) ||
		slices.Contains(ports, binary.BigEndian.Uint16(ip[length+2:]))
}

// Cut stops frames between two ports: all of them, or those from and to the
// given TCP and UDP ports.
func (s *Switch) Cut(a, b int, only ...uint16) {
	s.CutOneWay(a, b, only...)
	s.CutOneWay(b, a, only...)
}

// CutOneWay stops frames from one port to another: all of them, or those from
// and to the given TCP and UDP ports. What goes back passes.
func (s *Switch) CutOneWay(from, to int, only ...uint16) {
	s.change(from, to, func(r *rule) {
		if len(only) == 0 {
			r.cut = true
		}
		r.ports = append(r.ports, only...)
	})
}

// Isolate cuts a port from all others: all frames, or those from and to the
// given TCP and UDP ports.
func (s *Switch) Isolate(n int, only ...uint16) {
	for i := range s.ports {
		if i+1 != n {
			s.Cut(n, i+1, only...)
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

// Delay holds up every frame between two ports for a time, in both directions.
func (s *Switch) Delay(a, b int, d time.Duration) {
	set := func(r *rule) { r.delay = d }
	s.change(a, b, set)
	s.change(b, a, set)
}

// Heal ends every cut, loss and delay. What is held up still comes late.
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

// A late frame is one that is held up.
type late struct {
	at    time.Time // when it is sent on
	frame []byte
}

// maxLate bounds the frames that are held up on one path; more are lost.
const maxLate = 4096

// hold puts a copy of a frame into the delay line of its path, made when it is
// first needed. The caller holds s.mu.
func (s *Switch) hold(p path, frame []byte, d time.Duration) {
	line := s.lines[p]
	if line == nil {
		line = make(chan late, maxLate)
		s.lines[p] = line
		s.done.Go(func() { s.deliver(line, s.ports[p.to-1]) })
	}
	select {
	case line <- late{time.Now().Add(d), slices.Clone(frame)}:
	default:
		s.ports[p.to-1].dropped.Add(1)
	}
}

// deliver sends on what was held up, in order, until the switch is closed.
func (s *Switch) deliver(line chan late, to *port) {
	for {
		select {
		case <-s.closed:
			return
		case l := <-line:
			t := time.NewTimer(time.Until(l.at))
			select {
			case <-s.closed:
				t.Stop()
				return
			case <-t.C:
			}
			to.send(l.frame)
		}
	}
}
