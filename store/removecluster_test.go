package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// Replicas that are given up, and others that take their place, in a cluster whose other stores go on.

// change has a group's leader make another configuration of the one in force, whoever that is.
func (c *cluster) change(id consensus.GroupID, shard uint16, edit func(*consensus.Config)) {
	c.t.Helper()
	waitFor(c.t, "a configuration", func() bool {
		lead := c.leader(shard)
		if lead == nil {
			return false
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		e := EngineOf(lead.Store)
		st, err := e.Status(id)
		if err != nil {
			return false
		}
		next := consensus.Config{Voters: append([]consensus.Member(nil), st.Config.Voters...), Learners: append([]consensus.Member(nil), st.Config.Learners...)}
		edit(&next)
		if len(next.Voters) == len(st.Config.Voters) && len(next.Learners) == len(st.Config.Learners) {
			return true // an answer was lost
		}
		err = e.Change(ctx, id, next, st.Config.Index)
		if errors.Is(err, consensus.ErrConfig) {
			c.t.Fatal(err)
		}
		return err == nil
	})
}

// without takes a replica out of a list.
func without(list []consensus.Member, id consensus.ReplicaID) (left []consensus.Member) {
	for _, m := range list {
		if m.ID != id {
			left = append(left, m)
		}
	}
	return left
}

// leave takes a replica of shards 0 and 2 out of the group, and has its store give it up.
func (c *cluster) leave(h *host, id consensus.ReplicaID) {
	c.t.Helper()
	c.lead(pair, c.hosts[(h.id+1)%3])
	c.change(pair, 0, func(now *consensus.Config) { now.Voters = without(now.Voters, id) })
	if err := RemoveGroup(c.t.Context(), h.Store, pair, id); err != nil {
		c.t.Fatal(err)
	}
}

// join has a store get a new replica of shards 0 and 2, which gets its state from the others, and makes it a voter.
func (c *cluster) join(h *host, id consensus.ReplicaID) {
	c.t.Helper()
	member := consensus.Member{ID: id, Node: nameOf(h.id)}
	c.change(pair, 0, func(now *consensus.Config) { now.Learners = append(without(now.Learners, id), member) })
	if err := AddGroup(c.t.Context(), h.Store, Group{ID: pair, Replica: id, Shards: []uint16{0, 2}}); err != nil {
		c.t.Fatal(err)
	}
	for _, shard := range []uint16{0, 2} {
		if err := h.Release(shard); err != nil {
			c.t.Fatal(err)
		}
	}
	waitFor(c.t, "the new replica to have the group's state", func() bool { index, _ := h.groups.of[0].Load().Published(); return index > 0 })
	c.change(pair, 0, func(now *consensus.Config) {
		now.Learners, now.Voters = without(now.Learners, id), append(without(now.Voters, id), member)
	})
}

// TestReplaceReplica: a store gives its replica up while others write and its memory is READ, and gets another one, again and again. What was READ there
// never goes back behind what was READ before, no key that is there is said not to be, and in the end all have the same.
func TestReplaceReplica(t *testing.T) {
	c := newCluster(t, nil)
	h := c.hosts[2]
	const keys = 8
	key := func(i int) string { return fmt.Sprint("k", i) }
	for i := range keys {
		c.put(uint16(i%2*2), key(i), "0")
	}
	c.settle()
	h.fill()
	var acked [keys]atomic.Int64
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-over:
					return
				default:
				}
				c.put(uint16(i%2*2), key(i), strconv.FormatInt(n, 10))
				acked[i].Store(n)
			}
		})
	}
	var found, asked atomic.Int64
	all.Go(func() {
		r, last := h.reader(), [keys]int64{}
		for {
			for i := range keys {
				select {
				case <-over:
					return
				default:
				}
				_, value, ok, ask := r.get(i%2*2, key(i))
				switch n, err := strconv.ParseInt(value, 10, 64); {
				case ask:
					asked.Add(1)
				case !ok:
					t.Errorf("%s is said not to be there, and %d was READ before", key(i), last[i])
					return
				case err != nil || n < last[i]:
					t.Errorf("%s is %q, and %d was READ before", key(i), value, last[i])
					return
				default:
					last[i] = n
					found.Add(1)
				}
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	beats := make(chan struct{})
	all.Go(func() {
		defer close(beats)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				h.Beat(time.Now())
			}
		}
	})
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	id := consensus.ReplicaID(h.id + 1)
	for range rounds {
		c.leave(h, id)
		id += 10
		before := found.Load()
		c.join(h, id)
		waitFor(t, "keys to be READ again", func() bool { return found.Load() > before+100 || t.Failed() })
	}
	close(over)
	all.Wait()
	c.settle()
	for i := range keys {
		want := acked[i].Load()
		for _, h := range c.hosts {
			if got, _ := h.get(i%2*2, key(i)); got != strconv.FormatInt(want, 10) && got != strconv.FormatInt(want+1, 10) {
				t.Errorf("store %d: %s is %s, %d was acknowledged", h.id, key(i), got, want)
			}
		}
	}
	_, of := c.check(pair, 0)
	c.wantAlike("at the end", of)
	t.Logf("%d gets by READ, %d had to be asked", found.Load(), asked.Load())
	// The new one leads, and is believed.
	waitFor(t, "the new replica to lead", func() bool {
		lead := c.leader(0)
		if lead != nil && lead != h {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = EngineOf(lead.Store).Transfer(ctx, pair, id)
		}
		return lead == h
	})
	c.put(0, key(0), "the last")
	h.want(0, key(0), "the last")
	cell, sight := h.cellOf(pair)
	if sight.Term == 0 || cell.Ready != sight.Term || cell.Word != sight.Term || cell.Config != sight.Config.Index {
		t.Errorf("it leads, and nobody can believe it: %+v, %+v", cell, sight)
	}
}

// TestJoinShowsNothingOlder: a replica that takes the place of one that this store has given up brings nothing into memory before it is as far as that one was, because
// a reader with a bound goes by what that one has shown.
func TestJoinShowsNothingOlder(t *testing.T) {
	head, data := imageOfPair(t)
	for _, behind := range []bool{true, false} {
		n := openWith(t, alone(memFS()), aGroup(7, 0, 2))
		n.leads(0)
		n.fill()
		shown := n.groups.of[0].Load().State().Applied
		for behind && shown < head.Applied+3 { // until the snapshot that comes is older
			n.put(0, "k", fmt.Sprint(shown))
			shown = n.groups.of[0].Load().State().Applied
		}
		n.remove(7, 1)
		if err := AddGroup(t.Context(), n.Store, Group{ID: 7, Replica: 2, Shards: []uint16{0, 2}}); err != nil {
			t.Fatal(err)
		}
		for _, shard := range []uint16{0, 2} {
			if err := n.Release(shard); err != nil {
				t.Fatal(err)
			}
		}
		m := &machine{n.groups.of[0].Load(), n.Store}
		got, err := m.Receive(t.Context(), head, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Adopt(got); err != nil {
			t.Fatal(err)
		}
		r := n.reader()
		if !behind {
			n.fill()
			r.want(0, "k0", pattern(1000, "v"))
			r.wantAbsent(0, "no such key")
			continue
		}
		// Gets by SEND bring nothing in either.
		for i := range 50 {
			n.want(i%2*2, fmt.Sprint("k", i), pattern(1000, "v"))
			r.wantAsk(i%2*2, fmt.Sprint("k", i))
		}
		r.wantAsk(0, "no such key")
		for index := head.Applied + 1; index <= shown; index++ {
			r.wantAsk(2, "k1")
			if err := m.Apply([]consensus.Entry{{Index: index, Term: head.Term, Kind: consensus.Empty}}); err != nil {
				t.Fatal(err)
			}
		}
		n.fill()
		r.want(2, "k1", pattern(1000, "v"))
		r.wantAbsent(0, "no such key")
	}
}

// TestRemoveGroupWaitsForReaders: memory is not cleared before a lease has passed since misses are asked: a reader that believes the header which it has READ before would
// take a key that is there for one that is not.
func TestRemoveGroupWaitsForReaders(t *testing.T) { virtual(removeGroupWaitsForReaders)(t) }

func removeGroupWaitsForReaders(t *testing.T) {
	cfg := alone(memFS())
	cfg.Lease = 700 * time.Millisecond
	n := openWith(t, cfg, aGroup(7, 0))
	n.leads(0)
	n.put(0, "k", "v")
	waitFor(t, "the fill", func() bool { n.lease(); return n.Filled() })
	r := n.reader()
	r.want(0, "k", "v")
	ended := make(chan time.Time, 1)
	begun := time.Now()
	go func() {
		if err := RemoveGroup(context.Background(), n.Store, 7, 1); err != nil {
			t.Error(err)
		}
		ended <- time.Now()
	}()
	for misses := true; misses; time.Sleep(time.Millisecond) {
		_, _, found, ask := r.get(0, "no such key")
		misses = !ask
		if found {
			t.Fatal("what is not there is found")
		}
	}
	asks := time.Now()
	for time.Since(asks) < cfg.predecessorWait()-10*time.Millisecond {
		if _, _, found, _ := r.get(0, "k"); !found {
			t.Fatalf("the key is gone from memory %v after misses are asked, and a lease is %v", time.Since(asks), cfg.Lease)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if took := (<-ended).Sub(begun); took < cfg.predecessorWait() {
		t.Errorf("it took %v, and a lease with its margin is %v", took, cfg.predecessorWait())
	}
	r.wantAsk(0, "k")
}

// TestStaleFence: word that a replica was stopped by an error, which comes when another one has taken its place, does nothing to that one.
func TestStaleFence(t *testing.T) {
	n, broken := openFailing(t, nil)
	n.put(0, "k", "v")
	fence(t, n, broken)
	broken.on.Store(false)
	n.remove(7, 1)
	g := aGroup(7, 0)
	g.Replica, g.Founders.Voters[0].ID = 2, 2
	if err := AddGroup(t.Context(), n.Store, g); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	n.groups.fenced(n.Store, 7)
	n.put(0, "k", "w")
	n.want(0, "k", "w")
}
