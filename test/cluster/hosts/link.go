package hosts

import (
	"net"
	"sync"
)

// A direction of a link.
type direction int

const (
	forth  direction = iota // what the client sends
	answer                  // what comes back
)

// A link is the TCP proxies through which clients of one host reach another. What
// it does not pass stays where it is, as on a cable that is cut: nothing breaks.
type link struct {
	mu      sync.Mutex
	open    [2]chan struct{} // closed while bytes pass
	proxies map[string]net.Listener
	conns   map[net.Conn]struct{}
	closed  bool
	wg      sync.WaitGroup
}

func newLink() *link {
	l := &link{proxies: map[string]net.Listener{}, conns: map[net.Conn]struct{}{}}
	for d := range l.open {
		l.open[d] = make(chan struct{})
		close(l.open[d])
	}
	return l
}

// proxy returns the address of the proxy of a target, made when it is first asked
// for.
func (l *link) proxy(target string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", net.ErrClosed
	}
	p := l.proxies[target]
	if p == nil {
		var err error
		if p, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		l.proxies[target] = p
		l.wg.Go(func() { l.serve(p, target) })
	}
	return p.Addr().String(), nil
}

func (l *link) serve(p net.Listener, target string) {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		l.conns[in] = struct{}{}
		if l.closed {
			in.Close()
		}
		l.mu.Unlock()
		l.wg.Go(func() { l.carry(in, target) })
	}
}

// carry connects to the target once the way there and the way back are open, and
// passes bytes.
func (l *link) carry(in net.Conn, target string) {
	defer l.forget(in)
	for d := range l.open {
		<-l.way(direction(d))
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer l.forget(out)
	l.mu.Lock()
	l.conns[out] = struct{}{}
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.pipe(out, in, answer)
	}()
	l.pipe(in, out, forth)
	<-back
}

func (l *link) forget(c net.Conn) {
	c.Close()
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

func (l *link) pipe(from, to net.Conn, d direction) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		<-l.way(d)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// way is closed while a direction is open.
func (l *link) way(d direction) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[d]
}

// pass says whether bytes pass in a direction from now on.
func (l *link) pass(d direction, yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open[d]:
		if !yes && !l.closed {
			l.open[d] = make(chan struct{})
		}
	default:
		if yes {
			close(l.open[d])
		}
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	for _, p := range l.proxies {
		p.Close()
	}
	for c := range l.conns {
		c.Close()
	}
	l.mu.Unlock()
	l.pass(forth, true)
	l.pass(answer, true)
	l.wg.Wait()
}
