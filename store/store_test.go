package store

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/shard"
	"github.com/rdmakv/rdmakv/store/layout"
)

func TestPutGetDelete(t *testing.T) {
	n := open(t, testConfig(vfs.NewMem()))
	n.fill()
	sizes := []int{0, 1, 7, 8, 100, 4096, shard.CopyLocked, shard.CopyLocked + 1, 3*layout.ChunkSize + 5, 2 << 20}
	for i, size := range sizes {
		key := fmt.Sprintf("key-%d", i)
		n.wantAbsent(i%4, key)
		if n.del(i%4, key) {
			t.Errorf("Delete(%s) before the put: existed", key)
		}
		first := n.put(i%4, key, pattern(size, "one"))
		n.want(i%4, key, pattern(size, "one"))
		second := n.put(i%4, key, pattern(size, "two"))
		if second <= first {
			t.Errorf("versions %v, then %v", first, second)
		}
		n.want(i%4, key, pattern(size, "two"))
		info, err := n.Stat(context.Background(), uint16(i%4), []byte(key))
		if err != nil || info.Version != second || info.ValLen != size {
			t.Errorf("Stat = %+v, %v; want version %v, %d bytes", info, err, second, size)
		}
		n.wantAbsent((i+1)%4, key) // another shard's
		if !n.del(i%4, key) {
			t.Errorf("Delete(%s): did not exist", key)
		}
		n.wantAbsent(i%4, key)
		n.put(i%4, key, pattern(size, "three"))
	}
	st := n.Stats()
	if st.Keys != uint64(len(sizes)) || st.Slotless != 0 || st.FromDisk != 0 || st.Inflight != 0 || st.InflightBytes != 0 {
		t.Errorf("stats: %+v", st)
	}
	for i, size := range sizes {
		n.want(i%4, fmt.Sprintf("key-%d", i), pattern(size, "three"))
	}
}

func TestReopen(t *testing.T) {
	fs := vfs.NewMem()
	n := open(t, testConfig(fs))
	sizes := []int{0, 1, 100, 5000, 100_000}
	var last layout.Version
	for i, size := range sizes {
		last = n.put(i%4, fmt.Sprintf("key-%d", i), pattern(size, "v"))
		n.put(i%4, fmt.Sprintf("gone-%d", i), "x")
		n.del(i%4, fmt.Sprintf("gone-%d", i))
	}
	epoch, id, inc := n.Stats().Epoch, n.ID(), n.Incarnation()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if n.heap.regions() != 0 {
		t.Errorf("%d regions left after Close", n.heap.regions())
	}
	if _, err := n.Store.Get(context.Background(), 0, []byte("k"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
	if _, err := n.Store.Put(context.Background(), 0, []byte("k"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}

	n = open(t, testConfig(fs))
	if n.ID() != id || n.Incarnation() == inc || n.Stats().Epoch != epoch+1 {
		t.Errorf("after reopening: id %x, incarnation %x, epoch %d", n.ID(), n.Incarnation(), n.Stats().Epoch)
	}
	check := func() {
		t.Helper()
		for i, size := range sizes {
			n.want(i%4, fmt.Sprintf("key-%d", i), pattern(size, "v"))
			n.wantAbsent(i%4, fmt.Sprintf("gone-%d", i))
		}
	}
	check() // while it fills
	n.fill()
	check() // out of memory
	if st := n.Stats(); st.Keys != uint64(len(sizes)) || st.ShardsFilled != 4 || st.Slotless != 0 {
		t.Errorf("stats after the fill: %+v", st)
	}
	if v := n.put(0, "key-0", "new"); v <= last {
		t.Errorf("version %v after reopening, %v before", v, last)
	}
}

// TestManyShards: a store of many shards stops cleanly and the next life
// knows how many keys there were.
func TestManyShards(t *testing.T) {
	fs := memFS()
	c := testConfig(fs)
	c.Shards = 300
	n := open(t, c)
	n.fill()
	for i := range 600 {
		n.put(i%300, fmt.Sprint(i), "v")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.Memory = newHeapMemory()
	n = open(t, c)
	total := uint64(0)
	for _, k := range n.disk.Keys() {
		total += k
	}
	if !n.disk.Clean() || total != 600 || len(n.disk.Keys()) != 300 {
		t.Errorf("clean %v, %d keys in %d shards, want 600 in 300", n.disk.Clean(), total, len(n.disk.Keys()))
	}
}
