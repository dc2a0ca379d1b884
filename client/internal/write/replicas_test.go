package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/client/internal/route"
	"github.com/rdmakv/rdmakv/client/internal/session"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// keyOfGroup is a key of the group at an index.
func keyOfGroup(m *cluster.Map, group int) []byte {
	for i := 0; ; i++ {
		key := fmt.Appendf(nil, "of %d", i)
		if int(m.Replication.Group[cluster.ShardOf(key, len(m.Owner))]) == group {
			return key
		}
	}
}

// withReplicas runs f with three nodes that have replicas of all groups, and a router that
// knows it. Every name must be free when it is done.
func withReplicas(t *testing.T, groups int, f func(t *testing.T, r *clienttest.Replicas, rt *route.Router)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaCluster(t, 3, 3, groups)
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = []string{r.Nodes[0].Addr}
		rt := dial(t, cfg, clienttest.NewClock())
		defer rt.Close()
		f(t, r, rt)
		synctest.Wait()
		// The slots of each group are free, and no other group has them.
		m := r.Nodes[0].Map
		seen, slots := map[uint16]int{}, 0
		for g := range groups {
			names := rt.Names(keyOfGroup(m, g))
			for id, ok := names.TryTake(); ok; id, ok = names.TryTake() {
				if other, ok := seen[id.Slot]; ok {
					t.Fatalf("groups %d and %d have slot %d", other, g, id.Slot)
				}
				seen[id.Slot] = g
				slots++
			}
		}
		if want := groups * cfg.MaxInflight; slots != want {
			t.Errorf("%d of %d names are free", slots, want)
		}
		if n := r.Clients(); n != 1 {
			t.Errorf("the nodes know %d clients", n)
		}
	})
}

// first has the first request of each key meet a fate, others none.
func first(fate clienttest.Fate) func(clienttest.Copied) clienttest.Fate {
	seen := map[string]bool{}
	return func(c clienttest.Copied) clienttest.Fate {
		if seen[c.Key] {
			return clienttest.Fate{}
		}
		seen[c.Key] = true
		return fate
	}
}

// A way is a way to write a key.
type way struct {
	name string
	do   func(ctx context.Context, rt *route.Router, key string) error
}

// ways are all of them.
var ways = []way{
	{"put", func(ctx context.Context, rt *route.Router, key string) error {
		w, err := NewPut([]byte(key), []byte("v"), wire.Terms{})
		if err != nil {
			return err
		}
		return Do(ctx, rt, "put", &w)
	}},
	{"large", func(ctx context.Context, rt *route.Router, key string) error {
		w, err := NewPut([]byte(key), make([]byte, 100<<10), wire.Terms{})
		if err != nil {
			return err
		}
		return Do(ctx, rt, "put", &w)
	}},
	{"delete", func(ctx context.Context, rt *route.Router, key string) error {
		w, err := NewDelete([]byte(key), 0)
		if err != nil {
			return err
		}
		return Do(ctx, rt, "delete", &w)
	}},
	{"increment", func(ctx context.Context, rt *route.Router, key string) error {
		w, err := NewIncrement([]byte(key), 1)
		if err != nil {
			return err
		}
		return Do(ctx, rt, "increment", &w)
	}},
	{"batch", func(ctx context.Context, rt *route.Router, key string) error {
		w := NewBatch(wire.AppendBatchPart(nil, wire.BatchPart{Key: []byte(key), Value: []byte("v")}), 1)
		return Do(ctx, rt, "batch", &w)
	}},
	{"async", func(ctx context.Context, rt *route.Router, key string) error {
		p, err := Async(rt).Put(ctx, []byte(key), []byte("v"))
		if err == nil {
			_, err = p.Wait()
		}
		return err
	}},
	{"many", func(ctx context.Context, rt *route.Router, key string) error {
		return Many(ctx, rt, []base.Pair{{Key: []byte(key), Value: []byte("v")}})
	}},
	{"many large", func(ctx context.Context, rt *route.Router, key string) error {
		return Many(ctx, rt, []base.Pair{{Key: []byte(key), Value: make([]byte, 100<<10)}})
	}},
}

