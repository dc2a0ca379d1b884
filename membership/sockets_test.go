package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// onLoopback starts a node on real sockets.
func onLoopback(t *testing.T, id string, edit func(*Config)) *node {
	t.Helper()
	log := &capture{}
	cfg := Config{
		NodeID: id, Cluster: "demo", Keys: [][]byte{keyA}, Profile: Fast, Bind: "127.0.0.1:0",
		Self:   cluster.Member{Incarnation: cluster.Hash(id)},
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if edit != nil {
		edit(&cfg)
	}
	m, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := &node{Members: m, log: log}
	t.Cleanup(func() {
		_ = m.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%.8000s", id, log)
		}
	})
	return x
}

func (n *node) addr() string { return n.View().Member(n.cfg.NodeID).Gossip }

func TestRealSockets(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", nil)
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	c := onLoopback(t, "c", func(c *Config) {
		c.Bind, c.Join = "localhost:0", []string{"no-such-host.invalid:1", "127.0.0.1:1", "nonsense", strings.Replace(a.addr(), "127.0.0.1", "localhost", 1)}
	})
	seesAll(t, a, b, c)
	want := regions(300)
	if err := c.Publish(want); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*node{a, b, c} {
		eventually(t, x.Members, "c's table is known", func() bool { return hasTable(x.Members, "c", want) })
	}
	// The largest table that is gossiped.
	want = regions(cluster.MaxGossip)
	if err := b.Publish(want); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*node{a, c} {
		eventually(t, x.Members, "b's large table is known", func() bool { return hasTable(x.Members, "b", want) })
	}
	eventually(t, c.Members, "the seeds that fail are named", func() bool {
		s := c.Stats().JoinErrors
		return s["nonsense"] != "" && s["127.0.0.1:1"] != "" && s["no-such-host.invalid:1"] != ""
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, a.Members, "b has left", func() bool { return stateOf(a.Members, "b") == cluster.Left })

	// The address of another node is named.
	if _, err := Start(context.Background(), Config{NodeID: "d", Cluster: "demo", Keys: [][]byte{keyA}, Bind: a.addr()}); err == nil || !strings.Contains(err.Error(), a.addr()) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("an address in use: %v", err)
	}
	if _, err := Start(context.Background(), Config{NodeID: "d", Cluster: "demo", Keys: [][]byte{keyA}, Bind: "[::]:0"}); !errors.Is(err, ErrConfig) {
		t.Errorf("a wildcard without an address to advertise: %v", err)
	}
}

// A new key comes in and the old one goes, with no member lost on the way.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", nil)
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	seesAll(t, a, b)
	both := []*node{a, b}
	for _, x := range both {
		if err := x.AddKey(keyB); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range both {
		if err := x.RemoveKey(Digest(keyA)); !errors.Is(err, ErrKeyInUse) {
			t.Errorf("removing the key in use: %v", err)
		}
		if err := x.UseKey(Digest(keyB)); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range both {
		if err := x.RemoveKey(Digest(keyA)); err != nil {
			t.Fatal(err)
		}
		if got := x.Keys(); len(got) != 1 || got[0] != Digest(keyB) {
			t.Errorf("keys %v", got)
		}
		if err := x.UseKey(Digest(keyA)); !errors.Is(err, ErrNoKey) {
			t.Errorf("using a key that is gone: %v", err)
		}
	}
	if err := a.AddKey([]byte("short")); !errors.Is(err, ErrConfig) {
		t.Errorf("a short key: %v", err)
	}
	want := regions(4)
	if err := a.Publish(want); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "gossip goes on", func() bool { return hasTable(b.Members, "a", want) })
	late := onLoopback(t, "late", func(c *Config) { c.Join = []string{a.addr()} })
	eventually(t, late.Members, "the old key opens nothing", func() bool { return strings.Contains(late.Stats().JoinErrors[a.addr()], ErrWrongKey.Error()) })
	if strings.Contains(a.log.String(), fmt.Sprintf("%x", keyB)) || strings.Contains(a.log.String(), string(keyB)) {
		t.Error("a key stands in the log")
	}
	bareNode := onLoopback(t, "bare", func(c *Config) { c.Keys, c.Insecure = nil, true })
	if err := bareNode.AddKey(keyA); !errors.Is(err, ErrNoKeyring) || bareNode.Keys() != nil {
		t.Errorf("a key for a cluster without keys: %v", err)
	}
}

