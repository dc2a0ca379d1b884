package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/teeth"
)

// patience bounds every wait for an event; on a loaded machine, things that
// take a second may take many.
var patience = teeth.Patience(60 * time.Second)

var (
	keyA = bytes.Repeat([]byte{1}, 32)
	keyB = bytes.Repeat([]byte{2}, 16)
)

// A capture is a log that a test can search.
type capture struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

type node struct {
	*Members
	log *capture
	end *memEnd
}

// launch starts a node on the network in memory. edit may change its
// configuration.
func launch(t *testing.T, n *memNet, id string, edit func(*Config)) *node {
	t.Helper()
	log := &capture{}
	end := n.end()
	cfg := Config{
		NodeID: id, Cluster: "demo", Keys: [][]byte{keyA}, Profile: Fast, Transport: end,
		Self:   cluster.Member{Incarnation: cluster.Hash(id), Endpoints: []cluster.Endpoint{{Fabric: "iwarp", Addr: "10.0.0.1:7400"}}},
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Life:   n.life(id), ProofKey: []byte("the cluster's secret"),
	}
	if edit != nil {
		edit(&cfg)
	}
	m, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := &node{m, log, end}
	t.Cleanup(func() {
		_ = m.Close()
		if t.Failed() {
			t.Logf("log of %s:\n%.8000s", id, log)
		}
	})
	return x
}

func joining(others ...*node) func(*Config) {
	return func(c *Config) {
		for _, o := range others {
			c.Join = append(c.Join, string(o.end.addr))
		}
	}
}

// eventually waits until a condition of one node holds.
func eventually(t *testing.T, m *Members, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		changed := m.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // not all conditions are about views
		case <-deadline:
			t.Fatalf("%s: not after %v; view %+v", what, patience, m.View())
		}
	}
}

func stateOf(m *Members, id string) cluster.State {
	if p := m.View().Member(id); p != nil {
		return p.State
	}
	return 0
}

// seesAll waits until every node sees every other alive.
func seesAll(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, n.Members, n.cfg.NodeID+" sees all", func() bool {
			alive := 0
			for _, p := range n.View().Members {
				if p.State == cluster.Alive {
					alive++
				}
			}
			return alive == len(nodes)
		})
	}
}

// regions makes a table of n regions.
func regions(n int) *cluster.Table {
	t := &cluster.Table{Devices: []string{"iwarp"}}
	for i := range uint32(n) {
		t.Regions = append(t.Regions, cluster.Region{
			ID: i, Kind: 2, State: cluster.Serving, Base: uint64(i) << 20, Length: 1 << 20,
			Keys: []cluster.RemoteKey{{RKey: 0x1000 + i, Addr: uint64(i) << 20}},
		})
	}
	return t
}

func hasTable(m *Members, id string, want *cluster.Table) bool {
	got := m.Table(id)
	return got != nil && len(got.Regions) == len(want.Regions) && cluster.Hash(string(cluster.AppendTable(nil, &cluster.Table{Node: "x", Version: 1, Devices: got.Devices, Regions: got.Regions}))) ==
		cluster.Hash(string(cluster.AppendTable(nil, &cluster.Table{Node: "x", Version: 1, Devices: want.Devices, Regions: want.Regions})))
}

func TestMeetPublishLeave(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	c := launch(t, n, "c", joining(a))
	nodes := []*node{a, b, c}
	seesAll(t, nodes...)

	p := c.View().Member("b")
	if p.Incarnation != cluster.Hash("b") || len(p.Endpoints) != 1 || p.Endpoints[0].Addr != "10.0.0.1:7400" || p.Role != cluster.RoleServer || p.Gossip != string(b.end.addr) {
		t.Errorf("c sees b as %+v", p)
	}
	if v := a.View(); v.Self != "a" || v.Cluster != "demo" || v.Check() != nil {
		t.Errorf("view %+v", v)
	}

	// Tables of all sizes: within one packet of gossip, beyond it, and the largest.
	for _, size := range []int{1, 3, 20, 21, 26, cluster.MaxGossip, 399, 2} {
		want := regions(size)
		if err := a.Publish(want); err != nil {
			t.Fatal(err)
		}
		for _, x := range nodes {
			eventually(t, x.Members, fmt.Sprintf("%s has a's table of %d", x.cfg.NodeID, size), func() bool { return hasTable(x.Members, "a", want) })
		}
	}
	version := a.View().Member("a").TableVersion
	if err := a.Publish(regions(2)); err != nil || a.View().Member("a").TableVersion != version {
		t.Errorf("the same table again is news: %v", err)
	}

	// Metadata.
	if err := b.SetSelf(func(m *cluster.Member) { m.MapVersion, m.MapDigest = 1, 0xabc }); err != nil {
		t.Fatal(err)
	}
	for _, x := range nodes {
		eventually(t, x.Members, "b's map is known", func() bool { return x.View().Member("b").MapDigest == 0xabc })
	}
	if err := b.SetSelf(func(m *cluster.Member) {
		for range 9 {
			m.Endpoints = append(m.Endpoints, cluster.Endpoint{Fabric: "iwarp", Addr: "h:1"})
		}
	}); !errors.Is(err, cluster.ErrMalformed) {
		t.Errorf("ten endpoints: %v", err)
	}
	if len(b.View().Member("b").Endpoints) != 1 {
		t.Error("a refused change was made")
	}

	// One goes, one dies.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	_ = c.Close()
	eventually(t, a.Members, "b has left", func() bool { return stateOf(a.Members, "b") == cluster.Left })
	eventually(t, a.Members, "c is dead", func() bool { return stateOf(a.Members, "c") == cluster.Dead })
	if a.View().Member("c").Since.IsZero() {
		t.Error("c is dead since ever")
	}
}