// TestOnceOverReplicas: whatever becomes of the first copy, a write in each of the ways is sent
// again under its name, to other replicas too, and takes effect once.
func TestOnceOverReplicas(t *testing.T) {
	fates := []struct {
		name  string
		fate  clienttest.Fate
		moves bool // the copy comes to another node
		fell  bool // another node leads then
	}{
		{"answered", clienttest.Fate{}, false, false},
		{"lost after it took effect", clienttest.Fate{Cut: true}, true, true},
		{"lost before", clienttest.Fate{Cut: true, Undone: true}, true, true},
		{"lost, and the node leads still", clienttest.Fate{Cut: true}, true, false},
		{"silent", clienttest.Fate{Silent: true}, true, true},
		{"unknown", clienttest.Fate{Status: wire.StatusUnknown}, true, true},
		{"unknown and undone", clienttest.Fate{Status: wire.StatusUnknown, Undone: true}, true, true},
		{"closing", clienttest.Fate{Status: wire.StatusClosing, Undone: true}, true, true},
		{"overloaded", clienttest.Fate{Status: wire.StatusOverloaded, Undone: true}, false, false},
	}
	for _, way := range ways {
		for _, fc := range fates {
			t.Run(way.name+"/"+fc.name, func(t *testing.T) {
				withReplicas(t, 2, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
					const key = "a key"
					at := r.At(key)
					n := 0
					r.Draw(func(clienttest.Copied) clienttest.Fate {
						if n++; n > 1 {
							return clienttest.Fate{}
						}
						if fc.fell {
							go r.Elect(key, at[1])
						}
						return fc.fate
					})
					if err := way.do(t.Context(), rt, key); err != nil {
						t.Fatal(err)
					}
					copies := r.Copies()
					if r.Done(key) != 1 {
						t.Errorf("it took effect %d times: %+v", r.Done(key), copies)
					}
					for _, c := range copies {
						if c.ID.Slot != copies[0].ID.Slot || c.ID.Seq != copies[0].ID.Seq {
							t.Errorf("another name: %+v", copies)
						}
					}
					moved := slices.ContainsFunc(copies, func(c clienttest.Copied) bool { return c.Node != at[0].ID })
					if copies[0].Node != at[0].ID || moved != fc.moves {
						t.Errorf("copies at %+v", copies)
					}
				})
			})
		}
	}
}

// TestHintIsKept: who leads is learned from one answer, for all calls and all ways.
func TestHintIsKept(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				at := r.At("k")
				r.Elect("k", at[2])
				r.Draw(nil)
				begun := time.Now()
				for range 3 {
					if err := way.do(t.Context(), rt, "k"); err != nil {
						t.Fatal(err)
					}
				}
				var nodes []string
				for _, c := range r.Copies() {
					nodes = append(nodes, c.Node)
				}
				if want := []string{at[0].ID, at[2].ID, at[2].ID, at[2].ID}; !slices.Equal(nodes, want) {
					t.Errorf("asked %v, want %v", nodes, want)
				}
				if took := time.Since(begun); took > time.Millisecond {
					t.Errorf("where the leader is told nothing waits: %v", took)
				}
				c := r.Copies()
				if c[0].ID.AgeMillis != 0 || c[0].ID.Slot != c[1].ID.Slot || c[0].ID.Seq != c[1].ID.Seq {
					t.Errorf("names %+v", c)
				}
			})
		})
	}
}