func TestAllowList(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", func(c *Config) {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}
	})
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	seesAll(t, a, b)
	out := onLoopback(t, "out", func(c *Config) { c.Bind, c.Join = "127.0.0.2:0", []string{a.addr()} })
	// The source of a TCP connection to 127.0.0.1 is 127.0.0.1, so out gets in
	// by TCP; its packets come from 127.0.0.2, and its address is not allowed.
	eventually(t, a.Members, "who is not allowed is told of", func() bool {
		return a.Stats().NotAllowed > 0 || strings.Contains(a.log.String(), "Rejected node out")
	})
	if a.View().Member("out") != nil {
		t.Error("an address outside the list is a member")
	}
	if _, err := Start(t.Context(), Config{NodeID: "x", Cluster: "demo", Keys: [][]byte{keyA}, Bind: "127.0.0.1:0", Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "gossip.allow") {
		t.Errorf("a node that may not gossip with itself: %v", err)
	}
	// A node that is refused is told so.
	none := onLoopback(t, "none", func(c *Config) {
		c.Bind, c.Allow = "127.0.0.3:0", []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}
	})
	eventually(t, out.Members, "the one who knocks is told", func() bool {
		_, err := out.Join(context.Background(), none.addr())
		return errors.Is(err, ErrNotAllowed)
	})
}

// Streams that send nothing cost a slot for a while, never more, and members still
// get through.
func TestHalfOpenStreams(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", nil)
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	for range maxStreamsHost + 20 {
		c, err := net.Dial("tcp", a.addr())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	eventually(t, a.Members, "too many are refused", func() bool { return a.Stats().Busy > 0 })
	a.door.mu.Lock()
	total := a.door.total
	a.door.mu.Unlock()
	if total > maxStreamsHost {
		t.Errorf("%d streams of one host are open, at most %d", total, maxStreamsHost)
	}
	begun := time.Now()
	b := onLoopback(t, "b", func(c *Config) { c.Join = []string{a.addr()} })
	seesAll(t, a, b)
	t.Logf("a member came in %v after %d half-open streams", time.Since(begun), len(idle))
}

// TestQuestion: any program that asks the gossip port is told whether the node
// gossips with a cluster of that name, and nothing is counted or logged if it does.
func TestQuestion(t *testing.T) {
	t.Parallel()
	a := onLoopback(t, "a", nil)
	ask := func(words string) string {
		t.Helper()
		conn, err := net.DialTimeout("tcp", a.addr(), patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil && len(answer) == 0 {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := ask("\xe7RKV\x00\x04demo"); got != "\xe7RKV\x00\x00" {
		t.Errorf("answer %q", got)
	}
	if s := a.Stats(); s.WrongCluster != 0 || s.LastRefused.Why != "" {
		t.Errorf("a question is counted: %+v", s)
	}
	for words, want := range map[string]string{
		"\xe7RKV\x00\x05other": "\xe7RKV\x01\x04demo", // this machine is told the name
		"\xe7RKV\x00\x05ot":    "\xe7RKV\x01\x04demo",
		"\xe7RKV\x07\x04demo":  "\xe7RKV\x01\x04demo",
		"\xe7R":                "\xe7RKV\x01\x04demo",
		"GET / HTTP/1.1\r\n":   "\xe7RKV\x01\x04demo",
		"":                     "",
	} {
		if got := ask(words); got != want {
			t.Errorf("%q is answered with %q, want %q", words, got, want)
		}
	}
	if s := a.Stats(); s.WrongCluster != 5 {
		t.Errorf("%d refusals are counted", s.WrongCluster)
	}
}

// TestOverTCP: a node that answers by TCP alone is reported, until it answers by
// UDP.
func TestOverTCP(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	if s := a.Stats(); len(s.TCPOnly) != 0 {
		t.Errorf("%v answer by TCP alone", s.TCPOnly)
	}
	n.setMute(true)
	eventually(t, a.Members, "b answers by TCP alone", func() bool { return slices.Equal(a.Stats().TCPOnly, []string{"b"}) })
	n.setMute(false)
	eventually(t, a.Members, "b answers by UDP again", func() bool { return len(a.Stats().TCPOnly) == 0 })
}
