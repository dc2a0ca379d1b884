package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/internal/clienttest"
	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// onLater runs f with five nodes, the first three of which have the map and replicas of the only group, and a client that knows them.
func onLater(t *testing.T, f func(t *testing.T, r *clienttest.Replicas, c *client.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := clienttest.ReplicaClusterBut(t, 5, 2, 3, 1)
		r.Words()
		r.Live()
		c := dialLive(t, r, 20*time.Second)
		defer c.Close()
		beating, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for beating.Err() == nil {
				for _, n := range r.Nodes {
					n.Tick()
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
		defer wg.Wait()
		defer stop()
		f(t, r, c)
	})
}

// putAndGet writes and reads a key, and says how long that took.
func putAndGet(t *testing.T, c *client.Client, value string) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := c.Put(t.Context(), []byte("k"), []byte(value)); err != nil {
		t.Fatalf("put: %v", err)
	}
	if v, err := c.Get(t.Context(), []byte("k")); err != nil || string(v) != value {
		t.Fatalf("get: %q, %v", v, err)
	}
	return time.Since(begun)
}

// names are those of nodes.
func names(nodes ...*clienttest.Node) (list []string) {
	for _, n := range nodes {
		list = append(list, n.ID)
	}
	return list
}

// A replica that leads is found by the word of another one, although no map has it yet, and for as long as none has. The client asks for a map
// a few times only.
func TestFleetLeaderBeforeItsMap(t *testing.T) {
	onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		putAndGet(t, c, "0")
		fourth := r.Nodes[3]
		r.Grow(1, fourth)
		r.Inform(fourth) // the map of the others, in which it is not
		r.Reign(1, fourth.ID, "")
		if took := putAndGet(t, c, "1"); took > time.Second {
			t.Errorf("two calls took %v", took)
		}
		for i := range 3 { // the three founders go one after the other
			r.Shrink(1, r.Nodes[i])
			if i == 2 {
				break
			}
			r.Grow(1, r.Nodes[4])
		}
		r.Inform(r.Nodes[4])
		asked := func() (n int) {
			for _, n1 := range r.Nodes {
				n1.Set(func(n1 *clienttest.Node) { n += n1.Asked })
			}
			return n
		}
		time.Sleep(3 * time.Second)
		before, hits := asked(), c.Counters().OneSidedHits
		for i := range 600 {
			if took := putAndGet(t, c, fmt.Sprint(i)); took > time.Second {
				t.Fatalf("two calls took %v", took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := asked() - before; n > 2*(60/4) { // each time for view and map; the rest grows to 8 s, or is 1 s where a call was sent to a stranger
			t.Errorf("nodes were asked for view or map %d times in a minute", n)
		}
		if n := c.Counters().OneSidedHits - hits; n < 500 {
			t.Errorf("%d of 600 gets were one-sided", n)
		}
		// The map comes.
		r.Next(r.ByLogs(names(r.Nodes[3], r.Nodes[4])...))
		for _, n := range r.Nodes {
			r.Inform(n)
		}
		putAndGet(t, c, "2")
		time.Sleep(3 * time.Second)
		putAndGet(t, c, "3")
		time.Sleep(30 * time.Second)
		if m := rt(c).Map(); m.Version != 2 {
			t.Errorf("the client has version %d", m.Version)
		}
		for i, n := range r.Nodes {
			if open := n.Connected(); open > 0 != (i > 2) {
				t.Errorf("%d connections to %s", open, n.ID)
			}
		}
	})
}

// A client that was told of voters of which too few can vouch is told anew: after all of them but the leader have left, which it would not see in any cell, because it READs
// none where nobody vouches. Of many keys each is got by itself then. It asks once a second at most, also while the one voter there is cannot be reached.
func TestFleetVotersHaveLeft(t *testing.T) {
	for what, get := range map[string]func(ctx context.Context, c *client.Client) ([]byte, error){
		"one key": func(ctx context.Context, c *client.Client) ([]byte, error) { return c.Get(ctx, []byte("k")) },
		"many keys": func(ctx context.Context, c *client.Client) ([]byte, error) {
			got, err := c.MultiGet(ctx, [][]byte{[]byte("k"), []byte("k")})
			return got[0].Value, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
				fourth, fifth := r.Nodes[3], r.Nodes[4]
				r.Grow(1, fourth)
				r.Inform(fourth)
				r.Reign(1, fourth.ID, "")
				putAndGet(t, c, "0")    // has the leader asked who votes
				time.Sleep(time.Second) // the answer is there, and no other voter was asked where its cell is
				r.Grow(1, fifth)
				r.Inform(fifth)
				for _, n := range r.Nodes[:3] {
					r.Shrink(1, n)
				}
				// goes makes gets for a while, and returns how many keys were got one-sidedly, and how often the nodes were asked for the group.
				goes := func(d time.Duration) (hits uint64, asked int) {
					hits, asked = c.Counters().OneSidedHits, r.Infos()
					for begun := time.Now(); time.Since(begun) < d; time.Sleep(10 * time.Millisecond) {
						if v, err := get(t.Context(), c); err != nil || string(v) != "0" {
							t.Fatalf("%q, %v", v, err)
						}
					}
					return c.Counters().OneSidedHits - hits, r.Infos() - asked
				}
				goes(3 * time.Second)
				if hits, _ := goes(time.Second); hits < 90 {
					t.Errorf("%d of 100 gets were one-sided", hits)
				}
				r.Stop(fifth)
				goes(time.Second)
				if hits, asked := goes(10 * time.Second); hits > 0 || asked < 5 || asked > 11 {
					t.Errorf("while nobody can vouch %d gets were one-sided, and the leader was asked %d times in 10 s", hits, asked)
				}
				r.Start(fifth)
				goes(5 * time.Second)
				if hits, _ := goes(time.Second); hits < 90 {
					t.Errorf("%d of 100 gets were one-sided after the other voter has come back", hits)
				}
			})
		})
	}
}

