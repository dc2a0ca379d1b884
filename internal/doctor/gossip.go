package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// gossipPeer examines the gossip port of another node: its name, that TCP and
// UDP pass, and that key and label are the same there.
func (e *exam) gossipPeer(ctx context.Context, addr string) {
	const name = "gossip with"
	if !e.resolve(ctx, name, addr) {
		return
	}
	if e.set.Gossip == "" {
		e.skip(name, addr, "this machine does not gossip (gossip.bind is empty)")
		return
	}
	g := &gossipCodec{label: e.set.Cluster, keys: e.set.GossipKeys}
	if !e.gossipTCP(ctx, g, addr) {
		return
	}
	if e.gossipUDP(ctx, g, addr) {
		e.ok(name, addr, "answers by TCP and UDP; key and cluster.name (%s) are the same there", e.set.Cluster)
		return
	}
	e.bad(Fail, name, addr, CodeGossipUDP, "open UDP as well as TCP for the gossip port, in both directions, on both machines and between them; most of gossip is UDP",
		"it answers by TCP, and by UDP there is no answer to several packets")
}

func (e *exam) gossipTCP(ctx context.Context, g *gossipCodec, addr string) (passes bool) {
	const name = "gossip with"
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		e.badDial(name, addr+"/tcp", "the gossip port (gossip.bind there)", err)
		return false
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	seq := rand.Uint32()
	out, err := g.stream(seq)
	if err == nil {
		_, err = c.Write(out)
	}
	if err != nil {
		e.bad(Fail, name, addr, CodeGossipKey, "", "a ping cannot be sent: %v", err)
		return false
	}
	// What is ours has been said; a peer of another key waits for more of it,
	// because it takes a sealed message for the head of a plain one.
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
	msg, err := g.fromStream(c)
	said, isErr := errText(msg)
	no, refused := parseRefusal(msg)
	switch {
	case err == nil && refused:
		e.gossipRefused(addr, no)
	case err == nil && isAck(msg, seq):
		return true
	case errors.Is(err, errSealed):
		do := "put the same keys into gossip.key_file (RDMAKV_GOSSIP_KEY) of both; kvclient admin gossip-keys list shows digests of those in use"
		if len(g.keys) == 0 {
			e.bad(Fail, name, addr, CodeGossipKey, do, "it seals its gossip with a key, and here is none")
		} else {
			e.bad(Fail, name, addr, CodeGossipKey, do, "wrong gossip key: it answers with a message that none of the %d keys here opens", len(g.keys))
		}
	case err == nil && isErr && len(g.keys) > 0:
		e.bad(Fail, name, addr, CodeGossipKey, "give it the key, too, or run both insecure", "here is a gossip key, and it has none: it says %q", said)
	case err == nil && isErr:
		e.bad(Fail, name, addr, CodeGossipKey, "put its keys into gossip.key_file", "it refuses gossip that is not sealed: it says %q", said)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.bad(Fail, name, addr, CodeGossipLabel, "compare cluster.name on both nodes, and whether gossip.allow there has this machine's address; its log says which",
			"it takes the connection and closes it without a word: it is of another cluster.name than %q, or is no node", g.label)
	case err != nil:
		e.bad(Fail, name, addr, CodeNotOurs, "is that the gossip port of a kvserver?", "it takes the connection and does not answer a ping: %v", err)
	default:
		e.bad(Fail, name, addr, CodeNotOurs, "is that the gossip port of a kvserver?", "it answers a ping with something else (%d bytes)", len(msg))
	}
	return false
}

// gossipRefused names what a node of ours says against us.
func (e *exam) gossipRefused(addr string, no refusal) {
	const name = "gossip with"
	switch no.reason {
	case refusedLabel:
		its := fmt.Sprintf("the cluster %q", no.text)
		if no.text == "" { // it tells those alone whom its gossip.allow has
			its = "another cluster, whose name stands in its log"
		}
		e.bad(Fail, name, addr, CodeGossipLabel, "the same cluster.name on all nodes of a cluster; or correct gossip.join", "it is of %s, this machine of %q", its, e.set.Cluster)
	case refusedAllow:
		e.bad(Fail, name, addr, CodeGossipAllow, "add this machine's network to gossip.allow there", "it does not gossip with this machine's address: %q", no.text)
	case refusedBusy:
		e.bad(Warn, name, addr, CodeGossipBusy, "try again; if it stays so, look for who makes the connections there (ss -tn)", "it has too many gossip connections just now: %q", no.text)
	default:
		e.bad(Fail, name, addr, CodeNotOurs, "compare the releases", "it refuses for reason %d, which this release does not know: %q", no.reason, no.text)
	}
}

// gossipUDP sends pings until one is answered. A packet may be lost without
// anything being wrong; several hardly.
func (e *exam) gossipUDP(ctx context.Context, g *gossipCodec, addr string) bool {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	const packets = 5
	buf := make([]byte, 64<<10)
	for range packets {
		seq := rand.Uint32()
		out, err := g.packet(seq)
		if err != nil {
			return false
		}
		if _, err := c.Write(out); err != nil && ctx.Err() != nil {
			return false
		}
		_ = c.SetReadDeadline(time.Now().Add(e.Patience / packets))
		for {
			n, err := c.Read(buf)
			if err != nil {
				break // no answer in time, or the port is closed: try again
			}
			if msg, err := g.fromPacket(bytes.Clone(buf[:n])); err == nil && hasAck(msg, seq) {
				return true
			}
		}
	}
	return false
}
