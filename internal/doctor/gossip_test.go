package doctor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// gossiping is a session with a node that tells of its gossip.
type gossiping struct {
	*fakePeer
	says Gossip
	err  error
}

func (g gossiping) Gossip(context.Context) (Gossip, error) { return g.says, g.err }

// TestGossip: every difference between a node's answer and this machine is named, and
// nothing else.
func TestGossip(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	for _, c := range []struct {
		name         string
		label, mine  string
		theirs, ours [][]byte
		tcpOnly      []string
		code, text   string
	}{
		{"all is the same", "prod", "prod", [][]byte{one}, [][]byte{one}, nil, "", ""},
		{"while keys change", "prod", "prod", [][]byte{two, one}, [][]byte{one, two}, nil, "", ""},
		{"insecure", "rdmakv", "rdmakv", nil, nil, nil, "", ""},
		{"wrong key", "prod", "prod", [][]byte{one}, [][]byte{two}, nil, CodeGossipKey, "wrong gossip key"},
		{"its key is not here", "prod", "prod", [][]byte{one, two}, [][]byte{two}, nil, CodeGossipKey, "by which it seals"},
		{"our key is not there", "prod", "prod", [][]byte{one}, [][]byte{two, one}, nil, CodeGossipKey, "by which this machine seals"},
		{"no key there", "prod", "prod", nil, [][]byte{one}, nil, CodeGossipKey, "it has none"},
		{"no key here", "prod", "prod", [][]byte{one}, nil, nil, CodeGossipKey, "here is none"},
		{"another cluster", "prod", "test", [][]byte{one}, [][]byte{one}, nil, CodeGossipLabel, `of the cluster "prod"`},
		{"UDP does not pass", "prod", "prod", [][]byte{one}, [][]byte{one}, []string{"n1"}, CodeGossipUDP, "node n1 answers node n2 by TCP, and not by UDP"},
		{"UDP of others", "prod", "prod", [][]byte{one}, [][]byte{one}, []string{"n3"}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			says := Gossip{Node: "n2", Cluster: c.label, TCPOnly: c.tcpOnly}
			for _, key := range c.theirs {
				says.Keys = append(says.Keys, cluster.GossipKeyDigest(key))
			}
			r.host.Dial = func(context.Context, string) (Peer, error) { return gossiping{r.peer, says, nil}, nil }
			r.set.NodeID, r.set.Gossip, r.set.Cluster, r.set.GossipKeys = "n1", "127.0.0.1:0", c.mine, c.ours
			report, failed, _ := r.run()
			switch {
			case c.code == "" && (len(failed) > 0 || !strings.Contains(report.Text(), "the gossip keys and cluster.name ("+c.mine+") are the same there")):
				t.Errorf("failed: %v\n%s", failed, report.Text())
			case c.code != "" && (len(failed) != 1 || failed[0] != c.code || !strings.Contains(text(report, c.code), c.text)):
				t.Errorf("failed: %v, want %s\n%s", failed, c.code, report.Text())
			}
		})
	}
	// A node that runs here tells of all the nodes that do not answer it; one that
	// tells nothing is no failure.
	r := newRig(t)
	r.host.Dial = func(context.Context, string) (Peer, error) {
		return gossiping{fakePeer: r.peer, err: errors.New("not allowed")}, nil
	}
	r.set.Gossip, r.set.Cluster = "127.0.0.1:0", "prod"
	if report, failed, _ := r.run(); len(failed) > 0 || !strings.Contains(report.Text(), "not allowed") {
		t.Errorf("failed: %v\n%s", failed, report.Text())
	}
	e := &peerExam{exam: &exam{Host: r.host, set: r.set}, self: map[string]bool{"127.0.0.1:7400": true}}
	e.gossipOf(t.Context(), gossiping{r.peer, Gossip{Node: "n1", Cluster: "prod", TCPOnly: []string{"n3"}}, nil}, "127.0.0.1:7400")
	if !strings.Contains(text(&e.report, CodeGossipUDP), "node n3 answers node n1") {
		t.Errorf("%s", e.report.Text())
	}
}

