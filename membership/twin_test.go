package membership

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// sides cuts the network in two.
func sides(one ...*node) func(from, to string) bool {
	in := map[string]bool{}
	for _, x := range one {
		in[string(x.end.addr)] = true
	}
	return func(from, to string) bool { return in[from] != in[to] }
}

// twins is a cluster of a, b and c, and a second b that grew up on its own: when
// it began to take part, it reached nobody. The network is still cut.
func twins(t *testing.T, n *memNet, first, second func(*Config)) (a, c, b, twin *node) {
	t.Helper()
	a = launch(t, n, "a", nil)
	b = launch(t, n, "b", func(x *Config) { joining(a)(x); first(x) })
	c = launch(t, n, "c", joining(a))
	seesAll(t, a, b, c)
	n.setCut(sides(a, b, c))
	twin = launch(t, n, "b", func(x *Config) { joining(a, c)(x); x.Self.Incarnation = 99; second(x) })
	select {
	case <-twin.Settled():
	case <-time.After(patience):
		t.Fatal("a node that reaches nobody never knows where it stands")
	}
	for _, x := range []*node{a, b, c, twin} {
		if err := x.Err(); err != nil {
			t.Fatalf("%s at %s ends before the two can know of each other: %v", x.cfg.NodeID, x.end.addr, err)
		}
	}
	return a, c, b, twin
}

// TestTwinsMeet: two nodes of one id that were cut off from each other. When the
// cut heals the one that began later stands down, whichever side it was on; the
// others tell of both until it has gone.
func TestTwinsMeet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		began uint64 // of the second
	}{{"the copy is the younger", 1000}, {"the copy is the older", 1}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n := newMemNet()
			a, c, b, twin := twins(t, n, func(x *Config) { x.Life.Began = 500 }, func(x *Config) { x.Life.Began = tc.began })
			stays, goes := b, twin
			if tc.began < 500 {
				stays, goes = twin, b
			}
			n.setCut(nil)
			standsDown(t, goes, stays)
			for _, x := range []*node{a, c, stays} {
				eventually(t, x.Members, x.cfg.NodeID+" tells of both", func() bool { return tellsOf(x, string(stays.end.addr), string(goes.end.addr)) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := goes.Leave(ctx); err != nil {
				t.Error(err)
			}
			_ = goes.Close()
			for _, x := range []*node{a, c, stays} {
				eventually(t, x.Members, x.cfg.NodeID+" tells that it is over", func() bool {
					open := x.Stats().Open
					return len(open) == 1 && open[0].Over
				})
				eventually(t, x.Members, x.cfg.NodeID+" has the one that stayed", func() bool {
					p := x.View().Member("b")
					return p.State == cluster.Alive && p.Gossip == string(stays.end.addr)
				})
			}
			if err := stays.Err(); err != nil {
				t.Errorf("both ended: %v", err)
			}
		})
	}
}

// TestTwinsOutOfReach: the two never reach each other; a third node that hears
// both is the witness.
func TestTwinsOutOfReach(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	_, _, b, twin := twins(t, n, func(*Config) {}, func(*Config) {})
	one, two := string(b.end.addr), string(twin.end.addr)
	n.setCut(func(from, to string) bool { return from == one && to == two || from == two && to == one })
	standsDown(t, twin, b)
	if err := b.Err(); err != nil {
		t.Errorf("both ended: %v", err)
	}
}

func standsDown(t *testing.T, goes, stays *node) {
	t.Helper()
	select {
	case <-goes.Failed():
	case <-time.After(patience):
		t.Fatalf("both go on; conflicts %+v", stays.Stats().Open)
	}
	err := goes.Err()
	if !errors.Is(err, ErrDuplicateID) {
		t.Errorf("it ends with %v", err)
	}
	for _, x := range []*node{goes, stays} {
		if !strings.Contains(err.Error(), string(x.end.addr)) {
			t.Errorf("it does not name %s: %v", x.end.addr, err)
		}
	}
}

func tellsOf(x *node, older, younger string) bool {
	for _, c := range x.Stats().Open {
		if c.Node == "b" && c.Proved && len(c.Addrs) == 2 && c.Addrs[0] == older && c.Addrs[1] == younger {
			return true
		}
	}
	return false
}

// TestClaimWithoutSecret: a member with the gossip key and without the secret
// claims the id of a node that is down. The node starts all the same, and the
// others report that something is wrong; and no verdict of that member ends any
// node.
func TestClaimWithoutSecret(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	rogue := launch(t, n, "b", func(x *Config) { joining(a)(x); x.ProofKey = []byte("another"); x.Life.Began, x.Life.Epoch = 1, 1<<40 })
	seesAll(t, a, rogue)
	b := launch(t, n, "b", func(x *Config) { joining(a)(x); x.Self.Incarnation = 99 })
	select {
	case <-b.Settled():
	case <-time.After(patience):
		t.Fatal("it waits for ever")
	}
	for _, x := range []*node{a, b} {
		eventually(t, x.Members, x.cfg.NodeID+" tells of the claim", func() bool {
			open := x.Stats().Open
			return len(open) > 0 && !open[0].Proved && open[0].Node == "b" && len(open[0].Addrs) == 1 && open[0].Addrs[0] == string(rogue.end.addr)
		})
	}
	before := b.Stats().Unproved
	me := b.referee.stateSelf()
	older := me
	older.Incarnation, older.Began = 5, 1
	forged := verdict{older: older, younger: me}
	forged.sum = rogue.referee.key.sign(forged.body())
	b.handle(message{bytes: forged.append(nil)})
	older.sum = rogue.referee.key.sign(older.body([]byte{stateTag}))
	b.handle(message{bytes: (&state{from: "a", lives: []*statement{&older}}).append(nil), state: true})
	if got := b.Stats().Unproved; got < before+2 {
		t.Errorf("%d of the forged words were counted, want 2", got-before)
	}
	if err := b.Err(); err != nil {
		t.Errorf("it is kept down by somebody without the secret: %v", err)
	}
}

