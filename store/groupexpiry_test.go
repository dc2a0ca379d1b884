package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestGroupExpiredByRefusal: R9: that a key has expired is said only when its removal is published, so that nobody sees it expire and come
// back, whoever leads and whatever his clock says. A refused condition, a touch and a delete say so without one.
func TestGroupExpiredByRefusal(t *testing.T) {
	for name, op := range map[string]Op{
		"put if it exists": {Kind: OpPut, Value: []byte("w"), If: CondExists},
		"touch":            {Kind: OpTouch, TTL: time.Hour},
		"delete":           {Kind: OpDelete},
	} {
		t.Run(name, func(t *testing.T) {
			skew := []time.Duration{0, 0, -time.Hour}
			next := 0
			c := newCluster(t, func(cfg *Config) {
				by := skew[next%3]
				next++
				cfg.checkpoints = time.Hour
				cfg.clock = func() (time.Time, time.Duration) {
					now := time.Now()
					return now.Add(by), time.Duration(now.UnixNano())
				}
			})
			right, slow := c.hosts[0], c.hosts[2]
			var w *Write
			var err error = ErrNotLeader
			for try := 0; errors.Is(err, ErrNotLeader) || errors.Is(err, ErrOutcomeUnknown); try++ { // it was deposed meanwhile
				if try == 10 {
					t.Fatalf("the leader does not stay one: %v", err)
				}
				c.lead(pair, right)
				op.Shard, op.Key = 0, fmt.Appendf(nil, "k%d", try)
				c.do(Op{Shard: 0, Key: op.Key, Value: []byte("v"), TTL: 300 * time.Millisecond})
				time.Sleep(400 * time.Millisecond)
				w = &Write{Op: op}
				err = right.Do(context.Background(), w)
			}
			if err == nil && w.Result.Existed {
				t.Fatal("it has not expired")
			}
			t.Logf("the leader said: %v, existed %v", err, w.Result.Existed)
			c.lead(pair, slow)
			if v, there := slow.get(0, string(op.Key)); there {
				t.Errorf("a client was told that the key is not there (%v), and it is back: %q", err, v)
			}
		})
	}
}

// TestCutLeaderStopsNoExpirer: a leader without a majority keeps its own group waiting, and nobody else: keys of the store's other shards are
// removed when their time is over.
func TestCutLeaderStopsNoExpirer(t *testing.T) {
	c := newCluster(t, func(cfg *Config) { cfg.groupPatience = time.Hour })
	for try := range 6 {
		waitFor(t, "a leader", func() bool { return c.leader(0) != nil })
		lead := c.leader(0)
		ends := time.Now().Truncate(time.Second).Add(2*time.Second - 20*time.Millisecond)
		c.do(Op{Shard: 0, Key: []byte("ttl"), Value: []byte("v"), TTL: time.Until(ends)})
		lead.checkpoint()
		time.Sleep(time.Until(ends.Add(-10 * time.Millisecond))) // before the expirer comes
		if c.leader(0) != lead {
			continue
		}
		c.cut(lead.id, true)
		time.Sleep(400 * time.Millisecond)
		if _, writes := lead.gate.Inside(); writes == 0 {
			t.Logf("try %d: the expirer came too early or too late", try)
			c.cut(lead.id, false)
			time.Sleep(500 * time.Millisecond)
			continue
		}
		before := lead.counts.Expired.Load()
		if err := lead.Store.Do(context.Background(), &Write{Op: Op{Shard: 3, Key: []byte("own"), Value: []byte("v"), TTL: 100 * time.Millisecond}}); err != nil {
			t.Fatal(err)
		}
		lead.checkpoint()
		time.Sleep(5 * time.Second)
		if lead.counts.Expired.Load() == before {
			t.Errorf("try %d: an expired key of a shard of no group was not removed in 5 s", try)
		}
		c.cut(lead.id, false)
		waitFor(t, "the removal once there is a majority", func() bool { return lead.counts.Expired.Load() > before })
		return
	}
	t.Fatal("no write of the expirer was under way, in any try")
}
