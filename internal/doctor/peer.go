package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/rdma/iwarp"
	"github.com/rdmakv/rdmakv/store/layout"
)

const (
	// pings of each kind that a session is tried with.
	pings = 8
	// largeRead is many packets of any MTU, and many segments of TCP.
	largeRead = 64 << 10
)

// peer examines the way to a node's data address, and a session with it, as a
// client makes one. If the node is of a cluster, it returns where the other
// nodes of it are.
func (e *peerExam) peer(ctx context.Context, addr string) (others []string) {
	if !e.resolve(ctx, "peer", addr) {
		return nil
	}
	if e.set.Fabric != "verbs" && e.set.Fabric != "shm" && !e.set.RequireRDMA && !e.peerTCP(ctx, addr) {
		return nil
	}
	dial, cancel := context.WithTimeout(ctx, 2*e.Patience)
	p, err := e.Dial(dial, addr)
	cancel()
	if err != nil {
		e.badSession(addr, err)
		return nil
	}
	defer p.Close()
	info := p.Server()
	e.session(addr, info)
	others = e.others(ctx, p, addr)
	e.gossipOf(ctx, p, addr)
	if !e.pinged(ctx, "send", addr, CodeSend, p.Ping,
		"the session stands, and a message is not answered", "is the node stopped (SIGSTOP), or its machine without processor? kvclient stats, its log") {
		return others
	}
	if !e.pinged(ctx, "read", addr, CodeRead, p.PingRead,
		"messages are answered, and one-sided READs of the same session fail", "the tenant may have no one-sided right; else an rkey or a QP without REMOTE_READ: its log, and rdma statistic of both devices") {
		return others
	}
	view := e.large(ctx, p, addr, info)
	if view != nil {
		e.peerClock(ctx, p, addr, view)
	}
	return others
}

// others asks a node for its cluster: an address of each other node that owns
// shards or is alive, the one that it prefers.
func (e *peerExam) others(ctx context.Context, p Peer, addr string) (list []string) {
	c, ok := p.(Clustered)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	info, err := c.Cluster(ctx)
	if err != nil || !info.Clustered {
		return nil
	}
	if e.self[addr] && info.Teller != e.set.NodeID {
		e.bad(Fail, "port", addr, CodePortInUse, "stop that one, or another port (listen)", "it is held by node %s of %s, and not by node %s", info.Teller, info.Name, e.set.NodeID)
	}
	e.replicas(ctx, p, addr, &info)
	for _, n := range info.Nodes {
		if n.ID == info.Teller || n.Weight == 0 && n.State != "alive" {
			continue
		}
		if len(n.Endpoints) == 0 {
			e.bad(Warn, "node", n.ID, CodeUnknown, "is it up? Its gossip port: kvclient doctor there", "%s knows it by the shard map and has no address of it: gossip has not told", addr)
			continue
		}
		list = append(list, e.endpoint(n.Endpoints))
	}
	e.ok("cluster", addr, "node %s of %s, which has %d nodes", info.Teller, info.Name, len(info.Nodes))
	return list
}

// endpoint is where a client on this machine connects: a device's address, if
// there is a device here to reach it by, and one of iwarp otherwise.
func (e *peerExam) endpoint(list []admin.Endpoint) string {
	want := "iwarp"
	if e.set.Fabric == "verbs" || e.set.Fabric != "iwarp" && len(e.names("sys/class/infiniband")) > 0 {
		want = "verbs"
	}
	for _, p := range list {
		if p.Fabric == want {
			return p.Addr
		}
	}
	return list[0].Addr
}

// peerTCP tries the port by TCP, which the fabric iwarp needs, and which tells
// a closed port from a blocked one.
func (e *peerExam) peerTCP(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.Close()
		return true
	}
	if errors.Is(err, syscall.ECONNREFUSED) && len(e.names("sys/class/infiniband")) > 0 {
		return true // it may listen by verbs alone
	}
	e.badDial("peer", addr+"/tcp", "the data port (listen there)", err)
	return false
}

