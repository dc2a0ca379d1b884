package membership

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// These bound connections from others, before any of them has proved anything.
const (
	maxStreams     = 256 // in all
	maxStreamsHost = 64  // from one address
	greetTime      = 5 * time.Second
	// streamTime ends a stream on which no other code has set a deadline.
	streamTime = 30 * time.Second
	// memberlist reads a whole message, of up to 20 MiB, before it looks whether that
	// is sealed with our key. A node that joins, with all tables that it may bring
	// (maxJoin) and a thousand members, needs 5 MiB.
	maxStreamBytes = 8 << 20   // of one stream
	maxHostBytes   = 32 << 20  // of all streams of one address that are open
	maxAllBytes    = 128 << 20 // of all that are open
)

// transport is memberlist's transport with checks in front of it: packets and streams
// from sources outside the allow-list and from clusters of another name go no further,
// streams are counted, and all of them end when it closes.
type transport struct {
	inner memberlist.NodeAwareTransport
	label string
	allow []netip.Prefix
	stats *counters
	say   func(event)

	packets chan *memberlist.Packet
	streams chan net.Conn

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	gone   chan struct{} // closed once inner is shut down
	once   sync.Once
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // all that are open, both ways
	inside map[netip.Addr]int    // from others, by address
	total  int
	taken  map[netip.Addr]int // bytes that came in by those, by address
	all    int                // bytes of them all
}