// A node that has an older map than the client, or none yet, is passed by: calls wait for it as long as they may, and ask no node for a map.
func TestFleetNodeBehind(t *testing.T) {
	for _, what := range []string{"an older map", "no map"} {
		t.Run(what, func(t *testing.T) {
			onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
				putAndGet(t, c, "0")
				fourth := r.Nodes[3]
				if what == "an older map" {
					r.Inform(fourth)
				}
				r.Next(r.ByLogs(names(r.Nodes[:4]...)...))
				for _, n := range r.Nodes[:3] {
					r.Inform(n)
				}
				clienttest.Eventually(t, "the client has the map", func() bool {
					time.Sleep(100 * time.Millisecond)
					_, err := c.Get(t.Context(), []byte("k")) // whose READs show that there is news
					return err == nil && rt(c).Map().Version == 2
				})
				// It leads in a moment; till then nobody does.
				r.Next(func(m *cluster.Map, l *cluster.Replication) {
					l.Groups[0].Replicas = append([]cluster.Replica{{Node: uint16(m.IndexOf(fourth.ID))}}, l.Groups[0].Replicas...)
				})
				r.Elect("k", nil)
				for _, n := range r.Nodes[:3] {
					r.Inform(n)
				}
				begun := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					time.Sleep(8 * time.Second)
					r.Grow(1, fourth)
					r.Inform(fourth)
					r.Reign(1, fourth.ID, "")
				})
				if err := c.Put(t.Context(), []byte("k"), []byte("1")); err != nil {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				wg.Wait()
				if took := time.Since(begun); took < 8*time.Second || took > 9*time.Second || r.Done("k") != 2 {
					t.Errorf("the put took %v; %d puts took effect", took, r.Done("k"))
				}
				putAndGet(t, c, "2")
			})
		})
	}
}

// A client with an old map goes on where no node of it has a replica any more: one says by its map that it has none, and the others are away.
func TestFleetOldMap(t *testing.T) {
	onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		putAndGet(t, c, "0")
		for _, n := range r.Nodes[3:] {
			r.Grow(1, n)
		}
		r.Reign(1, "n5", "")
		for _, n := range r.Nodes[:3] {
			r.Shrink(1, n)
		}
		r.Next(r.ByLogs("n1", "n4", "n5"))
		for _, i := range []int{0, 3, 4} {
			r.Inform(r.Nodes[i])
		}
		r.Stop(r.Nodes[1])
		r.Stop(r.Nodes[2])
		if took := putAndGet(t, c, "1"); took > 2*time.Second {
			t.Errorf("two calls took %v", took)
		}
		if m := rt(c).Map(); m.Version != 2 || r.Done("k") != 2 {
			t.Errorf("version %d, %d puts took effect", m.Version, r.Done("k"))
		}
	})
}

