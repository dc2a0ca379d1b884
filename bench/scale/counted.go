package main

import (
	"fmt"
	"log"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// sent counts what members send, all of them together: UDP payloads, and bytes of TCP
// streams in both directions, as they go to the sockets.
type sent struct {
	packets, packetBytes atomic.Int64
	streams, streamBytes atomic.Int64
}

// A tally is sent at one moment.
type tally struct{ packets, packetBytes, streams, streamBytes int64 }

func (s *sent) tally() tally {
	return tally{s.packets.Load(), s.packetBytes.Load(), s.streams.Load(), s.streamBytes.Load()}
}

func (t tally) less(u tally) tally {
	return tally{t.packets - u.packets, t.packetBytes - u.packetBytes, t.streams - u.streams, t.streamBytes - u.streamBytes}
}

// counted is memberlist's own transport, UDP and TCP on a free port of 127.0.0.1, that
// counts.
type counted struct {
	*memberlist.NetTransport
	sent    *sent
	streams chan net.Conn
	gone    chan struct{}
}

var _ memberlist.NodeAwareTransport = (*counted)(nil)

func listen(s *sent) (*counted, error) {
	inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{"127.0.0.1"}, Logger: log.New(discard{}, "", 0)})
	if err != nil {
		return nil, err
	}
	c := &counted{NetTransport: inner, sent: s, streams: make(chan net.Conn), gone: make(chan struct{})}
	go c.accept()
	return c, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// addr is where the transport listens.
func (c *counted) addr() string { return fmt.Sprintf("127.0.0.1:%d", c.GetAutoBindPort()) }

func (c *counted) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IPv4(127, 0, 0, 1).To4(), c.GetAutoBindPort(), nil
}

func (c *counted) WriteTo(b []byte, addr string) (time.Time, error) {
	return c.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (c *counted) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	c.sent.packets.Add(1)
	c.sent.packetBytes.Add(int64(len(b)))
	return c.NetTransport.WriteToAddress(b, addr)
}

func (c *counted) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return c.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (c *counted) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := c.NetTransport.DialAddressTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	c.sent.streams.Add(1)
	return countedConn{conn, c.sent}, nil
}

func (c *counted) StreamCh() <-chan net.Conn { return c.streams }

// accept hands streams on until the transport shuts down.
func (c *counted) accept() {
	for {
		select {
		case conn := <-c.NetTransport.StreamCh():
			select {
			case c.streams <- countedConn{conn, c.sent}:
			case <-c.gone:
				_ = conn.Close()
			}
		case <-c.gone:
			return
		}
	}
}

// Shutdown is called once.
func (c *counted) Shutdown() error {
	err := c.NetTransport.Shutdown()
	close(c.gone)
	return err
}

// countedConn counts what its end sends.
type countedConn struct {
	net.Conn
	sent *sent
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.streamBytes.Add(int64(n))
	return n, err
}
