package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/peer"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/world"
	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/wait"
)

// A believer is a router with a map of replicas that no node has told it.
type believer struct {
	*Router
	*clienttest.Replicas
	t *testing.T
}

func newBeliever(t *testing.T, nodes, groups int) *believer {
	return believing(t, clienttest.ReplicaCluster(t, nodes, 3, groups))
}

// believing is a believer of these nodes.
func believing(t *testing.T, r *clienttest.Replicas) *believer {
	cfg := &base.Config{
		Servers: []string{r.Nodes[0].Addr}, Fabrics: []rdma.Fabric{r.Nodes[0].Server}, DialOnce: true, Timeout: 5 * time.Second, DialTimeout: 3 * time.Second,
		LeaseKeep: -1, CacheEntries: 64, MaxInflight: 4, MaxWaiting: 64, MaxReads: 64, BufferBytes: 1 << 20, StagingBytes: 1 << 20,
		Wait: wait.Event, Logger: slog.New(slog.DiscardHandler),
	}
	b := &believer{newRouter(cfg, world.World{}), r, t}
	t.Cleanup(func() { b.Close() })
	b.Install(r.Map)
	return b
}

// seat is the group of a key, as the table has it.
func (b *believer) seat(key string) *group {
	return b.table.Load().led[cluster.ShardOf([]byte(key), clienttest.ClusterShards)]
}

// is compares where calls for a key are led.
func (b *believer) is(what, key, node string) {
	b.t.Helper()
	p, err := b.Owner([]byte(key))
	if err != nil || p.Node != node {
		b.t.Errorf("%s: led to %v, %v; want %s", what, p.Node, err, node)
	}
}

// peer is that of a node.
func (b *believer) peer(node string) *peer.Peer {
	b.t.Helper()
	p, err := b.Router.Peer(node)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// says has a node say that another leads the key's group.
func (b *believer) says(by, key, leader string, term uint64) step {
	b.t.Helper()
	p, err := b.Router.Peer(by)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.table.Load().heed(b.t.Context(), p, []byte(key), &session.NotLeader{Group: b.GroupOf(key).ID, Term: term, Leader: leader})
}

// TestWhoIsBelieved: the first replica is, until another is named in a higher term.
func TestWhoIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 4, 1)
		const key = "k"
		at := b.At(key)
		n0, n1, n2 := at[0].ID, at[1].ID, at[2].ID
		var stranger string
		for _, n := range b.Nodes {
			if b.seat(key).nodes[b.seat(key).at(n.ID)] != n.ID {
				stranger = n.ID
			}
		}
		steps := func(what string, got, want step) {
			t.Helper()
			if got != want {
				t.Errorf("%s: step %d, want %d", what, got, want)
			}
		}
		b.is("at first", key, n0)
		steps("named", b.says(n0, key, n2, 3), stepLed)
		b.is("named", key, n2)
		steps("another in the same term", b.says(n2, key, n1, 3), stepRest)
		b.is("two leaders of a term: the next one is tried", key, n0)
		steps("an older term", b.says(n0, key, n2, 2), stepRest)
		b.is("an older term", key, n1)
		steps("by one that was left already", b.says(n0, key, n2, 2), stepLed)
		b.is("by one that was left already", key, n1)
		steps("nobody was told to lead the term", b.says(n1, key, n2, 3), stepLed)
		b.is("nobody was told to lead the term", key, n2)
		steps("a higher term", b.says(n1, key, n0, 4), stepLed)
		b.is("a higher term", key, n0)
		for _, named := range []string{"nobody's node", n0, ""} {
			b.seat(key).seat.Store(&leader{node: n0, term: 4, told: true})
			steps("names "+named, b.says(n0, key, named, 9), stepRest)
			b.is("names "+named, key, n1)
			if term := b.seat(key).seat.Load().term; term != 9 {
				t.Errorf("term %d", term)
			}
		}
		// A node of the map that has no replica by it may have one by now. It has none, and is left.
		b.seat(key).seat.Store(&leader{node: n0, term: 4, told: true})
		steps("names a stranger", b.says(n0, key, stranger, 9), stepLed)
		b.is("names a stranger", key, stranger)
		b.table.Load().heed(t.Context(), b.peer(stranger), []byte(key), &session.Moved{Version: 1})
		b.is("the stranger has none", key, n0)
		b.seat(key).seat.Store(&leader{node: n1, term: 9})
		// What is said of another group is of no use.
		p, _ := b.Router.Peer(n1)
		steps("another group", b.table.Load().heed(t.Context(), p, []byte(key), &session.NotLeader{Group: 77, Term: 99, Leader: n2}), stepRest)
		if h := b.seat(key).seat.Load(); h.term != 9 || h.node != n2 || h.told {
			t.Errorf("%+v", h)
		}
		// The highest term there can be is no reason to stay with anybody for ever.
		b.says(n2, key, n0, math.MaxUint64)
		b.is("the last term", key, n0)
		steps("the last term", b.says(n0, key, n1, 10), stepRest)
		b.is("the last term", key, n1)
	})
}

