package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmakv/rdmakv/lab/ether"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

const (
	// network is that of the namespaces. It exists nowhere else.
	network = "10.88.0"
	// mtu makes few frames of much: each costs a system call here.
	mtu = 9000
)

// Namespaces makes each host a network namespace of its own, with a TAP device on
// an Ethernet switch in this process. It fails where that is not allowed.
func Namespaces(names ...string) (Net, error) {
	if err := checkNames(names); err != nil {
		return nil, err
	}
	n := &spaces{by: map[string]*space{}}
	var ends []io.ReadWriteCloser
	var err error
	for i, name := range names {
		s := &space{name: name, ip: fmt.Sprintf("%s.%d", network, i+1), port: i + 1}
		var tap *os.File
		if s.ns, tap, err = newSpace(s.ip); err != nil {
			err = fmt.Errorf("network namespace of %s: %w", name, err)
			break
		}
		n.by[name] = s
		ends = append(ends, tap)
	}
	n.sw = ether.NewOn(ends, 1)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

type spaces struct {
	sw *ether.Switch
	by map[string]*space
}

func (n *spaces) Kind() string { return "namespaces" }

func (n *spaces) Host(name string) Host { return n.by[name] }

// ports returns the ports of two hosts at the switch.
func (n *spaces) ports(a, b string) (int, int, error) {
	from, to := n.by[a], n.by[b]
	if from == nil || to == nil || from == to {
		return 0, 0, fmt.Errorf("there is no link between %q and %q", a, b)
	}
	return from.port, to.port, nil
}

func (n *spaces) Cut(a, b string, ports ...uint16) error {
	return errors.Join(n.CutOneWay(a, b, ports...), n.CutOneWay(b, a, ports...))
}

func (n *spaces) CutOneWay(from, to string, ports ...uint16) error {
	a, b, err := n.ports(from, to)
	if err == nil {
		n.sw.CutOneWay(a, b, ports...)
	}
	return err
}

func (n *spaces) Delay(a, b string, d time.Duration) error {
	from, to, err := n.ports(a, b)
	if err == nil {
		n.sw.Delay(from, to, d)
	}
	return err
}

func (n *spaces) Lose(a, b string, probability float64) error {
	from, to, err := n.ports(a, b)
	if err == nil {
		n.sw.Lose(from, to, probability)
	}
	return err
}

func (n *spaces) Heal() error {
	n.sw.Heal()
	return nil
}

func (n *spaces) Close() error {
	errs := []error{n.sw.Close()}
	for _, s := range n.by {
		errs = append(errs, s.ns.Close())
	}
	return errors.Join(errs...)
}

// A space is a host that is a network namespace.
type space struct {
	name, ip string
	port     int      // at the switch
	ns       *os.File // the namespace, which lives while a descriptor of it is open
}

func (s *space) Name() string { return s.name }
func (s *space) IP() string   { return s.ip }

// within runs f on a thread of its own that is in the namespace, and which ends
// with f, so that nothing else ever runs on it. Sockets and processes that f makes
// belong to the namespace for ever; goroutines that it starts do not.
func (s *space) within(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the namespace of %s: %w", s.name, err)
		}
		return f()
	})
}

func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		done <- f()
	}()
	return <-done
}

func (s *space) On() node.Launcher { return &launcher{Launcher: node.Local(), via: s.within} }

func (s *space) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = s.within(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

func (s *space) Listen() (ln net.Listener, err error) {
	err = s.within(func() (err error) {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	return ln, err
}

func (s *space) Fabric(f rdma.Fabric) rdma.Fabric {
	return &placed{f, func(addr string, dial func(string) error) error {
		return s.within(func() error { return dial(addr) })
	}}
}

// newSpace makes a namespace with a TAP device that has an address.
func newSpace(ip string) (ns, tap *os.File, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if err := setUp("lo", "", 0); err != nil {
			return err
		}
		if tap, err = newTAP("eth0"); err != nil {
			return err
		}
		return setUp("eth0", ip, mtu)
	})
	if err != nil {
		for _, f := range []*os.File{ns, tap} {
			if f != nil {
				f.Close()
			}
		}
		return nil, nil, err
	}
	return ns, tap, nil
}

// newTAP makes a TAP device in the namespace of this thread. Each Read and Write of
// the file is an Ethernet frame; the device ends when it is closed.
func newTAP(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TAP device: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil // now that it is a device, it can be polled
}

// setUp gives a device an address in a network of 24 bits, and an MTU, and turns
// it on.
func setUp(name, ip string, mtu uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	set := func(req uint, fill func(*unix.Ifreq) error) {
		r, e := unix.NewIfreq(name)
		if e == nil {
			e = fill(r)
		}
		if e == nil {
			e = unix.IoctlIfreq(fd, req, r)
		}
		if e != nil && err == nil {
			err = fmt.Errorf("device %s, request %#x: %w", name, req, e)
		}
	}
	if ip != "" {
		set(unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.ParseIP(ip).To4()) })
		set(unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) })
	}
	if mtu != 0 {
		set(unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil })
	}
	set(unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil })
	return err
}