// A put whose node is silent, and then leaves the map, keeps its name, and takes effect once, at another node.
func TestFleetPutOverALeaving(t *testing.T) {
	onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		putAndGet(t, c, "0")
		first := r.Leader("k")
		i := slices.IndexFunc(r.Nodes, func(n *clienttest.Node) bool { return n.ID == first })
		left := slices.DeleteFunc(names(r.Nodes[:4]...), func(id string) bool { return id == first })
		r.Grow(1, r.Nodes[3])
		gone := false
		r.Draw(func(x clienttest.Copied) clienttest.Fate {
			if x.IsWrite() && x.Node == first && !gone {
				gone = true // it has taken effect there, and nobody hears of it
				go func() {
					r.Shrink(1, r.Nodes[i])
					r.Next(r.ByLogs(left...))
					for _, n := range r.Nodes[:4] {
						r.Inform(n)
					}
				}()
				return clienttest.Fate{Silent: true}
			}
			return clienttest.Fate{}
		})
		if took := putAndGet(t, c, "1"); took > 3*time.Second {
			t.Errorf("two calls took %v", took)
		}
		ids := map[uint64]int{}
		for _, x := range r.Copies() {
			if x.IsWrite() {
				ids[uint64(x.ID.Slot)<<48|x.ID.Seq]++
			}
		}
		if r.Done("k") != 2 || len(ids) != 1 {
			t.Errorf("%d puts took effect; the last one had the names %v", r.Done("k"), ids)
		}
		time.Sleep(time.Minute)
		putAndGet(t, c, "2")
		if n := r.Nodes[i].Connected(); n != 0 {
			t.Errorf("%d connections to the node that has left", n)
		}
	})
}

// A get with a bound goes to another replica when its own has left: it is not answered from the memory of that, which shows no writes any more.
func TestFleetBoundOverALeaving(t *testing.T) {
	onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		const d = 10 * time.Minute // by far older than what has left
		putAndGet(t, c, "0")
		get := func() string {
			v, err := c.Get(t.Context(), []byte("k"), client.ReadBounded(d))
			if err != nil {
				t.Fatal(err)
			}
			return string(v)
		}
		clienttest.Eventually(t, "gets with a bound are answered by replicas", func() bool { get(); return c.Counters().Bounded > 3 })
		for _, n := range r.Nodes[3:] {
			r.Grow(1, n)
		}
		for _, n := range r.Nodes[:3] {
			r.Shrink(1, n)
		}
		r.Next(r.ByLogs("n1", "n2", "n3", "n4", "n5")) // the nodes stay, their replicas do not
		for _, n := range r.Nodes {
			r.Inform(n)
		}
		clienttest.Eventually(t, "the client has the map", func() bool {
			putAndGet(t, c, "1") // whose READs show that there is news
			time.Sleep(100 * time.Millisecond)
			return rt(c).Map().Version == 2
		})
		bounded := c.Counters().Bounded
		for range 20 {
			if got := get(); got != "1" {
				t.Fatalf("%q", got)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if c.Counters().Bounded == bounded {
			t.Error("no get was answered by the replicas that there are")
		}
	})
}

// A replica that comes later is told of the watch under way.
func TestFleetWatchIsToldToTheNew(t *testing.T) {
	onLater(t, func(t *testing.T, r *clienttest.Replicas, c *client.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for range c.Watch(ctx, nil, client.WatchOptions{}) {
			}
		})
		time.Sleep(10 * time.Second)
		r.Draw(nil)
		r.Grow(1, r.Nodes[3])
		r.Next(r.ByLogs(names(r.Nodes[:4]...)...))
		for _, n := range r.Nodes[:4] {
			r.Inform(n)
		}
		putAndGet(t, c, "1")
		wg.Wait()
		told := 0
		for _, x := range r.Copies() {
			if x.Type == wire.TypeWatch && x.Node == "n4" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("it was told %d times", told)
		}
	})
}