// newTransport stands in front of inner: it forwards packets and streams that are
// allowed.
func newTransport(inner memberlist.NodeAwareTransport, label string, allow []netip.Prefix, stats *counters, say func(event)) *transport {
	t := &transport{
		inner: inner, label: label, allow: allow, stats: stats, say: say,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		gone: make(chan struct{}), conns: map[net.Conn]struct{}{}, inside: map[netip.Addr]int{}, taken: map[netip.Addr]int{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Add(2)
	go t.forwardPackets()
	go t.forwardStreams()
	return t
}

// forwardPackets goes on taking packets until inner has shut down: a listener that
// waits for us would never end.
func (t *transport) forwardPackets() {
	defer t.wg.Done()
	for {
		select {
		case p := <-t.inner.PacketCh():
			if !t.welcome(p) {
				continue
			}
			select {
			case t.packets <- p:
			case <-t.ctx.Done():
			}
		case <-t.gone:
			return
		}
	}
}

// welcome looks at a packet's source and label. memberlist decrypts and judges its
// content.
func (t *transport) welcome(p *memberlist.Packet) bool {
	if !t.allowed(p.From) {
		t.refused(p.From, refuseAddress, "")
		return false
	}
	if _, label, err := memberlist.RemoveLabelHeaderFromPacket(p.Buf); err != nil || label != t.label {
		t.refused(p.From, refuseLabel, label)
		return false
	}
	return true
}

// forwardStreams looks at each stream before memberlist gets it, on a goroutine for
// each, until the transport closes.
func (t *transport) forwardStreams() {
	defer t.wg.Done()
	for {
		select {
		case conn := <-t.inner.StreamCh():
			reason := refusal(0)
			if !t.allowed(conn.RemoteAddr()) {
				reason = refuseAddress
			}
			if s, ok := t.track(conn); ok {
				t.wg.Add(1)
				go t.greet(s, reason)
			} else {
				// The refusal is not sent: that would cost a goroutine.
				t.refused(conn.RemoteAddr(), refuseBusy, "")
				_ = conn.Close()
			}
		case <-t.gone:
			return
		}
	}
}

// greet reads the label of a stream before memberlist sees it, so that an end that
// reaches the wrong cluster is told.
func (t *transport) greet(s *stream, reason refusal) {
	defer t.wg.Done()
	_ = s.Conn.SetDeadline(time.Now().Add(greetTime))
	conn, label, err := memberlist.RemoveLabelHeaderFromStream(s)
	switch {
	case reason != 0:
	case err == nil && label == t.label:
		// memberlist reads the label itself, so it is put back.
		head := append([]byte{hasLabel, byte(len(label))}, label...)
		_ = s.Conn.SetDeadline(time.Now().Add(streamTime))
		select {
		case t.streams <- &prefixed{Conn: conn, head: head}:
		case <-t.ctx.Done():
			_ = s.Close()
		}
		return
	case err != nil: // nothing, or no whole label, came in time: there is no end to answer
		_ = s.Close()
		return
	default:
		// There is no label, or another one. A stream that ended without a byte, like
		// that of a probe whose time was over, is no attempt to join.
		if label == "" {
			name, asked, ok := readQuestion(conn)
			if asked && name == t.label {
				_, _ = s.Write(accepted.append(nil, ""))
			}
			if !ok || asked && name == t.label {
				_ = s.Close()
				return
			}
			label = name
		}
		reason = refuseLabel
	}
	t.refused(s.RemoteAddr(), reason, label)
	told := ""
	if reason == refuseLabel && t.known(s.RemoteAddr()) {
		told = t.label
	}
	_, _ = s.Write(reason.append(nil, told))
	_ = s.Close()
}

// hasLabel opens a stream that has a label.
const hasLabel = 244

// prefixed puts bytes that were read already in front of a stream again.
type prefixed struct {
	net.Conn
	head []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// known reports whether an address is one of ours by gossip.allow, or of this machine:
// it may be told the cluster's name. For others the name is the first thing to guess,
// because nothing is decrypted that comes without it.
func (t *transport) known(from net.Addr) bool {
	return len(t.allow) > 0 && t.allowed(from) || addrOf(from).IsLoopback()
}

// allowed reports whether gossip.allow has an address; an empty list has every
// address.
func (t *transport) allowed(from net.Addr) bool {
	if len(t.allow) == 0 {
		return true
	}
	ip := addrOf(from)
	for _, p := range t.allow {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// addrOf is the IP of an address, without the form IPv4-in-IPv6.
func addrOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// refused counts and logs a refusal.
func (t *transport) refused(from net.Addr, reason refusal, label string) {
	addr := ""
	if from != nil {
		addr = from.String()
	}
	t.stats.refuse(reason, addr)
	switch reason {
	case refuseLabel:
		t.say(event{kind: sayLabel, msg: "gossip of a cluster of another name is refused", args: []any{"from", addr, "its cluster.name", clean(label), "ours", t.label}})
	case refuseAddress:
		t.say(event{kind: sayAllow, msg: "gossip from outside gossip.allow is refused", args: []any{"from", addr}})
	case refuseBusy:
		t.say(event{kind: sayBusy, msg: "too many gossip connections, or too many bytes by them: one is refused", args: []any{"from", addr, "limit", maxStreams, "limit per host", maxStreamsHost, "limit of bytes", maxStreamBytes}})
	}
}

// A stream is an open connection, in the books until it closes.
type stream struct {
	net.Conn
	t      *transport
	from   netip.Addr // of one that others opened
	taken  int        // bytes read of it; guarded by transport.mu
	closed atomic.Bool

	// This is for a stream that we opened: the first bytes of the answer.
	dialed bool
	first  []byte
	fresh  bool // nothing was read yet
}

// track enters a connection into the books; ok is false if there are too many from
// others, or if we are closing. A connection that is let in only to be refused counts
// as well, for its time.
func (t *transport) track(conn net.Conn) (*stream, bool) {
	s := &stream{Conn: conn, t: t, from: addrOf(conn.RemoteAddr())}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil || t.total >= maxStreams || t.inside[s.from] >= maxStreamsHost {
		return nil, false
	}
	t.total++
	t.inside[s.from]++
	t.conns[conn] = struct{}{}
	return s, true
}

func (s *stream) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	t := s.t
	t.mu.Lock()
	delete(t.conns, s.Conn)
	if !s.dialed {
		t.total--
		if t.inside[s.from]--; t.inside[s.from] == 0 {
			delete(t.inside, s.from)
		}
		t.all -= s.taken
		if t.taken[s.from] -= s.taken; t.taken[s.from] <= 0 {
			delete(t.taken, s.from)
		}
		s.taken = 0
	}
	t.mu.Unlock()
	return s.Conn.Close()
}

// take counts n bytes that came in by a stream that others opened, or reports that
// they are too many, because the other end has not authenticated itself yet.
func (s *stream) take(n int) error {
	t := s.t
	t.mu.Lock()
	if s.closed.Load() {
		t.mu.Unlock()
		return net.ErrClosed
	}
	s.taken += n
	t.taken[s.from] += n
	t.all += n
	over := s.taken > maxStreamBytes || t.taken[s.from] > maxHostBytes || t.all > maxAllBytes
	t.mu.Unlock()
	if over {
		t.refused(s.RemoteAddr(), refuseBusy, "")
		return ErrBusy
	}
	return nil
}

// Read returns a refusal of the other end as an error, if the stream begins with one.
func (s *stream) Read(b []byte) (int, error) {
	if !s.dialed {
		n, err := s.Conn.Read(b)
		if n > 0 {
			if over := s.take(n); over != nil {
				return 0, over
			}
		}
		return n, err
	}
	if s.fresh {
		s.fresh = false
		var head [1]byte
		if n, err := s.Conn.Read(head[:]); n == 0 {
			return 0, err
		}
		if head[0] == refusalMark {
			return 0, readRefusal(s.Conn)
		}
		s.first = head[:]
	}
	if len(s.first) > 0 {
		n := copy(b, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	return s.Conn.Read(b)
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	return t.inner.FinalAdvertiseAddr(ip, port)
}

// WriteTo implements memberlist.Transport.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.inner.WriteTo(b, addr)
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.inner.WriteToAddress(b, addr)
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	var conn net.Conn
	var err error
	if _, sockets := t.inner.(*memberlist.NetTransport); sockets {
		d := net.Dialer{Timeout: timeout}
		conn, err = d.DialContext(t.ctx, "tcp", addr.Addr) // ends with Shutdown, too
	} else {
		conn, err = t.inner.DialAddressTimeout(addr, timeout)
	}
	if err != nil {
		return nil, err
	}
	// memberlist sets no deadline where it sends our messages.
	_ = conn.SetDeadline(time.Now().Add(streamTime))
	s := &stream{Conn: conn, t: t, dialed: true, fresh: true}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		_ = conn.Close()
		return nil, ErrClosed
	}
	t.conns[conn] = struct{}{}
	return s, nil
}

// Shutdown implements memberlist.Transport: when it returns, no goroutine of
// ours is left, and all streams are closed.
func (t *transport) Shutdown() error {
	t.once.Do(func() {
		t.cancel()
		_ = t.inner.Shutdown()
		close(t.gone)
		t.mu.Lock()
		for conn := range t.conns {
			_ = conn.Close()
		}
		t.mu.Unlock()
		t.wg.Wait()
	})
	return nil
}
