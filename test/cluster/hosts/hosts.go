// Package hosts makes separate hosts of one machine, for tests of a cluster:
// network namespaces on an Ethernet switch of our own, whose cables can be cut,
// or, where namespaces cannot be made, loopback addresses.
//
//	       namespaces                                loopback
//	host a: TAP 10.88.0.1 --+--------+        host a: 127.0.0.81
//	host b: TAP 10.88.0.2 --| switch |        host b: 127.0.0.82   proxies between
//	host c: TAP 10.88.0.3 --+--------+        host c: 127.0.0.83   clients and nodes
//
// A namespace has no name and leaves nothing behind: it ends with the last process
// in it. Namespaces need the right to make them, which root has and, where the
// kernel lets users make user namespaces, everybody (Enter). Nothing leaves the
// machine either way.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/test/node"
)

// A Net is some hosts and what is between them. Its methods are safe for
// concurrent use.
type Net interface {
	// Kind is "namespaces" or "loopback".
	Kind() string
	// Host returns a host by its name.
	Host(name string) Host
	// Cut stops all traffic between two hosts, or that of some TCP and UDP ports.
	// Frames over a cut are lost silently.
	Cut(a, b string, ports ...uint16) error
	// CutOneWay stops the traffic from one host to another only.
	CutOneWay(from, to string, ports ...uint16) error
	// Delay holds up everything between two hosts, in both directions.
	Delay(a, b string, d time.Duration) error
	// Lose makes frames between two hosts vanish at random, each with the probability, in both directions.
	Lose(a, b string, probability float64) error
	// Heal ends every cut, loss and delay.
	Heal() error
	// Close ends the network. The processes in it must have ended.
	Close() error
}

// ErrCannot is what a Net answers that cannot do a fault.
var ErrCannot = errors.New("this network cannot do that")

// A Host is a machine as far as the network goes. Processes started on it, and
// connections made from it, have its address.
type Host interface {
	Name() string
	IP() string
	// On starts nodes and other programs there.
	On() node.Launcher
	// Dial connects from there.
	Dial(ctx context.Context, network, addr string) (net.Conn, error)
	// Listen listens on a free port of its loopback address, which no other host reaches.
	Listen() (net.Listener, error)
	// Fabric is a fabric whose connections are made from there: for a client in
	// this process that is to live on the host.
	Fabric(rdma.Fabric) rdma.Fabric
}

// New makes hosts with the given names: in namespaces, or, if they cannot be made,
// on loopback addresses. why says why not namespaces.
func New(names ...string) (n Net, why error, err error) {
	if n, why = Namespaces(names...); why == nil {
		return n, nil, nil
	}
	n, err = Loopback(names...)
	return n, why, err
}

// maxHosts is more than any test needs.
const maxHosts = 32

func checkNames(names []string) error {
	seen := map[string]bool{}
	for _, n := range names {
		if n == "" || seen[n] {
			return fmt.Errorf("host %q: names must differ", n)
		}
		seen[n] = true
	}
	if len(names) > maxHosts {
		return fmt.Errorf("%d hosts, at most %d", len(names), maxHosts)
	}
	return nil
}
