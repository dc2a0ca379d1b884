package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// doctor learns about gossip by asking: it asks the gossip port of another node
// whether that node would gossip with this machine, and in a session the node itself
// by which keys it gossips and which nodes do not answer it by UDP. It takes no part
// in the cluster, and does not speak the gossip library's protocol.

// gossipPeer examines the gossip port of another node: its name, that TCP passes, and
// that the cluster is the same there.
func (e *peerExam) gossipPeer(ctx context.Context, addr string) {
	const name = "gossip with"
	if !e.resolve(ctx, name, addr) {
		return
	}
	if e.set.Gossip == "" {
		e.skip(name, addr, "this machine does not gossip (gossip.bind is empty)")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		e.badDial(name, addr+"/tcp", "the gossip port (gossip.bind there)", err)
		return
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	if _, err = c.Write(question(e.set.Cluster)); err == nil {
		// No more is sent, so a node of another cluster need not wait for it.
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
	}
	a, err := readAnswer(c)
	switch {
	case err == nil && a.reason == accepted:
		e.ok(name, addr, "a node of the cluster %s takes gossip of this machine by TCP; a session with it tells whether the keys are the same", e.set.Cluster)
	case err == nil:
		e.gossipRefused(addr, a)
	case errors.Is(err, errAnswer):
		e.bad(Fail, name, addr, CodeNotOurs, "is that the gossip port of a kvserver?", "it answers with something else")
	default:
		e.bad(Fail, name, addr, CodeNotOurs, "is that the gossip port of a kvserver?", "it takes the connection and does not answer: %v", err)
	}
}

// gossipRefused reports why a node of the cluster refuses this one.
func (e *peerExam) gossipRefused(addr string, no answer) {
	const name = "gossip with"
	switch no.reason {
	case refusedLabel:
		its := fmt.Sprintf("the cluster %q", no.text)
		if no.text == "" { // it tells the cluster's name only to addresses in its gossip.allow
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

// gossipOf compares the gossip of a node, by its own word in a session, with this
// machine's.
func (e *peerExam) gossipOf(ctx context.Context, p Peer, addr string) {
	const name = "gossip of"
	g, ok := p.(Gossiping)
	if !ok || !e.set.Node || e.set.Gossip == "" || e.set.NoGossip != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Patience)
	defer cancel()
	its, err := g.Gossip(ctx)
	if err != nil {
		e.skip(name, addr, "it does not tell of it: %v", err)
		return
	}
	var mine []string
	for _, key := range e.set.GossipKeys {
		mine = append(mine, cluster.GossipKeyDigest(key))
	}
	do := "put the same keys into gossip.key_file (RDMAKV_GOSSIP_KEY) of both; kvclient admin gossip-keys list shows digests of those in use"
	switch {
	case its.Cluster != e.set.Cluster:
		e.bad(Fail, name, addr, CodeGossipLabel, "the same cluster.name on all nodes of a cluster; or correct servers", "it is of the cluster %q, this machine of %q", told(its.Cluster), e.set.Cluster)
	case len(its.Keys) > 0 && len(mine) == 0:
		e.bad(Fail, name, addr, CodeGossipKey, do, "it seals its gossip with a key, and here is none")
	case len(its.Keys) == 0 && len(mine) > 0:
		e.bad(Fail, name, addr, CodeGossipKey, "give it the key, too, or run both insecure", "here is a gossip key, and it has none")
	case len(mine) > 0 && !slices.Contains(mine, its.Keys[0]):
		e.bad(Fail, name, addr, CodeGossipKey, do, "wrong gossip key: none of the %d keys here is %s, by which it seals", len(mine), told(its.Keys[0]))
	case len(mine) > 0 && !slices.Contains(its.Keys, mine[0]):
		e.bad(Fail, name, addr, CodeGossipKey, do, "wrong gossip key: it has not the key %s, by which this machine seals", mine[0])
	default:
		e.ok(name, addr, "the gossip keys and cluster.name (%s) are the same there", e.set.Cluster)
	}
	cut := slices.Compact(slices.Sorted(slices.Values(its.TCPOnly)))
	if !e.self[addr] { // what others do not answer it is for them to find
		cut = slices.DeleteFunc(cut, func(node string) bool { return node != e.set.NodeID })
	}
	for i, node := range cut {
		more := ""
		if i == maxCut-1 && len(cut) > maxCut {
			more = fmt.Sprintf("; so do %d others", len(cut)-maxCut)
		}
		e.bad(Fail, name, addr, CodeGossipUDP, "open UDP as well as TCP for the gossip port, in both directions, on both machines and between them; most of gossip is UDP",
			"node %s answers node %s by TCP, and not by UDP%s", told(node), told(its.Node), more)
		if i == maxCut-1 {
			return
		}
	}
}

// maxCut bounds the findings about nodes that do not answer one node by UDP: its
// answer may name any number.
const maxCut = 32

// told is a name that another node tells, fit for a line.
func told(name string) string {
	if len(name) > 80 {
		name = name[:80] + "..."
	}
	return OneLine(name)
}

// The question and its answer are those of package membership (refusal.go):
//
//	┌─────┬─────┬────────┬────────┬──────┐
//	│ 0xE7│ RKV │ reason │ length │ text │
//	└─────┴─────┴────────┴────────┴──────┘
//
// A question has reason 0 and this machine's cluster.name.
type answer struct {
	reason byte
	text   string // for refusedLabel: the peer's own cluster.name
}

const (
	answerMark = "\xe7RKV"

	accepted     = 0
	refusedLabel = 1
	refusedAllow = 2
	refusedBusy  = 3
)

// errAnswer: the answer does not come from a node of rdmakv.
var errAnswer = errors.New("no answer of a kvserver")

func question(label string) []byte {
	return append(append([]byte(answerMark), accepted, byte(len(label))), label...)
}

// readAnswer reads one answer, of at most 261 bytes.
func readAnswer(r io.Reader) (answer, error) {
	var head [len(answerMark) + 2]byte
	n, err := io.ReadFull(r, head[:])
	if n > 0 && string(head[:min(n, len(answerMark))]) != answerMark[:min(n, len(answerMark))] {
		return answer{}, errAnswer
	}
	if err != nil {
		return answer{}, err
	}
	text := make([]byte, head[len(head)-1])
	if _, err := io.ReadFull(r, text); err != nil {
		return answer{}, err
	}
	return answer{head[len(answerMark)], OneLine(string(text))}, nil
}