// TestGossipWays: ports of a node, and ports that are closed, silent or of another
// program.
func TestGossipWays(t *testing.T) {
	listen := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	key := bytes.Repeat([]byte{1}, 32)
	// A program that listens there and never accepts: the port is known, and free
	// again at once.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	web := listen(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	silent := listen(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	says := func(b string) string { return listen(func(c net.Conn) { _, _ = io.WriteString(c, b) }) }
	node := listen(func(c net.Conn) { // answers as nodes do, if it is asked as they are
		if b, err := io.ReadAll(c); err == nil && string(b) == "\xe7RKV\x00\x04prod" {
			_, _ = io.WriteString(c, "\xe7RKV\x00\x00")
		}
	})
	for name, c := range map[string]struct{ addr, code string }{
		"label":      {says("\xe7RKV\x01\x04test"), CodeGossipLabel},
		"nameless":   {says("\xe7RKV\x01\x00"), CodeGossipLabel},
		"allow":      {says("\xe7RKV\x02\x09127.0.0.1"), CodeGossipAllow},
		"unknown":    {says("\xe7RKV\x09\x00"), CodeNotOurs},
		"closed":     {closed, CodeRefused},
		"node":       {node, ""},
		"web server": {web, CodeNotOurs},
		"silent":     {silent, CodeNotOurs},
		"cut short":  {says("\xe7RK"), CodeNotOurs},
		"no port":    {"127.0.0.1", CodeConfig},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.set.Gossip, r.set.Cluster, r.set.GossipKeys, r.set.Join, r.set.Peers = "127.0.0.1:0", "prod", [][]byte{key}, []string{c.addr}, nil
			if report, failed, _ := r.run(); c.code == "" && len(failed) > 0 || c.code != "" && (len(failed) != 1 || failed[0] != c.code) {
				t.Errorf("failed: %v, want %s\n%s", failed, c.code, report.Text())
			}
		})
	}
	r := newRig(t)
	r.set.Gossip, r.set.Join, r.set.Peers = "127.0.0.1:0", []string{"kv9.invalid:7946"}, nil
	r.host.Resolve = func(context.Context, string) ([]netip.Addr, error) { return nil, &noSuchHost }
	if report, failed, _ := r.run(); len(failed) != 1 || failed[0] != CodeName {
		t.Errorf("failed: %v\n%s", failed, report.Text())
	}
}

// TestSeedIsSelf: lists of seeds have this node in them, too.
func TestSeedIsSelf(t *testing.T) {
	for _, c := range []struct {
		bind, advertise, seed string
		want                  bool
	}{
		{"10.0.0.1:7946", "", "10.0.0.1:7946", true},
		{"10.0.0.1:7946", "kv1.example:7946", "kv1.example:7946", true},
		{"127.0.0.1:7946", "", "kv1.example:7946", true}, // resolves so
		{"0.0.0.0:7946", "", "kv1.example:7946", true},
		{":7946", "", "127.0.0.1:7946", true},
		{"0.0.0.0:7946", "", "192.0.2.1:7946", false},
		{"127.0.0.2:7946", "", "127.0.0.1:7946", false},
		{"127.0.0.1:7946", "", "127.0.0.1:7947", false},
		{"", "", "127.0.0.1:7946", false},
	} {
		r := newRig(t)
		r.set.Gossip, r.set.Advertise = c.bind, c.advertise
		e := &exam{Host: r.host, set: r.set}
		if got := e.isSelf(t.Context(), c.seed); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// FuzzGossipAnswer: the answer of an unknown program is bounded, is one line, and is
// taken for an answer only if it begins as one.
func FuzzGossipAnswer(f *testing.F) {
	for _, b := range []string{"\xe7RKV\x00\x00", "\xe7RKV\x01\x04prod", "\xe7RKV\x02\xffcut short", "\xe7RKV\x01\x03a\nb", "HTTP/1.1 400 Bad Request", "\xe7"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAnswer(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, []byte("\xe7RKV")) {
			t.Fatalf("%q is an answer: %+v", b, a)
		}
		if len(a.text) > 4*255 || strings.ContainsAny(a.text, "\n\x1b") {
			t.Fatalf("%q", a.text)
		}
	})
}
