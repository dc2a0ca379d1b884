package server

import (
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A gate is the machine's file system, on which nobody can note the start of another node (LIVES) while hold is not nil.
type gate struct {
	vfs.FS
	hold atomic.Pointer[chan struct{}]
}

func (g *gate) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if hold := g.hold.Load(); hold != nil && path.Base(name) == "LIVES.new" {
		<-*hold
	}
	return g.FS.Create(name, c)
}

// TestEndsWhenOthersAreBack: a node that is stopped while another one has come back, and does not take part in its groups yet, serves on until it does. If it ended at
// once, the third node would be without a majority.
func TestEndsWhenOthersAreBack(t *testing.T) {
	r := &replicas{t: t}
	var gates []*gate
	for i := range 3 {
		gates = append(gates, &gate{FS: vfs.Default})
		r.fs, r.dirs, r.nodes = append(r.fs, gates[i]), append(r.dirs, t.TempDir()), append(r.nodes, nil)
		r.start(i)
	}
	r.agree()
	for shard := range uint16(4) {
		r.put(keyOf(shard), "1")
	}
	ends := r.leader(0)
	back := (ends + 1) % 3
	srv := r.nodes[ends]
	r.stop(back)
	hold := make(chan struct{})
	gates[ends].hold.Store(&hold) // the node that comes back cannot meet this one, so its replicas wait
	open := sync.OnceFunc(func() {
		gates[ends].hold.Store(nil)
		close(hold)
	})
	t.Cleanup(open) // before the nodes are stopped
	name, life := string(rune('a'+back)), r.start(back).main.Store.Incarnation()
	eventually(t, "the node that ends knows that the other one is back", func() bool {
		m := srv.member.Members().View().Member(name)
		return m != nil && m.Incarnation == life
	})
	ended := make(chan error, 1)
	go func() { ended <- srv.Shutdown(t.Context()) }()
	for !srv.main.Draining.Load() {
		if srv.ending.Get() == awaitsOthers {
			open()
		}
		time.Sleep(100 * time.Microsecond)
	}
	var waits []string
	for _, g := range r.nodes[back].groups.Status() {
		if g.State == "waits" {
			waits = append(waits, g.Why)
		}
	}
	open()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.nodes[ends] = nil
	if len(waits) > 0 {
		t.Errorf("node %c ends, and of node %c, which has just come back, %d replicas take no part: %q", 'a'+ends, 'a'+back, len(waits), waits)
	}
	for shard := range uint16(4) {
		r.want(keyOf(shard), "1")
		r.put(keyOf(shard), "2")
	}
}