// TestWhatIsHeeded: what becomes of a call by what it has failed with, and whether its node is left.
func TestWhatIsHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		at := b.At("k")
		over, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		for _, c := range []struct {
			err   error
			ctx   context.Context
			want  step
			stays bool
		}{
			{base.ErrLost, t.Context(), stepRest, false},
			{base.ErrLate, t.Context(), stepRest, false},
			{base.NotSent(base.ErrClosing), t.Context(), stepRest, false},
			{fmt.Errorf("%w: refused", base.ErrUnavailable), t.Context(), stepRest, false},
			{base.Because(base.ErrOverloaded, base.ErrTimeout), t.Context(), stepRest, false},
			{base.ErrOutcomeUnknown, t.Context(), stepRest, false},
			{&base.Error{Err: context.DeadlineExceeded}, t.Context(), stepRest, false},
			{&session.Moved{Owner: "n9", Version: 2}, t.Context(), stepMap, false},
			{&session.Moved{Owner: "n9", Version: 1, Digest: b.Replicas.Map.Digest() + 1}, t.Context(), stepMap, false},
			{&session.Moved{Owner: "n9", Version: 1, Digest: b.Replicas.Map.Digest()}, t.Context(), stepRest, false}, // it is about to
			{&session.Moved{Owner: "n9"}, t.Context(), stepRest, false},                                              // of an older map
			{base.ErrNoMap, t.Context(), stepRest, false},
			{base.ErrClosed, t.Context(), stepMap, false},
			{ErrPutOff, t.Context(), stepRest, true},
			{base.ErrOverloaded, t.Context(), stepOver, true},
			{base.ErrUnsupported, t.Context(), stepOver, true},
			{base.ErrDenied, t.Context(), stepOver, true},
			{base.ErrProtocol, t.Context(), stepOver, true},
			{base.Because(base.ErrMoved, errors.New("it does not parse")), t.Context(), stepOver, true},
			{fmt.Errorf("%w: %w", base.ErrUnavailable, context.Canceled), t.Context(), stepOver, true},
			{base.ErrTimeout, over, stepRest, false}, // there is no session that has spoken lately
		} {
			b.seat("k").seat.Store(&leader{node: at[1].ID, term: 5, told: true})
			p, _ := b.Router.Peer(at[1].ID)
			if got := b.table.Load().heed(c.ctx, p, []byte("k"), c.err); got != c.want {
				t.Errorf("%v: step %d, want %d", c.err, got, c.want)
			}
			h := b.seat("k").seat.Load()
			if stays := h.node == at[1].ID; stays != c.stays || h.term != 5 || h.told != stays || !stays && h.node != at[2].ID {
				t.Errorf("%v: %+v", c.err, h)
			}
			// A node that is not believed to lead any more changes nothing.
			if b.seat("k").seat.Store(&leader{node: at[0].ID}); b.table.Load().heed(c.ctx, p, []byte("k"), c.err) == c.want && b.seat("k").seat.Load().node != at[0].ID {
				t.Errorf("%v of another node: %+v", c.err, b.seat("k").seat.Load())
			}
		}
	})
}

