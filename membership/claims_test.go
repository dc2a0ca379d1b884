package membership

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestDocket: each node has one claim that waits and one that is judged, nodes take
// turns, and there is an end to what is kept.
func TestDocket(t *testing.T) {
	d := newDocket(3)
	for _, node := range []string{"b", "b", "c", "b", "d", "e"} {
		d.add(claim{node: node})
	}
	take := func(want string) claim {
		t.Helper()
		c, ok := d.take()
		if !ok || c.node != want {
			t.Fatalf("the claim about %q is next, want %q", c.node, want)
		}
		return c
	}
	b := take("b")
	d.add(b) // another of the same node
	c := take("c")
	take("d")
	if next, ok := d.take(); ok {
		t.Errorf("two claims about %q are judged at once", next.node)
	}
	d.done(c)
	d.done(b)
	select {
	case <-d.ready:
	default:
		t.Error("nobody is called to a claim that waited for another of its node")
	}
	take("b")
	if len(d.waiting) != 0 {
		t.Errorf("%v wait", d.waiting)
	}
}

// TestClaimsOfManyIDs: a holder of a gossip key claims any number of ids that no node
// has, each of which takes seconds to judge. Two lives of a node are found all the
// same, at the first report of them.
func TestClaimsOfManyIDs(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	eventually(t, a.Members, "a knows b's life", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.referee.lives["b"] != nil
	})
	twin := launch(t, n, "b", func(c *Config) { c.Self.Incarnation = 99 })
	calls := callbacks{a.Members}
	at := func(id string, ip net.IP) *memberlist.Node { return &memberlist.Node{Name: id, Addr: ip, Port: 7946} }
	for i := range 1000 {
		id := fmt.Sprintf("nobody-%d", i)
		calls.NotifyConflict(at(id, net.IPv4(10, 1, 0, 1).To4()), at(id, net.IPv4(10, 1, 0, 2).To4()))
	}
	ip := func(x *node) net.IP {
		a, err := net.ResolveUDPAddr("udp", string(x.end.addr))
		if err != nil {
			t.Fatal(err)
		}
		return a.IP.To4()
	}
	calls.NotifyConflict(at("b", ip(b)), at("b", ip(twin)))
	standsDown(t, twin, b)
	a.referee.unknown.mu.Lock()
	defer a.referee.unknown.mu.Unlock()
	if n := len(a.referee.unknown.waiting); n > maxUnknown {
		t.Errorf("%d claims about ids that nobody has wait", n)
	}
}

// TestVerdictIsNewsOnce: a verdict is passed on once, also where there is no room to
// remember it, and not at all when it is old, because an attacker that has overheard
// it may send it again for ever. The life that it names ends all the same.
func TestVerdictIsNewsOnce(t *testing.T) {
	t.Parallel()
	x := launch(t, newMemNet(), "x", nil)
	signed := func(node string, younger uint64, seen time.Time) verdict {
		v := verdict{seen: uint64(seen.UnixMicro())}
		v.older = statement{Life: Life{Began: 1, Incarnation: 1}, node: node, addr: "10.0.0.8:7946"}
		v.younger = statement{Life: Life{Began: 2, Incarnation: younger}, node: node, addr: "10.0.0.9:7946"}
		v.sum = x.referee.key.sign(v.body())
		return v
	}
	now := time.Now()
	for _, seen := range []time.Time{now.Add(-conflictShown - time.Minute), now.Add(conflictShown + time.Minute), {}} {
		if x.referee.rule(signed("b", 7, seen), false) || len(x.Stats().Open) != 0 {
			t.Errorf("a verdict of %v is told of: %+v", seen, x.Stats().Open)
		}
	}
	x.referee.unproved("b", "10.0.0.7:7946")
	for i := range maxConflicts {
		v := signed(fmt.Sprintf("n%d", i), 7, now)
		if !x.referee.rule(v, false) {
			t.Fatalf("verdict %d is no news", i)
		}
		if x.referee.rule(v, false) {
			t.Fatalf("verdict %d is news twice", i)
		}
	}
	for _, c := range x.Stats().Open {
		if !c.Proved {
			t.Errorf("a claim without proof takes the room: %+v", c)
		}
	}
	if x.referee.rule(signed("late", 7, now), false) {
		t.Error("a verdict that is not remembered is passed on: it would be each time")
	}
	if !x.referee.rule(signed("seen", 7, now), true) {
		t.Error("what this node has seen itself is not told to the others")
	}
	if len(x.Stats().Open) != maxConflicts {
		t.Errorf("%d are remembered, at most %d", len(x.Stats().Open), maxConflicts)
	}
	if x.Err() != nil {
		t.Fatal(x.Err())
	}
	x.referee.rule(signed("x", cluster.Hash("x"), time.Time{}), false)
	if x.Err() == nil {
		t.Error("a life that must end goes on, because the verdict is old")
	}
}
