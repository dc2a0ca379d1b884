package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/cluster"
)

// TestFailOver measures how long keys are away when their leader goes: a get and a put of keys that it led are begun at that moment, by a client that is
// connected to all nodes, and their times are told as percentiles (make nightly: 300 of each kind). It fails if one of them does; no time is asserted. With
// -judged a load runs meanwhile (make nightly: over 1,000 fail-overs), in whose histories a write that is lost, a get that is late and a write that took
// effect twice are contradictions, and all replicas are compared at the end.
func TestFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("kills nodes: make cluster-test")
	}
	w := newWorld(t).replicated()
	probe := w.dial("west")
	if _, err := served(within(t), probe, "before"); err != nil {
		t.Fatal(err)
	}
	w.allTakePart(t)
	if *judgedFlag {
		load, _ := w.startLoad("fail-over")
		defer func() {
			judge(t, load)
			w.alikeFrom(t, w.net.Host("east"), len(w.groups(w.Nodes[0])))
		}()
	}
	for _, kind := range []struct {
		name     string
		down, up func(*Server) error
	}{
		{"kill -9", (*Server).Kill, func(s *Server) error { return s.Start(within(t)) }},
		{"pause", func(s *Server) error { return s.Signal(syscall.SIGSTOP) }, func(s *Server) error { return s.Signal(syscall.SIGCONT) }},
		{"planned stop", func(s *Server) error { return s.Stop(patience) }, func(s *Server) error { return s.Start(within(t)) }},
	} {
		var gets, puts []time.Duration
		for i := range *killsFlag {
			victim := w.leading(t, i)
			keys := w.keysLed(t, probe, victim.ID, 2)
			if err := probe.Put(within(t), keys[0], []byte("v")); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), servedWithin)
			var wg sync.WaitGroup
			var get, put time.Duration
			var getErr, putErr error
			call := func(took *time.Duration, err *error, do func() error) {
				wg.Go(func() {
					began := time.Now()
					*err = do()
					*took = time.Since(began)
				})
			}
			down := make(chan error, 1)
			if kind.name == "planned stop" { // the calls are beside it
				go func() { down <- kind.down(victim) }()
			} else {
				down <- kind.down(victim)
			}
			call(&get, &getErr, func() error {
				got, err := probe.Get(ctx, keys[0])
				if err == nil && string(got) != "v" {
					err = fmt.Errorf("%q is read", got)
				}
				return err
			})
			call(&put, &putErr, func() error { return probe.Put(ctx, keys[1], fmt.Append(nil, i)) })
			wg.Wait()
			cancel()
			if err := <-down; err != nil || getErr != nil || putErr != nil {
				t.Fatalf("%s %d of %s: %v; get: %v; put: %v", kind.name, i, victim.ID, err, getErr, putErr)
			}
			gets, puts = append(gets, get), append(puts, put)
			must(t, kind.up(victim))
			w.allTakePart(t)
		}
		t.Logf("%-12s of a leader, %d times: first get %s; first acknowledged put %s", kind.name, len(gets), percentiles(gets), percentiles(puts))
	}
}

// percentiles are p50, p99 and the most of some times.
func percentiles(list []time.Duration) string {
	slices.Sort(list)
	at := func(p int) time.Duration { return list[min(len(list)*p/100, len(list)-1)].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %v, p99 %v, max %v", at(50), at(99), list[len(list)-1].Round(time.Millisecond))
}

// leading is a node that leads a group; another one each time, where several do.
func (w *world) leading(t *testing.T, i int) *Server {
	t.Helper()
	var leaders []string
	for _, g := range w.groups(w.Nodes[0]) {
		if g.Leader != "" && !slices.Contains(leaders, g.Leader) {
			leaders = append(leaders, g.Leader)
		}
	}
	if len(leaders) == 0 {
		t.Fatal("no group has a leader")
	}
	slices.Sort(leaders)
	return w.Nodes[slices.IndexFunc(w.Nodes, func(s *Server) bool { return s.ID == leaders[i%len(leaders)] })]
}

// keysLed are n keys of groups that a node leads now.
func (w *world) keysLed(t *testing.T, c *Conn, id string, n int) (keys [][]byte) {
	t.Helper()
	byID := map[uint32][]uint16{}
	for _, g := range c.Info().Founders {
		byID[g.ID] = g.Shards
	}
	led := map[uint16]bool{}
	for _, g := range w.groups(w.Nodes[0]) {
		for _, shard := range byID[g.ID] {
			led[shard] = g.Leader == id
		}
	}
	for i := 0; len(keys) < n; i++ {
		if i > 10_000 {
			t.Fatalf("node %s leads no shard: %v", id, led)
		}
		if key := fmt.Appendf(nil, "fail-over %d", i); led[cluster.ShardOf(key, len(c.Info().Owners))] {
			keys = append(keys, key)
		}
	}
	return keys
}
