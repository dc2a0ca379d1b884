package server

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/cluster"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// A gauge is the machine's file system, which says that so much is free.
type gauge struct {
	vfs.FS
	free atomic.Uint64 // 0: what is
}

func (g *gauge) GetDiskUsage(dir string) (vfs.DiskUsage, error) {
	u, err := g.FS.GetDiskUsage(dir)
	if n := g.free.Load(); n > 0 && err == nil {
		u.AvailBytes = n
	}
	return u, err
}

// startGauged starts three nodes whose disks can be told to be full, and agrees on a map of two groups.
func startGauged(t testing.TB, quiet time.Duration) (*replicas, []*gauge) {
	r := &replicas{t: t, quiet: quiet}
	var disks []*gauge
	for i := range 3 {
		disks = append(disks, &gauge{FS: vfs.Default})
		r.fs, r.dirs, r.nodes = append(r.fs, disks[i]), append(r.dirs, t.TempDir()), append(r.nodes, nil)
		r.start(i)
	}
	r.agree()
	return r, disks
}

// TestFullDiskLeads: a node whose disk is full hands the groups that it leads to nodes that have room, where puts are taken; they do not go home
// to it, and do when it has had room for a while. If all disks are full, the leader stays, refuses puts and serves gets.
func TestFullDiskLeads(t *testing.T) {
	r, disks := startGauged(t, 3*time.Second)
	home := int(r.m.Replication.Groups[r.m.Replication.Group[0]].Replicas[0].Node)
	eventually(t, "the preferred node leads", func() bool { return r.leader(0) == home })
	r.put(keyOf(0), "1")
	leads := func(i int) (n int) {
		for _, g := range r.nodes[i].groups.Status() {
			if g.State == "leads" {
				n++
			}
		}
		return n
	}
	disks[home].free.Store(1 << 20)
	eventually(t, "the full node leads nothing", func() bool { return leads(home) == 0 })
	for shard := range uint16(4) {
		r.put(keyOf(shard), "it is full")
	}
	for until := time.Now().Add(2 * r.quiet); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if leads(home) > 0 {
			t.Fatal("a group goes home to a full disk")
		}
	}
	disks[home].free.Store(0)
	eventually(t, "the group goes home", func() bool { return r.leader(0) == home })
	for i := range disks {
		disks[i].free.Store(1 << 20)
	}
	eventually(t, "all are full", func() bool {
		for _, srv := range r.nodes {
			if !srv.main.Store.Stats().PutsRefused {
				return false
			}
		}
		return true
	})
	// Who leads hears a moment later that the others are full as well, and may have handed over meanwhile.
	lead, since, last := -1, time.Now(), uint64(0)
	eventually(t, "the group stays where it is", func() bool {
		at := r.leader(0)
		for _, g := range r.nodes[at].groups.Status() {
			if g.ID == r.m.Replication.Groups[r.m.Replication.Group[0]].ID && (at != lead || g.Term != last) {
				lead, last, since = at, g.Term, time.Now()
			}
		}
		return time.Since(since) > 2*time.Second
	})
	term := func() uint64 {
		for _, g := range r.nodes[lead].groups.Status() {
			if g.ID == r.m.Replication.Groups[r.m.Replication.Group[0]].ID && g.State == "leads" {
				return g.Term
			}
		}
		return 0
	}
	before := term()
	for i := range 20 {
		p := dial(t, r.nodes[lead], peerOptions{})
		if err := p.put(keyOf(0), fmt.Sprint(i)); wire.StatusOf(err) != wire.StatusNoSpace {
			t.Errorf("a put, and all disks are full: %v", err)
		}
		if _, err := p.get(keyOf(0), 1<<10); err != nil {
			t.Errorf("a get, and all disks are full: %v", err)
		}
		p.close()
		time.Sleep(100 * time.Millisecond)
	}
	if now := term(); now != before || before == 0 {
		t.Errorf("the group goes about, and all disks are full: term %d, then %d", before, now)
	}
	for i := range disks {
		disks[i].free.Store(0)
	}
	key := keyOf(0)
	eventually(t, "puts are taken again", func() bool {
		p := dial(t, r.nodes[r.leader(cluster.ShardOf([]byte(key), 4))], peerOptions{})
		defer p.close()
		return p.put(key, "2") == nil
	})
	r.want(key, "2")
}