// TestSeatsOverMaps: beliefs of groups that stay are kept, as far as their node has a replica still.
func TestSeatsOverMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 4, 2)
		keys := map[uint32]string{}
		for i := range 100 {
			k := fmt.Sprintf("k%d", i)
			keys[b.GroupOf(k).ID] = k
		}
		k1, k2 := keys[1], keys[2]
		at := b.At(k1)
		b.says(at[0].ID, k1, at[2].ID, 7)
		old := b.seat(k1)
		next := *b.Router.Map()
		next.Version++
		b.Install(&next)
		b.is("the next map", k1, at[2].ID)
		b.is("of the other group", k2, b.At(k2)[0].ID)
		if h := b.seat(k1).seat.Load(); h.term != 7 || !h.told {
			t.Errorf("%+v", h)
		}
		// A call of the old table still counts.
		old.leave(at[2].ID, 8)
		if h := b.seat(k1).seat.Load(); h.node == at[2].ID || h.term != 8 {
			t.Errorf("%+v", h)
		}
		// The believed leader has no replica any more.
		b.seat(k1).seat.Store(&leader{node: at[2].ID, term: 9, told: true})
		repl := *next.Replication
		repl.Groups = append([]cluster.Group(nil), repl.Groups...)
		repl.Groups[0].Replicas = repl.Groups[0].Replicas[:2]
		without := next
		without.Version, without.Replication = next.Version+1, &repl
		b.Install(&without)
		b.is("without it", k1, at[0].ID)
		if b.Owns(at[0].ID, []byte(k1)) {
			t.Error("the memory of a replica is believed")
		}
		// A map without replicas is none of this cluster.
		alone := without
		alone.Version, alone.Replication = without.Version+1, nil
		b.Router.mu.Lock()
		err := b.learnMapLocked("n1", &alone)
		b.Router.mu.Unlock()
		if !errors.Is(err, base.ErrOtherCluster) {
			t.Error(err)
		}
	})
}

// connect has a router in place of the believer's that reaches the nodes.
func (b *believer) connect() *Router {
	b.t.Helper()
	dialed, err := Dial(world.With(b.t.Context(), world.World{Heap: true}), b.Router.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Router.Close()
	b.Router = dialed
	return dialed
}

// TestAwayIsNotFollowed: no call is led to a node that cannot be reached while there is another, not even
// if it is named; it is looked for, and followed when it is back.
func TestAwayIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		defer b.connect().Close()
		at := b.At("k")
		connect := func(n *clienttest.Node) *peer.Peer {
			p, err := b.Router.Peer(n.ID)
			if err != nil {
				t.Fatal(err)
			}
			l := p.Begin(t.Context())
			if _, err := p.Session(&l); err != nil {
				t.Fatal(err)
			}
			return p
		}
		p0 := connect(at[0])
		connect(at[1])
		connect(at[2])
		b.is("all are there", "k", at[0].ID)
		b.Stop(at[0])
		synctest.Wait()
		if !p0.Replica.Away() {
			t.Error("it is not away")
		}
		b.is("it is away", "k", at[1].ID)
		if next := b.says(at[1].ID, "k", at[0].ID, 6); next != stepRest {
			t.Errorf("step %d", next)
		}
		b.is("it is named", "k", at[2].ID)

		// Nobody else asks for it, and after a while it is not looked for.
		time.Sleep(40 * time.Second)
		b.Start(at[0])
		time.Sleep(5 * time.Second)
		if !p0.Replica.Away() {
			t.Error("it was looked for")
		}
		b.says(at[2].ID, "k", at[0].ID, 6)
		time.Sleep(150 * time.Millisecond)
		if p0.Replica.Away() {
			t.Error("it was not looked for")
		}
		b.says(at[1].ID, "k", at[0].ID, 6)
		b.is("it is back", "k", at[0].ID)

		// All are away: a call goes to one after the other.
		for _, n := range at {
			b.Stop(n)
		}
		synctest.Wait()
		seen := map[string]bool{}
		for range 3 {
			p, _ := b.Owner([]byte("k"))
			seen[p.Node] = true
			b.table.Load().heed(t.Context(), p, []byte("k"), base.ErrUnavailable)
		}
		if len(seen) != 3 {
			t.Errorf("asked %v", seen)
		}
	})
}