// TestNotLeaderIsDefinite: a write that no replica took has changed nothing, and its error says so; one
// of which a copy may have taken effect is unknown, whatever was said afterwards.
func TestNotLeaderIsDefinite(t *testing.T) {
	// However the time ends in which the call could go on, what a node said of itself is not what has happened to the call.
	withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		p, err := rt.Owner([]byte("k"))
		if err != nil {
			t.Fatal(err)
		}
		said := &base.Error{Op: "put", Err: &session.NotLeader{Group: r.GroupOf("k").ID, Leader: r.At("k")[1].ID, Term: 2}}
		for want, end := range map[error]func(context.Context) (context.Context, context.CancelFunc){
			context.Canceled: context.WithCancel,
			base.ErrTimeout: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithDeadline(ctx, time.Now())
			},
		} {
			ctx, cancel := end(t.Context())
			cancel()
			var way route.Reroute
			if next := rt.Again(ctx, &way, p, []byte("k"), said); next != nil {
				t.Errorf("%v: the call goes on", want)
			}
			if err := way.Because(said); !errors.Is(err, want) || errors.Is(err, base.ErrMoved) {
				t.Errorf("%v: %v", want, err)
			}
			way.End()
		}
	})
	for _, way := range ways {
		for _, sent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", way.name, sent), func(t *testing.T) {
				withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
					if !sent {
						r.Elect("k", nil)
					}
					n := 0
					r.Draw(func(c clienttest.Copied) clienttest.Fate {
						if n++; n == 1 && sent {
							go r.Elect("k", nil)
							return clienttest.Fate{Cut: true}
						}
						return clienttest.Fate{}
					})
					begun := time.Now()
					err := way.do(t.Context(), rt, "k")
					if errors.Is(err, base.ErrOutcomeUnknown) != sent || !errors.Is(err, base.ErrUnavailable) || !errors.Is(err, base.ErrTimeout) || errors.Is(err, base.ErrMoved) {
						t.Error(err)
					}
					if !strings.Contains(err.Error(), "leader") {
						t.Errorf("it does not say why: %v", err)
					}
					if took := time.Since(begun); took < 4900*time.Millisecond || took > 6*time.Second {
						t.Errorf("it took %v", took)
					}
					if tries := len(r.Copies()); tries < 40 || tries > 120 { // a rest is 50 to 100 ms
						t.Errorf("%d tries", tries)
					}
					seen := map[string]int{}
					for _, c := range r.Copies() {
						seen[c.Node]++
					}
					if len(seen) != 3 {
						t.Errorf("asked %v", seen)
					}
					if got := rt.Counters().OutcomeUnknown; (got == 1) != sent {
						t.Errorf("%d unknown outcomes were counted", got)
					}
				})
			})
		}
	}
}

// TestAgeOverReplicas: the age of a write counts from its first copy, at whatever node that was.
func TestAgeOverReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaCluster(t, 3, 3, 1)
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = []string{r.Nodes[0].Addr}
		clock := clienttest.NewClock()
		rt := dial(t, cfg, clock)
		defer rt.Close()
		at := r.At("k")
		n := 0
		r.Draw(func(c clienttest.Copied) clienttest.Fate {
			if n++; n == 1 {
				go r.Elect("k", at[1])
				clock.Advance(3 * time.Second)
				return clienttest.Fate{Cut: true}
			}
			return clienttest.Fate{}
		})
		if err := putTo(t, rt, "k"); err != nil {
			t.Fatal(err)
		}
		c := r.Copies()
		if last := c[len(c)-1]; c[0].ID.AgeMillis != 0 || last.Node != at[1].ID || last.ID.AgeMillis < 3000 || last.ID.AgeMillis > 3010 {
			t.Errorf("%+v", c)
		}
	})
}

// TestAgeOfRefusedCopies: copies that replicas have refused did nothing, so the age of the write does not count from them: a replica that knows not all results
// of before would take it for a retry, and refuse it.
func TestAgeOfRefusedCopies(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := clienttest.ReplicaCluster(t, 3, 3, 1)
				cfg := newConfig(r.Nodes[0].Server)
				cfg.Servers = []string{r.Nodes[0].Addr}
				clock := clienttest.NewClock()
				rt := dial(t, cfg, clock)
				defer rt.Close()
				at := r.At("k")
				r.Elect("k", nil)
				n := 0
				r.Draw(func(c clienttest.Copied) clienttest.Fate {
					if n++; n == 3 {
						clock.Advance(3 * time.Second)
						go r.Elect("k", at[1])
					}
					return clienttest.Fate{}
				})
				if err := way.do(t.Context(), rt, "k"); err != nil {
					t.Fatal(err)
				}
				c := r.Copies()
				if last := c[len(c)-1]; len(c) < 4 || last.Node != at[1].ID || last.ID.AgeMillis != 0 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// TestTooOldForReplicas: what a replica may have forgotten stays unknown, and is not asked for
// until the caller's time is over.
func TestTooOldForReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaCluster(t, 3, 3, 1)
		cfg := newConfig(r.Nodes[0].Server)
		cfg.Servers = []string{r.Nodes[0].Addr}
		clock := clienttest.NewClock()
		rt := dial(t, cfg, clock)
		defer rt.Close()
		r.Draw(func(c clienttest.Copied) clienttest.Fate {
			clock.Advance(4 * time.Minute)
			return clienttest.Fate{Status: wire.StatusUnknown}
		})
		begun := time.Now()
		if err := putTo(t, rt, "k"); !errors.Is(err, base.ErrOutcomeUnknown) {
			t.Error(err)
		}
		if n := len(r.Copies()); n != 4 || time.Since(begun) > time.Second {
			t.Errorf("%d copies in %v", n, time.Since(begun))
		}
	})
}