// session says over what it runs, and finds a fall-back that would go
// unnoticed.
func (e *peerExam) session(addr string, s admin.ServerInfo) {
	text := fmt.Sprintf("store %s, %s/%s", s.ID, s.Fabric, s.Device)
	if s.GID != "" {
		text += fmt.Sprintf(", GID %s (%s, index %d), peer %s, MTU %d", s.GID, s.GIDType, s.GIDIndex, s.PeerGID, s.MTU)
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	if first, seen := e.nodes[s.Incarnation]; seen && first != addr {
		e.bad(Warn, "session", addr, CodeSamePeer, "correct servers: if two nodes were meant", "%s: that is the node at %s, too", text, first)
	} else if mine := e.devices.active[fmt.Sprintf("%s port %d", s.Device, s.Port)]; s.MTU > 0 && mine > s.MTU && e.set.PathMTU == 0 {
		e.bad(Warn, "session", addr, CodeMTUMismatch, "the same MTU on both ends and the switches between: kvclient fabric devices on both",
			"%s: the port here has an MTU of %d, the connection came to %d", text, mine, s.MTU)
	} else if s.Software && len(s.Skipped) > 0 && len(e.names("sys/class/infiniband")) > 0 {
		not := ""
		for _, sk := range s.Skipped {
			not += "; not " + sk.Fabric + ": " + sk.Reason
		}
		e.bad(Warn, "session", addr, CodeSlower, "dial the address of the device's interface; require_rdma: true makes this an error", "%s%s", text, not)
	} else {
		e.ok("session", addr, "%s", text)
	}
	e.nodes[s.Incarnation] = addr
}

// pinged takes one of the two measures of kvclient ping.
func (e *peerExam) pinged(ctx context.Context, name, addr, code string, ping func(context.Context) (time.Duration, error), text, do string) bool {
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	best := time.Duration(1<<63 - 1)
	for range pings {
		took, err := ping(ctx)
		if errors.Is(err, client.ErrUnsupported) {
			e.skip(name, addr, "this tenant has no one-sided access: all its gets are SENDs")
			return false
		}
		if err != nil {
			e.bad(Fail, name, addr, code, do, "%s: %v", text, err)
			return false
		}
		best = min(best, took)
	}
	e.ok(name, addr, "%d of %d, the fastest in %v", pings, pings, best.Round(100*time.Nanosecond))
	return true
}

// large READs a region in pieces of many packets: where the path carries less
// than both ends believe, small ones pass and these do not.
func (e *peerExam) large(ctx context.Context, p Peer, addr string, info admin.ServerInfo) *layout.View {
	ctx, cancel := context.WithTimeout(ctx, 2*e.Patience)
	defer cancel()
	view, err := p.View(ctx)
	if err != nil || len(view.Regions) == 0 {
		e.skip("large read", addr, "no region to read: %v", err)
		return nil
	}
	r := view.Regions[0]
	n := int(min(largeRead, r.Length)) &^ 7
	begin := time.Now()
	if err := p.ReadRegion(ctx, r.ID, 0, make([]byte, n)); err != nil {
		e.bad(Fail, "large read", addr, CodePathMTU,
			fmt.Sprintf("small READs pass and this one does not: one end, or a switch between, carries less than the MTU in use (%s). ping -M do -s 8972 %s finds the size; then the same MTU everywhere, or expert.path_mtu: 1024 on all ends",
				mtuText(info.MTU), hostOf(addr)),
			"a READ of %s: %v", Bytes(uint64(n)), err)
		return view
	}
	e.ok("large read", addr, "%s in %v", Bytes(uint64(n)), time.Since(begin).Round(time.Microsecond))
	return view
}

func mtuText(n int) string {
	if n == 0 {
		return "of the interface"
	}
	return fmt.Sprint(n)
}

// badSession names what keeps a session from being made, when the port itself
// can be reached.
func (e *peerExam) badSession(addr string, err error) {
	const name = "session"
	say := func(code, do, text string) { e.bad(Fail, name, addr, code, do, "%s: %v", text, err) }
	switch {
	case errors.Is(err, client.ErrAuth):
		say(CodeSecret, "the same secret_file (or RDMAKV_SECRET) and tenant on both ends: compare sha256sum of the files; kvserver logs whom it refuses, and why", "wrong secret or tenant")
	case errors.Is(err, iwarp.ErrTLS):
		say(CodeTLS, "tls.cert, tls.key and tls.ca on both ends, or on none; certificates signed by a CA that the other end has, names as they are dialed", "TLS does not come about")
	case errors.Is(err, client.ErrVersion):
		say(CodeVersion, "the same release on both ends; kvclient version, kvserver version", "no protocol version in common")
	case errors.Is(err, client.ErrNoRDMA):
		say(CodeNoRDMA, "dial the address of the device's interface; or require_rdma: false", "require_rdma is set, and no device reaches it")
	case errors.Is(err, client.ErrProtocol):
		say(CodeNotOurs, "is that the data port of a kvserver (listen), and not its admin or gossip port?", "something else answers there")
	case isTimeout(err):
		say(CodeSession, "is it stopped or starting (its log, /readyz)? Is that the data port of a kvserver? By verbs: is 4791/udp open both ways, is rdma_ucm loaded there?",
			"the port takes connections, and no session comes of it in time")
	default:
		say(CodeSession, "its log says what it refused; kvclient ping shows the same from here", "no session")
	}
}