// TestSilentIsNotFollowed: a node that has said nothing to a call is not gone back to for a moment, though others name it, because they have not
// noticed yet; unless they name it in a higher term. After that, or when it says something, it is.
func TestSilentIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		defer b.connect().Close()
		at := b.At("k")
		p0, err := b.Router.Peer(at[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		hear := func() {
			l := p0.Begin(t.Context())
			s, err := p0.Session(&l)
			if err == nil {
				_, err = s.FetchNews(&l)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		hear()
		time.Sleep(time.Second)
		silence := func() {
			b.seat("k").seat.Store(&leader{node: at[0].ID, term: 6, told: true})
			b.table.Load().heed(t.Context(), p0, []byte("k"), base.ErrLate)
		}
		silence()
		b.is("it was silent", "k", at[1].ID)
		if next := b.says(at[1].ID, "k", at[0].ID, 6); next != stepRest {
			t.Errorf("step %d", next)
		}
		b.is("it is named by the next one", "k", at[2].ID)
		b.says(at[2].ID, "k", at[0].ID, 6)
		b.is("by both: the call goes on among those that answer", "k", at[1].ID)
		b.says(at[1].ID, "k", at[0].ID, 7)
		b.is("it leads a higher term", "k", at[0].ID)
		// Who has never been told a term takes none for a new one.
		b.seat("k").seat.Store(&leader{node: at[0].ID})
		b.table.Load().heed(t.Context(), p0, []byte("k"), base.ErrLate)
		b.says(at[1].ID, "k", at[0].ID, 6)
		b.is("it is named for a term of which nobody had told", "k", at[2].ID)
		b.says(at[2].ID, "k", at[0].ID, 6)
		b.is("by both", "k", at[1].ID)
		b.says(at[1].ID, "k", at[0].ID, 7)
		b.is("it leads a higher term", "k", at[0].ID)
		silence()
		time.Sleep(peer.Muted + 300*time.Millisecond)
		b.says(at[1].ID, "k", at[0].ID, 6)
		b.is("after a while", "k", at[0].ID)
		silence()
		time.Sleep(200 * time.Millisecond)
		hear()
		b.says(at[1].ID, "k", at[0].ID, 6)
		b.is("it was heard", "k", at[0].ID)
		// One that was lost, or refused, was not silent.
		b.seat("k").seat.Store(&leader{node: at[0].ID, term: 6, told: true})
		b.table.Load().heed(t.Context(), p0, []byte("k"), base.ErrLost)
		b.says(at[1].ID, "k", at[0].ID, 6)
		b.is("it was lost for a moment", "k", at[0].ID)
	})
}

// TestSeekRests: however many calls look for a node, it is not asked for a connection more often than by
// calls that wait.
func TestSeekRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		at := b.At("k")
		for _, n := range b.Nodes {
			b.Stop(n)
		}
		p, _ := b.Router.Peer(at[2].ID)
		b.Router.ways[at[2].ID] = []string{at[2].Addr}
		for range 600 { // longer than an idle connector looks
			p.Replica.Seek()
			time.Sleep(100 * time.Millisecond)
		}
		if n := at[2].Dials.Load(); n < 300 || n > 1500 {
			t.Errorf("%d connections were asked for", n)
		}
	})
}