// TestStagedAnew: a large value is staged where the next node READs it.
func TestStagedAnew(t *testing.T) {
	withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		at := r.At("k")
		r.Draw(first(clienttest.Fate{Silent: true}))
		go func() {
			time.Sleep(time.Millisecond)
			r.Elect("k", at[1])
		}()
		if err := ways[1].do(t.Context(), rt, "k"); err != nil {
			t.Fatal(err)
		}
		p, err := rt.Peer(at[1].ID)
		if err != nil {
			t.Fatal(err)
		}
		if n := p.Counters().StagingBytes; n == 0 {
			t.Error("nothing was staged for the second node")
		}
		at[0].Cut() // the first copy is over
		synctest.Wait()
		for _, n := range at {
			p, err := rt.Peer(n.ID)
			if err != nil {
				t.Fatal(err)
			}
			if s := p.Current(); s != nil && s.Device.Staging.Usage().Out != 0 {
				t.Errorf("%s: %d staging buffers are out", n.ID, s.Device.Staging.Usage().Out)
			}
		}
	})
}

// TestSlotsOverGroups: no two writes that are under way have one slot, at whatever nodes, and a slot's seq
// rises over all of them.
func TestSlotsOverGroups(t *testing.T) {
	withReplicas(t, 8, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		last := map[uint16]uint64{}
		r.Draw(func(c clienttest.Copied) clienttest.Fate {
			if c.ID.Seq <= last[c.ID.Slot] {
				t.Errorf("slot %d has seq %d behind %d", c.ID.Slot, c.ID.Seq, last[c.ID.Slot])
			}
			last[c.ID.Slot] = c.ID.Seq
			return clienttest.Fate{}
		})
		var pairs []base.Pair
		for i := range 100 {
			pairs = append(pairs, base.Pair{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")})
		}
		if err := Many(t.Context(), rt, pairs); err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs[:20] {
			if err := putTo(t, rt, string(p.Key)); err != nil {
				t.Fatal(err)
			}
			if n := r.Done(string(p.Key)); n != 2 {
				t.Errorf("%s took effect %d times", p.Key, n)
			}
		}
		nodes := map[string]bool{}
		for _, c := range r.Copies() {
			nodes[c.Node] = true
		}
		if len(nodes) != 3 {
			t.Errorf("all went to %v", nodes)
		}
	})
}

// TestManyOverAFall: the pairs of a MultiPut whose leader falls amid of it all take effect, once each.
func TestManyOverAFall(t *testing.T) {
	withReplicas(t, 3, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		var pairs []base.Pair
		for i := range 60 {
			pairs = append(pairs, base.Pair{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("v")})
		}
		for i := range 5 {
			pairs = append(pairs, base.Pair{Key: fmt.Appendf(nil, "large%d", i), Value: make([]byte, 50<<10)})
		}
		victim := r.At("k0")[0]
		var fall sync.Once
		n := 0
		r.Draw(func(c clienttest.Copied) clienttest.Fate {
			if c.Node != victim.ID {
				return clienttest.Fate{}
			}
			if n++; n < 3 {
				return clienttest.Fate{}
			}
			fall.Do(func() {
				go func() {
					r.Stop(victim)
					time.Sleep(300 * time.Millisecond)
					for _, p := range pairs {
						if at := r.At(string(p.Key)); at[0] == victim {
							r.Elect(string(p.Key), at[1])
						}
					}
				}()
			})
			return clienttest.Fate{Silent: true, Undone: n%2 == 0}
		})
		begun := time.Now()
		if err := Many(t.Context(), rt, pairs); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
		for _, p := range pairs {
			if n := r.Done(string(p.Key)); n != 1 {
				t.Errorf("%s took effect %d times", p.Key, n)
			}
		}
	})
}