// TestRolledBack: a node comes back on an older copy of its directory. Every
// node that has seen it later says so, also one that has it from others only.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	c := launch(t, n, "c", joining(a))
	// settled is a node that knows where it stands because its seed has answered. Where the machine
	// stalls, the node has tried its seed in vain and is settled, too: then it is started once more.
	life := uint64(9)
	settled := func(state func(c *Config, try uint64)) *node {
		t.Helper()
		for end, try := time.Now().Add(patience), uint64(0); ; try++ {
			life++
			x := launch(t, n, "b", func(x *Config) { joining(a)(x); x.Self.Incarnation = life; state(x, try) })
			await(t, x.Settled(), "it knows where it stands")
			// The next attempt may have been through since; the log still has the first.
			failed := len(x.Stats().JoinErrors) > 0 || strings.Contains(x.log.String(), "a seed cannot be joined")
			if !failed || time.Now().After(end) {
				return x
			}
			_ = x.Close()
		}
	}
	b := launch(t, n, "b", func(x *Config) { joining(a)(x); x.Life.Epoch, x.Self.Incarnation = 9, 9 })
	seesAll(t, a, b, c)
	for _, x := range []*node{a, c} {
		eventually(t, x.Members, x.cfg.NodeID+" knows its life", func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.referee.lives["b"] != nil && x.referee.lives["b"].Epoch == 9
		})
	}
	_ = b.Close()

	old := settled(func(c *Config, _ uint64) { c.Life.Epoch = 9 }) // what follows epoch 8
	if err := old.Err(); !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "epoch 9") || !strings.Contains(err.Error(), "--accept-rollback 9") {
		t.Fatalf("an older copy goes on: %v", err)
	}
	_ = old.Close()
	// a's records end with its process; c's stay.
	_ = a.Close()
	a = launch(t, n, "a", joining(c))
	seesAllBut(t, a, c)
	older := settled(func(c *Config, _ uint64) { c.Life.Epoch = 3 })
	if err := older.Err(); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("an older copy goes on: %v", err)
	}
	_ = older.Close()
	// A try that failed may have been heard: the next one is a later start, or another directory.
	told := settled(func(c *Config, try uint64) { c.Life.Epoch = 10 + try })
	if err := told.Err(); err != nil {
		t.Errorf("a directory that is not older: %v", err)
	}
	_ = told.Close()
	other := settled(func(c *Config, try uint64) {
		c.Life.Epoch, c.Life.Store = 1, [16]byte(bytes.Repeat([]byte{byte(7 + try)}, 16))
	})
	if err := other.Err(); err != nil {
		t.Errorf("a new directory: %v", err)
	}
}

// TestLifeStatedBeforeItIsLetIn: a node states its life when it joins, which may be
// before gossip has let it in. The statement counts from that moment on, without a
// second push/pull; if gossip does not let it in, as with a second copy, it never does.
func TestLifeStatedBeforeItIsLetIn(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", func(x *Config) { joining(a)(x); x.Life.Epoch, x.Self.Incarnation = 9, 1 })
	seesAll(t, a, b)
	known := func() (epoch uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s := a.referee.lives["b"]; s != nil {
			epoch = s.Epoch
		}
		return epoch
	}
	eventually(t, a.Members, "a knows its life", func() bool { return known() == 9 })
	_ = b.Close()
	next := func(epoch, incarnation uint64) *statement {
		s := b.referee.stateSelf()
		s.Epoch, s.Incarnation = epoch, incarnation
		s.sum = b.referee.key.sign(s.body([]byte{stateTag}))
		a.handle(message{bytes: (&state{from: "b", lives: []*statement{&s}}).append(nil), state: true})
		return &s
	}
	next(20, 2)
	if got := known(); got != 9 {
		t.Fatalf("a life that is not let in counts: epoch %d", got)
	}
	s := next(10, 3)
	for range 3 {
		next(20, 2) // a second copy, which tries again and again
		next(8, 4)  // an earlier life, which anyone may send again
	}
	self := *a.View().Member("b")
	self.Incarnation = s.Incarnation
	meta, err := cluster.AppendMeta(nil, &self)
	if err != nil {
		t.Fatal(err)
	}
	callbacks{a.Members}.alive(&memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta})
	if got := known(); got != 10 {
		t.Errorf("it was let in, and epoch %d is known of it, want 10", got)
	}
}

// seesAllBut waits until each sees the other.
func seesAllBut(t *testing.T, a, c *node) {
	t.Helper()
	eventually(t, a.Members, "a sees c", func() bool { return stateOf(a.Members, "c") == cluster.Alive })
	eventually(t, c.Members, "c sees a", func() bool {
		p := c.View().Member("a")
		return p != nil && p.State == cluster.Alive && p.Gossip == string(a.end.addr)
	})
}
