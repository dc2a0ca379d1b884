package store

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/store/internal/newest"
	"github.com/rdmakv/rdmakv/store/internal/shard"
)

// beginMoment begins to take a moment, and returns when it has the snapshot of the base and
// stands at its first view, that of a shard that is nobody's. Behind goOn it goes on; then taken
// has it, with the views of the store's shards behind that one.
func (n *node) beginMoment() (goOn func(), taken chan newest.Moment) {
	n.t.Helper()
	first := new(shard.Shard)
	taken = make(chan newest.Moment, 1)
	snapshots := func() int { return n.disk.ForTests().DB().Metrics().Snapshots.Count }
	before := snapshots()
	first.Mu.Lock()
	go func() {
		m, err := n.journal.Moment(n.disk, append([]*shard.Shard{first}, n.shards...), &n.ckpt.Leaving)
		if err != nil {
			n.t.Error(err)
		}
		taken <- m
	}()
	waitFor(n.t, "the snapshot", func() bool { return snapshots() > before })
	return first.Mu.Unlock, taken
}

// has says what a moment has of a key: in the base, and in the view of its shard.
func has(t *testing.T, m newest.Moment, view int, key string, shardID uint16) (inBase, inView bool) {
	t.Helper()
	from := disk.AppendKey(nil, shardID, disk.KindData, []byte(key))
	it, err := m.Base.Records(from, append(slices.Clone(from), 0))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	it.First()
	keys := m.Views[view].Keys([]byte(key), append([]byte(key), 0))
	return it.Valid(), keys.Next()
}

func momentConfig() Config {
	c := testConfig(memFS())
	// What the test begins is the one checkpoint, and the fill takes no snapshots.
	c.noKeeper, c.checkpoints = true, time.Hour
	return c
}

// TestNothingLeavesInAMoment: between the snapshot of the base and the views a checkpoint brings a
// key into the base. It does not leave its shard's set before the view is taken: else the moment
// would have it nowhere.
func TestNothingLeavesInAMoment(t *testing.T) {
	n := open(t, momentConfig())
	n.fill()
	n.put(0, "k", "v")
	goOn, taken := n.beginMoment()
	brought := make(chan error, 1)
	go func() { brought <- n.ckpt.Now(t.Context()) }()
	waitFor(t, "the base to have the key", func() bool { _, err := n.record(0, "k"); return err == nil })
	for range 50 { // the step that it would leave in comes next
		if dirty, _ := n.shard(0).DirtyCounts(); dirty != 1 {
			t.Error("the key has left its set while a moment is taken")
			break
		}
		time.Sleep(time.Millisecond)
	}
	goOn()
	m := <-taken
	if inBase, inView := has(t, m, 1, "k", 0); inBase || !inView {
		t.Errorf("the moment has the key in the base %v, in the view %v", inBase, inView)
	}
	m.Release()
	if err := m.Base.Close(); err != nil {
		t.Error(err)
	}
	if err := <-brought; err != nil {
		t.Error(err)
	}
	if dirty, _ := n.shard(0).DirtyCounts(); dirty != 0 {
		t.Error("the key has not left its set behind the moment")
	}
}

// TestNothingIsPublishedInAMoment: between two views nothing is published: else a moment could
// have a write and not the one before it.
func TestNothingIsPublishedInAMoment(t *testing.T) {
	n := open(t, momentConfig())
	n.fill()
	goOn, taken := n.beginMoment()
	done := make(chan struct{})
	w := &Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("v")}, Done: func(*Write) { close(done) }}
	if err := n.Submit(w); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		t.Error("a write is published while a moment is taken")
	case <-time.After(50 * time.Millisecond):
	}
	goOn()
	m := <-taken
	if _, inView := has(t, m, 1, "k", 0); inView {
		t.Error("the view has a write that came behind the moment's beginning")
	}
	m.Release()
	if err := m.Base.Close(); err != nil {
		t.Error(err)
	}
	<-done
}
