package membership

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// An enemy is a member with the right key and label that keeps to none of our rules:
// memberlist itself, with the messages that a test puts into it.
type enemy struct {
	*memberlist.Memberlist
	meta  []byte
	state []byte
}

func (e *enemy) NodeMeta(int) []byte             { return e.meta }
func (e *enemy) NotifyMsg([]byte)                {}
func (e *enemy) LocalState(bool) []byte          { return e.state }
func (e *enemy) MergeRemoteState([]byte, bool)   {}
func (e *enemy) GetBroadcasts(int, int) [][]byte { return nil }

func infiltrate(t *testing.T, n *memNet, name string, meta []byte) *enemy {
	t.Helper()
	conf, _, err := Fast.settings()
	if err != nil {
		t.Fatal(err)
	}
	e := &enemy{meta: meta}
	conf.Name, conf.Label, conf.SecretKey, conf.Delegate = name, "demo", keyA, e
	conf.DelegateProtocolMin, conf.DelegateProtocolMax, conf.DelegateProtocolVersion = 1, 1, 1
	conf.Transport = n.end()
	conf.Logger = log.New(io.Discard, "", 0)
	if e.Memberlist, err = memberlist.Create(conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown() })
	return e
}

func goodMeta(t *testing.T) []byte {
	t.Helper()
	b, err := cluster.AppendMeta(nil, &cluster.Member{Role: cluster.RoleServer, Incarnation: 13})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tell sends a message to a node, by the reliable channel. It waits while the node has half as
// many streams of the enemy's host as it takes: on a busy machine those that were told before are
// still open, and the node refuses one more, be it a message or a join, by closing it (EOF).
func (e *enemy) tell(t *testing.T, to *node, msg []byte) {
	t.Helper()
	eventually(t, to.Members, "the node has read what it was told before", func() bool {
		to.door.mu.Lock()
		defer to.door.mu.Unlock()
		return to.door.total < maxStreamsHost/2
	})
	for _, m := range e.Members() {
		if m.Name == to.cfg.NodeID {
			if err := e.SendReliable(m, msg); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s is not known to the enemy", to.cfg.NodeID)
}

// Members whose name or metadata breaks a rule are not let in.
func TestBadMembersStayOut(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	seesAll(t, a, b)
	for _, x := range []struct {
		name string
		meta []byte
	}{
		{"large", bytes.Repeat([]byte{1}, 300)},
		{"empty", nil},
		{"short", goodMeta(t)[:20]},
		{"UPPER", goodMeta(t)},
		{strings.Repeat("n", 64), goodMeta(t)},
		{"format", append([]byte{9}, goodMeta(t)[1:]...)},
	} {
		e := infiltrate(t, n, x.name, x.meta)
		if _, err := e.Join([]string{string(a.end.addr)}); err != nil {
			t.Logf("%s: %v", x.name, err)
		}
		if p := a.View().Member(x.name); p != nil {
			t.Errorf("%s was let in: %+v", x.name, p)
		}
	}
	good := infiltrate(t, n, "good", goodMeta(t))
	if _, err := good.Join([]string{string(a.end.addr)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "who keeps the rules is let in", func() bool { return stateOf(b.Members, "good") == cluster.Alive })
	if got := len(b.View().Members); got != 3 {
		t.Errorf("b sees %d members: %+v", got, b.View())
	}
	if a.Stats().Malformed == 0 {
		t.Error("nothing malformed was counted")
	}
}

// Forged adverts, tables and digests about a: all nodes end with a's own table.
func TestForgeriesDoNotLast(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	c := launch(t, n, "c", joining(a))
	seesAll(t, a, b, c)
	truth := regions(10)
	if err := a.Publish(truth); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "b knows", func() bool { return hasTable(b.Members, "a", truth) })
	e := infiltrate(t, n, "enemy", goodMeta(t))
	if _, err := e.Join([]string{string(a.end.addr)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "the enemy is in", func() bool { return stateOf(b.Members, "enemy") == cluster.Alive })
	for len(e.Members()) < 4 {
		time.Sleep(10 * time.Millisecond)
	}

	inc := cluster.Hash("a")
	lie := regions(3)
	lie.Node, lie.Incarnation = "a", inc
	advert := func(edit func(*cluster.Table)) []byte {
		l := *lie
		edit(&l)
		return cluster.AppendTable([]byte{byte(kindAdvert)}, &l)
	}
	// The table is accepted for a moment, until a receives it.
	for v := uint64(5); v < 8; v++ {
		e.tell(t, b, advert(func(l *cluster.Table) { l.Version = v }))
	}
	eventually(t, a.Members, "a refutes", func() bool { return a.Stats().Refuted > 0 })
	for _, x := range []*node{a, b, c} {
		eventually(t, x.Members, x.cfg.NodeID+" has the truth again", func() bool {
			p := x.View().Member("a")
			// Either the last forged table is accepted, and a's goes above it, or a's has
			// come that far already.
			return hasTable(x.Members, "a", truth) && p.TableVersion >= 7 && p.TableVersion == a.Table("a").Version
		})
	}
	// Never believed.
	bad := b.Stats().Malformed
	e.tell(t, b, advert(func(l *cluster.Table) { l.Version = 1 << 40 }))                  // out of reach
	e.tell(t, b, advert(func(l *cluster.Table) { l.Version, l.Incarnation = 99, inc+1 })) // of another life
	e.tell(t, b, advert(func(l *cluster.Table) { l.Version, l.Node = 99, "nobody" }))     // of no node
	large := regions(cluster.MaxGossip + 1)
	large.Node, large.Incarnation, large.Version = "a", inc, 99
	e.tell(t, b, cluster.AppendTable([]byte{byte(kindAdvert)}, large)) // too large
	for _, kind := range []byte{1, 3, 4} {
		e.tell(t, b, []byte{kind, 1, 2, 3}) // of an earlier build: ignored, and not malformed
	}
	e.tell(t, b, goodbye{"c", 12345}.append(nil))
	e.tell(t, b, goodbye{"c", cluster.Hash("c")}.append(nil)) // c is alive, whatever it says
	e.tell(t, b, []byte{0})
	e.tell(t, b, bytes.Repeat([]byte{byte(kindAdvert)}, 2000))
	rng := rand.New(rand.NewPCG(1, 2)) // fixed: the sequence is the same each time
	for range 100 {
		junk := make([]byte, 1+rng.IntN(300))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		junk[0] = []byte{byte(kindGoodbye), byte(kindAdvert), byte(kindProve), byte(kindVerdict)}[rng.IntN(4)]
		e.tell(t, b, junk)
	}
	e.state = []byte("no state at all")
	if _, err := e.Join([]string{string(b.end.addr)}); err != nil {
		t.Fatal(err)
	}
	e.state = (&state{from: "enemy", digests: []digest{{cluster.Hash("a"), inc, 1 << 50, 7}, {cluster.Hash("b"), cluster.Hash("b"), 4, 4}}}).append(nil)
	if _, err := e.Join([]string{string(b.end.addr)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "what is malformed is counted", func() bool { return b.Stats().Malformed > bad+50 })
	truth = regions(300) // too large for a packet of gossip
	if err := a.Publish(truth); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*node{b, c} {
		eventually(t, x.Members, x.cfg.NodeID+" still learns", func() bool { return hasTable(x.Members, "a", truth) })
	}
	if s := stateOf(b.Members, "c"); s != cluster.Alive {
		t.Errorf("c is %v for b after a forged goodbye", s)
	}
}

// TestFalseTeller: a member that names a table in its metadata and never gives it
// costs a push/pull now and then, and a member that brings wrong tables with its
// push/pulls is not believed for long: the node itself mends both.
func TestFalseTeller(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	b := launch(t, n, "b", joining(a))
	e := infiltrate(t, n, "enemy", goodMeta(t))
	if _, err := e.Join([]string{string(a.end.addr)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "the enemy is in", func() bool { return stateOf(b.Members, "enemy") == cluster.Alive })
	// The enemy's own table: named in its metadata, and never given.
	meta, err := cluster.AppendMeta(nil, &cluster.Member{Role: cluster.RoleServer, Incarnation: 13, TableVersion: 3, TableDigest: 4, Regions: 5})
	if err != nil {
		t.Fatal(err)
	}
	e.meta = meta
	if err := e.UpdateNode(patience); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "b looks for it", func() bool { return b.Stats().Mended >= 2 })
	if b.Table("enemy") != nil {
		t.Error("a table from nowhere")
	}
	truth := regions(100)
	if err := a.Publish(truth); err != nil {
		t.Fatal(err)
	}
	eventually(t, b.Members, "others are not held up", func() bool { return hasTable(b.Members, "a", truth) })

	// Tables of a that a never made: one that claims to be newer, and one of the same
	// version as a's.
	for _, ahead := range []uint64{3, 0} {
		lie := regions(7)
		lie.Node, lie.Incarnation, lie.Version = "a", cluster.Hash("a"), a.Table("a").Version+ahead
		e.state = (&state{from: "enemy", digests: make([]digest, 1), tables: [][]byte{cluster.AppendTable(nil, lie)}}).append(nil)
		if _, err := e.Join([]string{string(b.end.addr)}); err != nil {
			t.Fatal(err)
		}
		eventually(t, b.Members, "b has the truth again", func() bool {
			return a.Stats().Refuted > 0 && hasTable(b.Members, "a", truth) && b.Table("a").Version == a.Table("a").Version
		})
	}
}

// A cluster takes MaxNodes members and no more, and the dead make room.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	n := newMemNet()
	a := launch(t, n, "a", nil)
	calls := callbacks{a.Members}
	meta := goodMeta(t)
	name := func(i int) string { return fmt.Sprintf("n%04d", i) }
	for i := range cluster.MaxNodes + 50 {
		x := &memberlist.Node{Name: name(i), Addr: []byte{10, 9, 9, 9}, Port: 1, Meta: meta}
		if calls.NotifyAlive(x) == nil {
			calls.NotifyJoin(x)
		}
	}
	eventually(t, a.Members, "the view is full", func() bool { return len(a.View().Members) == cluster.MaxNodes })
	if err := a.View().Check(); err != nil {
		t.Error(err)
	}
	late := &memberlist.Node{Name: "late", Addr: []byte{10, 9, 9, 9}, Port: 1, Meta: meta}
	if err := calls.NotifyAlive(late); err == nil {
		t.Error("one more is let in")
	}
	calls.NotifyLeave(&memberlist.Node{Name: name(0)})
	if err := calls.NotifyAlive(late); err != nil {
		t.Errorf("a dead one makes no room: %v", err)
	}
	if err := calls.NotifyMerge(make([]*memberlist.Node, cluster.MaxNodes+1)); err == nil {
		t.Error("a list that is too long is merged")
	}
}

// A member whose address is none is not let in, because a view with it could not be
// encoded.
func TestBadAddressesStayOut(t *testing.T) {
	t.Parallel()
	a := launch(t, newMemNet(), "a", nil)
	calls := callbacks{a.Members}
	for _, length := range []int{0, 1, 5, 15, 17, 100} {
		x := &memberlist.Node{Name: fmt.Sprintf("n%d", length), Addr: make([]byte, length), Port: 1, Meta: goodMeta(t)}
		if err := calls.NotifyAlive(x); err == nil {
			t.Errorf("an address of %d bytes is let in", length)
			calls.NotifyJoin(x)
		}
	}
	a.publishView()
	if err := a.View().Check(); err != nil {
		t.Errorf("the view: %v", err)
	}
	for _, length := range []int{4, 16} {
		if err := calls.NotifyAlive(&memberlist.Node{Name: "good", Addr: make([]byte, length), Port: 1, Meta: goodMeta(t)}); err != nil {
			t.Errorf("an address of %d bytes: %v", length, err)
		}
	}
}
