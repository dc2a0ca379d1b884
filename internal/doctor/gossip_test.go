package doctor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// member starts a real member of memberlist, as strict as ours are.
func member(t *testing.T, label string, keys ...[]byte) (addr string) {
	t.Helper()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label = "n2", label
	c.BindAddr, c.BindPort, c.AdvertisePort = "127.0.0.1", 0, 0
	c.RequireNodeNames, c.EnableCompression = true, false
	c.LogOutput = io.Discard
	if len(keys) > 0 {
		ring, err := memberlist.NewKeyring(keys, keys[0])
		if err != nil {
			t.Fatal(err)
		}
		c.Keyring = ring
	}
	m, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() })
	return m.LocalNode().Address()
}

// TestGossip asks real members: what differs is named, and nothing else.
func TestGossip(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	for _, c := range []struct {
		name         string
		label, mine  string
		theirs, ours [][]byte
		code, text   string
	}{
		{"all is the same", "prod", "prod", [][]byte{one}, [][]byte{one}, "", ""},
		{"while keys change", "prod", "prod", [][]byte{two, one}, [][]byte{one, two}, "", ""},
		{"insecure", "rdmakv", "rdmakv", nil, nil, "", ""},
		{"no label", "", "", [][]byte{one}, [][]byte{one}, "", ""},
		{"wrong key", "prod", "prod", [][]byte{one}, [][]byte{two}, CodeGossipKey, "wrong gossip key"},
		{"no key there", "prod", "prod", nil, [][]byte{one}, CodeGossipKey, "it has none"},
		{"no key here", "prod", "prod", [][]byte{one}, nil, CodeGossipKey, "here is none"},
		{"another cluster", "prod", "test", [][]byte{one}, [][]byte{one}, CodeGossipLabel, "another cluster.name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := member(t, c.label, c.theirs...)
			r := newRig(t)
			r.set.Gossip, r.set.Cluster, r.set.GossipKeys, r.set.Join, r.set.Peers = "127.0.0.1:0", c.mine, c.ours, []string{addr}, nil
			report, failed, _ := r.run()
			switch {
			case c.code == "" && (len(failed) > 0 || !strings.Contains(report.Text(), "answers by TCP and UDP")):
				t.Errorf("failed: %v\n%s", failed, report.Text())
			case c.code != "" && (len(failed) != 1 || failed[0] != c.code || !strings.Contains(text(report, c.code), c.text)):
				t.Errorf("failed: %v, want %s\n%s", failed, c.code, report.Text())
			}
		})
	}
}

// TestGossipWays: ports that are closed, silent, somebody else's, or pass TCP
// alone.
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
	// Somebody who listens there and takes nobody: the port is known, and free
	// again at once.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	real := member(t, "prod", key)
	tcpOnly := listen(func(c net.Conn) { // hands TCP on to a member, and no UDP
		up, err := net.Dial("tcp", real)
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(up, c)
			_ = up.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(c, up)
		_ = up.Close()
	})
	web := listen(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	says := func(b string) string { return listen(func(c net.Conn) { _, _ = io.WriteString(c, b) }) }
	for name, c := range map[string]struct{ addr, code string }{
		"label":      {says("\xe7RKV\x01\x04test"), CodeGossipLabel},
		"nameless":   {says("\xe7RKV\x01\x00"), CodeGossipLabel},
		"allow":      {says("\xe7RKV\x02\x09127.0.0.1"), CodeGossipAllow},
		"unknown":    {says("\xe7RKV\x09\x00"), CodeNotOurs},
		"closed":     {closed, CodeRefused},
		"TCP alone":  {tcpOnly, CodeGossipUDP},
		"web server": {web, CodeNotOurs},
		"no port":    {"127.0.0.1", CodeConfig},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.host.Patience = time.Second // that UDP is silent is found out by waiting
			r.set.Gossip, r.set.Cluster, r.set.GossipKeys, r.set.Join, r.set.Peers = "127.0.0.1:0", "prod", [][]byte{key}, []string{c.addr}, nil
			if report, failed, _ := r.run(); len(failed) != 1 || failed[0] != c.code {
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

// FuzzGossipAnswer: what a stranger answers is bounded, and never an ack that
// was not sealed with our key.
func FuzzGossipAnswer(f *testing.F) {
	g := &gossipCodec{label: "prod", keys: [][]byte{bytes.Repeat([]byte{1}, 32)}}
	packet, err := g.packet(7)
	if err != nil {
		f.Fatal(err)
	}
	stream, err := g.stream(7)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packet)
	f.Add(stream[len(g.head()):])
	f.Add(append([]byte{gossipSealed}, binary.BigEndian.AppendUint32(nil, 1<<31)...))
	f.Add([]byte{gossipAck, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 7})
	f.Add([]byte{gossipErr, 0x81, 0xa5, 'E', 'r', 'r', 'o', 'r', 0xd9, 3, 'n', 'o', '\n'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if msg, err := g.fromPacket(bytes.Clone(b)); err == nil && hasAck(msg, 7) {
			t.Fatal("an ack that nobody sealed")
		}
		msg, err := g.fromStream(bytes.NewReader(b))
		if len(msg) > maxAnswer+1 {
			t.Fatalf("%d bytes", len(msg))
		}
		if err == nil && len(b) > 0 && b[0] == gossipSealed && isAck(msg, 7) {
			t.Fatal("an ack that nobody sealed")
		}
		if text, ok := errText(msg); ok && strings.ContainsAny(text, "\n\x1b") {
			t.Fatalf("%q", text)
		}
		if errors.Is(err, errSealed) && len(msg) > 0 {
			t.Fatal("bytes and an error")
		}
	})
}
