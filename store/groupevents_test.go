package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// events are those behind a cursor of the group of a shard, up to the newest write that is published here.
func (h *host) events(shard uint16, from WatchCursor) (p WatchPage) {
	h.c.t.Helper()
	turn := h.groups.of[shard].Load().State().Turn
	waitFor(h.c.t, "what is published to be noted", func() bool {
		var err error
		if p, err = WatchGroup(h.Store, shard, WatchRequest{From: from, Values: true, MaxBytes: 1 << 20}); err != nil {
			h.c.t.Fatalf("store %d: %v", h.id, err)
		}
		return p.Next.Version.Number() >= turn.Newest(shard).Number()
	})
	return p
}

// TestGroupEvents: all replicas of a group tell of the same events, with the same versions, and of no other shard's. A cursor of one is good at the
// others, also after a restart.
func TestGroupEvents(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.WatchBytes = MinWatchBytes })
	c.put(0, "before", "v")
	c.settle()
	at := c.hosts[0].events(0, WatchCursor{}).Next
	c.put(0, "a", "1")
	for range 5 {
		c.put(1, "other group", "x")
	}
	c.do(Op{Kind: OpIncrement, Shard: 2, Key: []byte("n"), Delta: 1})
	c.do(Op{Kind: OpBatch, Shard: 0, Parts: []Part{{Key: []byte("b"), Value: []byte("2")}, {Key: []byte("a"), Delete: true}}})
	c.do(Op{Kind: OpTouch, Shard: 2, Key: []byte("n"), TTL: time.Hour})
	c.do(Op{Kind: OpDelete, Shard: 0, Key: []byte("none")})
	c.put(2, "large", pattern(100_000, "large"))
	c.hosts[0].node.put(3, "own", "v")
	c.settle()
	var all []WatchPage
	for _, h := range c.hosts {
		p := h.events(0, at)
		all = append(all, p)
		got := ""
		for _, e := range p.Events {
			got += fmt.Sprintf("%v %s=%s more=%v; ", e.Op, e.Key, e.Value, e.More)
		}
		if want := "put a=1 more=false; put n=1 more=false; put b=2 more=true; delete a= more=false; touch n= more=false; put large= more=false; "; got != want || p.Skipped {
			t.Errorf("store %d: %s, gap %v\nwant %s", h.id, got, p.Skipped, want)
		}
		for i, e := range p.Events {
			if e.Version != all[0].Events[i].Version || e.ValLen != all[0].Events[i].ValLen {
				t.Errorf("store %d: event %d: %+v, want %+v", h.id, i, e, all[0].Events[i])
			}
		}
		if _, err := h.Watch(WatchRequest{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("the events of all shards: %v", err)
		}
		if _, err := WatchGroup(h.Store, 3, WatchRequest{}); err != ErrShard {
			t.Errorf("the events of a shard of no group: %v", err)
		}
	}
	next := all[0].Next
	for _, h := range c.hosts {
		for range 3 { // writes that are no events, up to the end of the base
			c.do(Op{Kind: OpDelete, Shard: 2, Key: []byte("none")})
		}
		c.settle()
		if p := h.events(0, next); p.Skipped || len(p.Events) != 0 {
			t.Errorf("store %d: %+v", h.id, p)
		} else {
			next = p.Next
		}
		h.checkpoint()
		h.stop()
		h.start()
		c.put(0, "after", fmt.Sprint(h.id))
		c.settle()
		if p := h.events(0, next); p.Skipped || len(p.Events) != 1 || string(p.Events[0].Key) != "after" {
			t.Errorf("store %d, after a restart: %+v", h.id, p)
		} else {
			next = p.Next
		}
	}
}