// TestOwnQueues: a write that waits here, because others have all names, says nothing of a leader that answers.
func TestOwnQueues(t *testing.T) {
	for at, way := range append(ways, ways...) {
		tries := 16 // to a few at each replica, if it were left
		if at < len(ways) {
			tries = 4 // to one at the next replica
		}
		t.Run(fmt.Sprint(way.name, " ", tries), func(t *testing.T) {
			withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
				at := r.At("k")
				if err := putTo(t, rt, "other"); err != nil {
					t.Fatal(err)
				}
				r.Draw(nil)
				var ids []wire.RequestID
				names := rt.Names([]byte("k"))
				for id, ok := names.TryTake(); ok; id, ok = names.TryTake() {
					ids = append(ids, id)
				}
				stop := make(chan struct{})
				go func() { // the leader answers gets meanwhile
					defer close(stop)
					p, _ := rt.Peer(at[0].ID)
					for range tries {
						time.Sleep(100 * time.Millisecond)
						l := p.Begin(t.Context())
						sl, err := p.Current().Open(&l)
						if err != nil {
							t.Error(err)
							return
						}
						if r, err := sl.Call(&l, wire.AppendExists(sl.Buf[:0], sl.ID(), wire.Key{Key: []byte("other")})); err == nil {
							r.Done()
						}
					}
					for _, id := range ids {
						names.Put(id)
					}
				}()
				if err := way.do(t.Context(), rt, "k"); err != nil {
					t.Fatal(err)
				}
				<-stop
				for _, c := range r.Copies() {
					if c.Node != at[0].ID {
						t.Errorf("another node was asked: %+v", c)
					}
				}
				if n := r.Done("k"); n != 1 {
					t.Errorf("it took effect %d times", n)
				}
			})
		})
	}
}

// TestAsyncOverAFall: so do puts that nobody waits for, in the order of each key.
func TestAsyncOverAFall(t *testing.T) {
	withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		at := r.At("k")
		n := 0
		r.Draw(func(c clienttest.Copied) clienttest.Fate {
			if n++; n != 7 {
				return clienttest.Fate{}
			}
			go func() {
				r.Stop(at[0])
				time.Sleep(300 * time.Millisecond)
				r.Elect("k", at[1])
			}()
			return clienttest.Fate{Silent: true}
		})
		a := Async(rt)
		for i := range 40 {
			if _, err := a.Put(t.Context(), fmt.Appendf(nil, "k%d", i%10), fmt.Appendf(nil, "v%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			key := fmt.Sprintf("k%d", i)
			if r.Done(key) != 4 || r.Value(key) != fmt.Sprintf("v%d", 30+i) {
				t.Errorf("%s took effect %d times and has %q", key, r.Done(key), r.Value(key))
			}
		}
	})
}

// TestHostileReplica: replies that make no sense end neither a write that others can answer nor the client.
func TestHostileReplica(t *testing.T) {
	withReplicas(t, 1, func(t *testing.T, r *clienttest.Replicas, rt *route.Router) {
		// It says that it has done it, in words that make no sense: another one knows.
		at := r.At("k")
		hostile := at[0].OnRequest
		at[0].OnRequest = func(h wire.Header, msg []byte) ([]byte, bool) {
			out, ok := hostile(h, msg)
			if h.Type == wire.TypePut && ok {
				out[wire.HeaderSize+16] = 77
				go r.Elect("k", at[1])
			}
			return out, ok
		}
		if err := putTo(t, rt, "k"); err != nil || r.Done("k") != 1 {
			t.Errorf("%v; it took effect %d times", err, r.Done("k"))
		}
	})
}

// TestSharedNames: names are of the whole client where there are replicas, and of each peer where not.
func TestSharedNames(t *testing.T) {
	inCluster(t, func(t *testing.T, n1, n2 *clienttest.Node, r *route.Router) {
		if r.Names(nil) != nil {
			t.Error("shared names without replicas")
		}
		p1, _ := r.Peer("n1")
		p2, _ := r.Peer("n2")
		key := []byte("k")
		if p1.Names(key) == p2.Names(key) || p1.Names(key) != p1.IDs || p1.ClientID() == p2.ClientID() || p1.Led() {
			t.Error("peers share names without replicas")
		}
		// Such a peer is another client to a node than those with shared names.
		m := clienttest.Swapped(n1.Map)
		m.Replication = &cluster.Replication{Stores: [][16]byte{{1}, {2}}, Group: make([]uint16, len(m.Owner))}
		for i := range m.Owner {
			m.Owner[i] = 0
		}
		m.Replication.Groups = []cluster.Group{{ID: 1, Replicas: []cluster.Replica{{Node: 0, ID: 1}, {Node: 1, ID: 2}}}}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		r.Install(m)
		q1, _ := r.Peer("n1")
		q2, _ := r.Peer("n2")
		if q1.Names(key) != r.Names(key) || q2.Names(key) != r.Names(key) || r.Names(key) == nil || !q1.Led() || q1.ClientID() != q2.ClientID() {
			t.Error("peers of replicas do not share names")
		}
	})
}