// TestLiars: a call that two nodes send to each other, in ever higher terms, rests and ends with its time.
func TestLiars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 1)
		at := b.At("k")
		var way Reroute
		defer way.End()
		ctx, tries, begun := t.Context(), 0, time.Now()
		var err error
		for term := uint64(1); ctx != nil; term++ {
			p, _ := b.Owner([]byte("k"))
			other := at[0].ID
			if p.Node == other {
				other = at[1].ID
			}
			err = &base.Error{Op: "get", Node: p.Node, Err: &session.NotLeader{Group: b.GroupOf("k").ID, Term: term, Leader: other}}
			ctx = b.Again(ctx, &way, p, []byte("k"), err)
			tries++
		}
		if took := time.Since(begun); took != 5*time.Second || tries > 120 {
			t.Errorf("%d tries in %v", tries, took)
		}
		err = way.Because(err)
		if !errors.Is(err, base.ErrUnavailable) || !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrMoved) {
			t.Error(err)
		}
		t.Log(err)
	})
}

// TestUnled: what an error says that has looked for a leader in vain, and what it is none of.
func TestUnled(t *testing.T) {
	over := context.DeadlineExceeded
	for _, c := range []struct {
		why     error
		is, not []error
	}{
		{&session.NotLeader{Group: 3}, nil, []error{base.ErrMoved}},
		{base.ErrLost, nil, []error{base.ErrLost}},
		{base.Because(base.ErrUnavailable, base.ErrAuth), []error{base.ErrAuth}, nil},
		{base.Because(base.ErrOverloaded, base.ErrTimeout), []error{base.ErrOverloaded}, nil},
	} {
		err := unled(c.why, over)
		for _, is := range append(c.is, base.ErrUnavailable, base.ErrTimeout, over) {
			if !errors.Is(err, is) {
				t.Errorf("%v is no %v", err, is)
			}
		}
		for _, not := range c.not {
			if errors.Is(err, not) {
				t.Errorf("%v is %v", err, not)
			}
		}
		if err := unled(c.why, context.Canceled); err != context.Canceled {
			t.Error(err)
		}
	}
}

// TestShares: all keys are the groups, each once, in whatever order the map has their shards; and a call for a group is led as one for a key of it.
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBeliever(t, 3, 3)
		shares, err := Shares(t.Context(), b.Router)
		seen := map[uint32]bool{}
		for _, s := range shares {
			seen[s.Group] = true
		}
		if err != nil || len(shares) != 3 || len(seen) != 3 || seen[0] {
			t.Fatalf("%+v, %v", shares, err)
		}
		s, at := Share{Group: b.GroupOf("k").ID}, b.At("k")
		is := func(what, node string) *peer.Peer {
			t.Helper()
			p, err := s.At(b.Router)
			if err != nil || p.Node != node {
				t.Errorf("%s: led to %v, %v; want %s", what, p.Node, err, node)
			}
			b.is(what, "k", node)
			return p
		}
		p := is("at first", at[0].ID)
		var way Reroute
		defer way.End()
		ctx := s.Again(t.Context(), b.Router, &way, p, &session.NotLeader{Group: s.Group, Term: 3, Leader: at[2].ID})
		if ctx == nil {
			t.Fatal("it is not asked for again")
		}
		p = is("named", at[2].ID)
		begun := time.Now()
		if ctx = s.Again(ctx, b.Router, &way, p, base.ErrLost); ctx == nil || time.Since(begun) == 0 {
			t.Fatal("it is not asked for again, behind a rest")
		}
		is("lost", at[0].ID)
		if s.Again(ctx, b.Router, &way, p, base.ErrUnsupported) != nil {
			t.Error("what a node does not do is asked for again")
		}
		gone := Share{Group: 77}
		if _, err := gone.At(b.Router); !errors.Is(err, base.ErrMoved) || gone.Again(t.Context(), b.Router, &way, p, base.ErrLost) != nil {
			t.Errorf("a group that is not there: %v", err)
		}
	})
}
