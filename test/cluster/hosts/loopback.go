package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

// firstLoopback is the last byte of the first host's address, 127.0.0.x: beyond those
// that other programs are likely to have taken.
const firstLoopback = 81

// Loopback makes each host an address of the loopback interface. What can be cut
// there is the way of a client in this process (Host.Fabric, Host.Dial) to another
// host: it goes through a proxy of the two.
func Loopback(names ...string) (Net, error) {
	if err := checkNames(names); err != nil {
		return nil, err
	}
	n := &loop{by: map[string]*loopHost{}, links: map[[2]string]*link{}}
	for i, name := range names {
		h := &loopHost{n: n, name: name, ip: fmt.Sprintf("127.0.0.%d", firstLoopback+i)}
		l, err := net.Listen("tcp", net.JoinHostPort(h.ip, "0"))
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
		l.Close()
		n.by[name] = h
	}
	return n, nil
}

type loop struct {
	by map[string]*loopHost

	mu    sync.Mutex
	links map[[2]string]*link // from a client's host to another
}

func (n *loop) Kind() string { return "loopback" }

func (n *loop) Host(name string) Host { return n.by[name] }

// link returns the proxies from one host to another.
func (n *loop) link(from, to string) (*link, error) {
	if n.by[from] == nil || n.by[to] == nil || from == to {
		return nil, fmt.Errorf("there is no link between %q and %q", from, to)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]string{from, to}
	if n.links[key] == nil {
		n.links[key] = newLink()
	}
	return n.links[key], nil
}

func (n *loop) Cut(a, b string, ports ...uint16) error {
	return errors.Join(n.CutOneWay(a, b, ports...), n.CutOneWay(b, a, ports...))
}

func (n *loop) CutOneWay(from, to string, ports ...uint16) error {
	if len(ports) > 0 {
		return fmt.Errorf("%w: some ports alone on the loopback interface", ErrCannot)
	}
	there, err := n.link(from, to)
	if err != nil {
		return err
	}
	back, err := n.link(to, from)
	if err != nil {
		return err
	}
	there.pass(forth, false)
	back.pass(answer, false)
	return nil
}

func (n *loop) Delay(string, string, time.Duration) error {
	return fmt.Errorf("%w: delays on the loopback interface", ErrCannot)
}

func (n *loop) Lose(string, string, float64) error {
	return fmt.Errorf("%w: losses on the loopback interface", ErrCannot)
}

func (n *loop) Heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.pass(forth, true)
		l.pass(answer, true)
	}
	return nil
}

func (n *loop) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.close()
	}
	return nil
}

type loopHost struct {
	n        *loop
	name, ip string
}

func (h *loopHost) Name() string      { return h.name }
func (h *loopHost) IP() string        { return h.ip }
func (h *loopHost) On() node.Launcher { return node.Local() }

func (h *loopHost) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if network == "tcp" {
		var err error
		if addr, err = h.via(addr); err != nil {
			return nil, err
		}
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func (h *loopHost) Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func (h *loopHost) Fabric(f rdma.Fabric) rdma.Fabric {
	return &placed{f, func(addr string, dial func(string) error) error {
		addr, err := h.via(addr)
		if err != nil {
			return err
		}
		return dial(addr)
	}}
}

// via returns the proxy of an address of another host.
func (h *loopHost) via(addr string) (string, error) {
	ip, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	for _, other := range h.n.by {
		if other.ip != ip || other == h {
			continue
		}
		l, err := h.n.link(h.name, other.name)
		if err != nil {
			return "", err
		}
		return l.proxy(addr)
	}
	return addr, nil
}
