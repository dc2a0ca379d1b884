package sim

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Options of a Network. The zero value is a fabric that behaves.
type Options struct {
	// Seed decides everything that Adversity leaves open.
	Seed      uint64
	Adversity Adversity
	// SetupTimeout bounds each side of a connection set-up; 0 means 5 s.
	SetupTimeout time.Duration
	// RetryTimeout is how long an adapter repeats a request that is not
	// acknowledged before the connection dies; 0 means 3.6 s, which is what
	// timeout 14 and seven retries come to.
	RetryTimeout time.Duration
	// ReadDepth is the devices' limit for IRD and ORD; 0 means 16.
	ReadDepth int
	// Caps are taken from the devices' capabilities: CapRNR gone makes a SEND
	// without receive end the connection.
	Without rdma.Caps
	// Log takes one line for each thing that the network does, in order. It
	// runs under the network's lock: it must not use the network.
	Log func(line string)
}

// A Network is a set of machines that reach each other. All methods are safe
// for concurrent use.
type Network struct {
	opts  Options
	began time.Time

	// mu guards everything of the network: hosts, devices, queues. One lock is
	// enough for a simulator, and makes it trivially true that the memory is
	// not touched once Close has returned. Nothing is waited for and no program
	// is called under it.
	mu        sync.Mutex
	events    eventHeap
	stepping  []*event
	sweep     int // of stepping, when it is as long as this
	seq       uint64
	turning   bool
	timer     *time.Timer
	wake      int64 // when the timer fires; 0: it does not
	adverse   Adversity
	hosts     []*Host
	listeners map[netip.AddrPort]*listener
	ports     uint16 // last one given out
	qpns      uint32
	devices   uint64
	cuts      map[[2]string]bool // ways, from and to
	counts    Counts
	room      []byte
}

// Counts is what a network has done so far.
type Counts struct {
	Sends, Reads    uint64 // requests that reached their peer
	Torn            uint64 // READs loaded in several pieces at different times
	Late            uint64 // READs that took longer than usual
	StaleKey        uint64 // READs through a key whose memory is not what it was at the post
	FrozenReads     uint64 // READs answered for a paused or dead host
	Lost            uint64 // connections ended by the network
	Refused         uint64 // READs refused
	SetupsDisturbed uint64
	SinkReads       uint64 // READs into prepared sinks
	SinksPending    uint64 // calls that ended before the READ into a sink had
}

// New makes a network without machines.
func New(opts Options) *Network {
	if opts.SetupTimeout == 0 {
		opts.SetupTimeout = 5 * time.Second
	}
	if opts.RetryTimeout == 0 {
		opts.RetryTimeout = 3600 * time.Millisecond
	}
	if opts.ReadDepth == 0 {
		opts.ReadDepth = 16
	}
	return &Network{
		opts: opts, began: time.Now(), adverse: opts.Adversity,
		listeners: make(map[netip.AddrPort]*listener), ports: 20000, cuts: make(map[[2]string]bool),
	}
}

// SetAdversity changes what the network does to requests posted from now on,
// for example to let a run end without faults.
func (n *Network) SetAdversity(a Adversity) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.adverse = a
}

// Counts returns what the network has done.
func (n *Network) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts
}

// Cut separates two hosts, or joins them again. Requests under way between them
// are repeated by the adapters until Options.RetryTimeout is over.
func (n *Network) Cut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("cut %s %s %v", a, b, cut)
	n.setCut(a, b, cut)
	n.setCut(b, a, cut)
	n.turn()
}

// CutWay is Cut of one direction: what from sends does not come to to. What to sends is carried out, and no acknowledgement and no answer of
// a READ comes back for it, so that its connections die after Options.RetryTimeout, too.
func (n *Network) CutWay(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logf("cut the way from %s to %s %v", from, to, cut)
	n.setCut(from, to, cut)
	n.turn()
}

func (n *Network) setCut(from, to string, cut bool) {
	if cut {
		n.cuts[[2]string{from, to}] = true
	} else {
		delete(n.cuts, [2]string{from, to})
	}
}

// cut says whether nothing comes from one host to another.
func (n *Network) cut(from, to *Host) bool {
	return len(n.cuts) > 0 && n.cuts[[2]string{from.name, to.name}]
}

// logf writes a line of the schedule log.
func (n *Network) logf(format string, args ...any) {
	if n.opts.Log != nil {
		n.opts.Log(fmt.Sprintf("%12.6f ", float64(n.now())/1e9) + fmt.Sprintf(format, args...))
	}
}

// parseAddr reads ip:port. The network knows no names but localhost.
func parseAddr(addr string, own netip.Addr) (netip.AddrPort, error) {
	bad := func(why string) (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("%w: address %q: %s", rdma.ErrInvalid, addr, why)
	}
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return bad("no port")
	}
	host, port := addr[:i], addr[i+1:]
	num, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return bad("the port is no number from 0 to 65535")
	}
	ip := own
	switch {
	case host == "localhost":
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case host != "":
		if ip, err = netip.ParseAddr(strings.Trim(host, "[]")); err != nil {
			return bad("the host is no IP address")
		}
	}
	return netip.AddrPortFrom(ip, uint16(num)), nil
}

// freePort finds a port without a listener.
func (n *Network) freePort(ip netip.Addr) netip.AddrPort {
	for {
		if n.ports++; n.ports < 20000 {
			n.ports = 20000
		}
		at := netip.AddrPortFrom(ip, n.ports)
		if n.listeners[at] == nil {
			return at
		}
	}
}

func opError(op string, addr string, err error) error {
	return &rdma.OpError{Op: op, Fabric: fabricName, Addr: addr, Err: err}
}