// All nodes leave at the same moment: none of them waits for one to tell.
func TestAllLeaveAtOnce(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	c := launch(t, n, "c", joining(a))
	seesAll(t, a, b, c)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 3)
	for _, x := range []*node{a, b, c} {
		go func() {
			done <- x.Leave(ctx)
			_ = x.Close()
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	alone := launch(t, n, "alone", nil)
	if err := alone.Leave(ctx); err != nil {
		t.Errorf("alone: %v", err)
	}
	if err := alone.Leave(ctx); err != nil {
		t.Errorf("twice: %v", err)
	}
	_ = alone.Close()
	if err := alone.Leave(ctx); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// When a node comes back with another store, its old table goes everywhere.
func TestRestart(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	if err := b.Publish(regions(5)); err != nil {
		t.Fatal(err)
	}
	eventually(t, a.Members, "a has b's table", func() bool { return hasTable(a.Members, "b", regions(5)) })
	_ = b.Close()
	addr := b.end.addr
	n.mu.Lock()
	end := n.endAtLocked(string(addr))
	n.mu.Unlock()
	again := launch(t, n, "b", func(c *Config) {
		c.Transport, c.Self.Incarnation, c.Join = end, 7, []string{string(a.end.addr)}
	})
	eventually(t, a.Members, "b is back", func() bool { return a.View().Member("b").Incarnation == 7 })
	if a.Table("b") != nil {
		t.Error("rkeys of another life are shown")
	}
	if err := again.Publish(regions(3)); err != nil {
		t.Fatal(err)
	}
	eventually(t, a.Members, "a has b's new table", func() bool { return hasTable(a.Members, "b", regions(3)) })
}

// A cut network heals: both halves look for the other again.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	c := launch(t, n, "c", joining(a))
	d := launch(t, n, "d", joining(c))
	seesAll(t, a, b, c, d)
	left := map[string]bool{string(a.end.addr): true, string(b.end.addr): true}
	n.setCut(func(from, to string) bool { return left[from] != left[to] })
	eventually(t, a.Members, "c and d are dead for a", func() bool {
		return stateOf(a.Members, "c") == cluster.Dead && stateOf(a.Members, "d") == cluster.Dead
	})
	eventually(t, d.Members, "a and b are dead for d", func() bool {
		return stateOf(d.Members, "a") == cluster.Dead && stateOf(d.Members, "b") == cluster.Dead
	})
	want := regions(30)
	if err := a.Publish(want); err != nil { // no node over there hears it
		t.Fatal(err)
	}
	n.setCut(nil)
	seesAll(t, a, b, c, d)
	eventually(t, d.Members, "d has what a published meanwhile", func() bool { return hasTable(d.Members, "a", want) })
}

// Adverts that get lost are made up for by push/pull.
func TestLossyNetwork(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	var mu sync.Mutex
	count := 0
	a := launch(t, n, "a", nil)
	nodes := []*node{a}
	for i := range 4 {
		nodes = append(nodes, launch(t, n, fmt.Sprintf("b%d", i), joining(a)))
	}
	seesAll(t, nodes...)
	n.setCut(func(string, string) bool { // of packets and of streams alike
		mu.Lock()
		defer mu.Unlock()
		count++
		return count%2 == 0
	})
	var want *cluster.Table
	for i := range 30 {
		want = regions(50 + i)
		if err := a.Publish(want); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, x := range nodes {
		eventually(t, x.Members, "the last table is known", func() bool { return hasTable(x.Members, "a", want) })
	}
}

func TestWrongKeyAndLabelAreNamedOnBothSides(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	// a tells its name to addresses in its list; the others find it in a's log.
	a := launch(t, n, "a", func(c *Config) { c.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	open := launch(t, n, "open", nil)
	stranger := launch(t, n, "stranger", func(c *Config) { joining(open)(c); c.Cluster = "other" })
	key := launch(t, n, "key", func(c *Config) { joining(a)(c); c.Keys = [][]byte{keyB} })
	bare := launch(t, n, "bare", func(c *Config) { joining(a)(c); c.Keys, c.Insecure = nil, true })
	label := launch(t, n, "label", func(c *Config) { joining(a)(c); c.Cluster = "other" })

	for _, x := range []*node{key, bare} {
		eventually(t, x.Members, "it names the key", func() bool {
			return strings.Contains(x.Stats().JoinErrors[string(a.end.addr)], ErrWrongKey.Error()) && strings.Contains(x.log.String(), "gossip keys differ")
		})
	}
	eventually(t, label.Members, "it names the label", func() bool {
		why := label.Stats().JoinErrors[string(a.end.addr)]
		return strings.Contains(why, ErrWrongCluster.Error()) && strings.Contains(why, "demo")
	})
	eventually(t, stranger.Members, "it hears of the label", func() bool {
		return strings.Contains(stranger.Stats().JoinErrors[string(open.end.addr)], ErrWrongCluster.Error())
	})
	if why := stranger.Stats().JoinErrors[string(open.end.addr)]; strings.Contains(why, "demo") || strings.Contains(stranger.log.String(), "demo") {
		t.Errorf("a stranger was told the cluster's name: %s", why)
	}
	eventually(t, a.Members, "the other side names all", func() bool {
		s, log := a.Stats(), a.log.String()
		return s.WrongKey >= 2 && s.WrongCluster >= 1 && s.LastRefused.Addr != "" &&
			strings.Contains(log, "gossip keys differ") && strings.Contains(log, "a cluster of another name") && strings.Contains(log, "other")
	})
	if len(a.View().Members) != 1 {
		t.Errorf("a let somebody in: %+v", a.View())
	}
}

func TestDuplicateIDIsRefused(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	twin := launch(t, n, "b", func(c *Config) { joining(a)(c); c.Self.Incarnation = 99 })
	select {
	case <-twin.Failed():
	case <-time.After(patience):
		t.Fatal("the second b goes on")
	}
	if err := twin.Err(); !errors.Is(err, ErrDuplicateID) || !strings.Contains(err.Error(), string(b.end.addr)) {
		t.Errorf("%v", err)
	}
	eventually(t, a.Members, "a tells of it", func() bool {
		return a.Stats().Conflicts > 0 && strings.Contains(a.log.String(), "two nodes of one id")
	})
	if b.Err() != nil {
		t.Errorf("the first b was sent away: %v", b.Err())
	}
	_ = twin.Close()
	if p := a.View().Member("b"); p.Incarnation != cluster.Hash("b") {
		t.Errorf("a believes the second b: %+v", p)
	}
}

// A node that moved to another address is let in again once the old one is
// dead.
func TestMovedNode(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	_ = b.Close()
	moved := launch(t, n, "b", func(c *Config) { joining(a)(c); c.Self.Incarnation = 99 })
	eventually(t, a.Members, "b is let in at its new address", func() bool {
		p := a.View().Member("b")
		return p != nil && p.Incarnation == 99 && p.Gossip == string(moved.end.addr)
	})
	if moved.Err() != nil {
		t.Errorf("it was taken for a twin: %v", moved.Err())
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Config){
		"id":      func(c *Config) { c.NodeID = "" },
		"cluster": func(c *Config) { c.Cluster = "A" },
		"no key":  func(c *Config) { c.Keys = nil },
		"key":     func(c *Config) { c.Keys = [][]byte{keyA, {1, 2, 3}} },
		"profile": func(c *Config) { c.Profile = "man" },
		"bind":    func(c *Config) { c.Bind = "nonsense" },
		"self":    func(c *Config) { c.Self.Endpoints = make([]cluster.Endpoint, 9) },
		"table":   func(c *Config) { c.Table = &cluster.Table{Regions: make([]cluster.Region, 1)} },
	} {
		cfg := Config{NodeID: "a", Cluster: "demo", Keys: [][]byte{keyA}, Bind: "127.0.0.1:0"}
		edit(&cfg)
		if m, err := Start(context.Background(), cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
			if m != nil {
				_ = m.Close()
			}
		}
	}
}
