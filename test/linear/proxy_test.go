package linear

import (
	"net"
	"sync"
	"testing"
)

// A cutter is a TCP proxy in front of a node that can do what networks do: break
// connections, and pass nothing on for a while.
type cutter struct {
	l      net.Listener
	target string

	mu     sync.Mutex
	open   chan struct{} // closed while bytes pass
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

func newCutter(t testing.TB, target string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{l: l, target: target, open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(p.open)
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.l.Close()
		p.pass(true)
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *cutter) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		if p.closed {
			in.Close()
			out.Close()
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.pipe(in, out) })
		p.wg.Go(func() { p.pipe(out, in) })
	}
}

func (p *cutter) pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		<-open
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass says whether bytes pass from now on. While they do not, nothing breaks.
func (p *cutter) pass(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		if !yes {
			p.open = make(chan struct{})
		}
	default:
		if yes {
			close(p.open)
		}
	}
}

// cut breaks every connection.
func (p *cutter) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
}
