package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rdmakv/rdmakv/internal/consensus"
)

// imageOfPair is a snapshot of a group of shards 0 and 2 with some keys.
func imageOfPair(t *testing.T) (consensus.State, []byte) {
	t.Helper()
	from := openWith(t, alone(memFS()), aGroup(7, 0, 2))
	from.leads(0)
	for i := range 50 {
		from.put(i%2*2, fmt.Sprint("k", i), pattern(1000, "v"))
	}
	from.checkpoint()
	snap, err := (&machine{from.groups.of[0].Load(), from.Store}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(snap)
	if err := errors.Join(err, snap.Close()); err != nil {
		t.Fatal(err)
	}
	return snap.State(), data
}

// TestFillEndsWhileAdopted: the fill of a shard that ends between Unfill and Empty (Adopt waits there for a lease of the group's other
// shards, for a round, and for L0) says that the misses of the old content are believed. Adopt then panics in index.Uncount, with
// publishing, leaving and the shard's lock held.
func TestFillEndsWhileAdopted(t *testing.T) {
	head, data := imageOfPair(t)
	cfg := alone(memFS())
	hold := make(chan struct{})
	cfg.holdFill = hold
	g := aGroup(7, 0, 2)
	g.Founders.Voters = nil // it gets its state from the others
	n := openWith(t, cfg, g)
	m := &machine{n.groups.of[0].Load(), n.Store}
	got, err := m.Receive(t.Context(), head, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	// A checkpoint is under way.
	in, out := make(chan struct{}), make(chan struct{})
	go func() { _ = n.ckpt.Alone(context.Background(), func() error { close(in); <-out; return nil }) }()
	<-in
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		if err := m.Adopt(got); err != nil {
			panic(err)
		}
	}()
	time.Sleep(50 * time.Millisecond)
	close(hold) // the fill after the start ends meanwhile
	waitFor(t, "the fill of the store's own shards", func() bool { return n.Stats().ShardsFilled >= 2 })
	time.Sleep(300 * time.Millisecond) // and of the group's: that of the old content
	close(out)
	if r := <-ended; r != nil {
		t.Fatalf("Adopt: %v", r)
	}
	n.fill()
}

// A tightReader has the disk become full behind its first bytes.
type tightReader struct {
	io.Reader
	n    int
	full func()
}

func (r *tightReader) Read(b []byte) (int, error) {
	if r.n > 64<<10 && r.full != nil {
		r.full()
		r.full = nil
	}
	n, err := r.Reader.Read(b[:min(len(b), 4<<10)])
	r.n += n
	return n, err
}

// TestSnapshotBelowTheFloor: a snapshot that takes the disk below the floor is given up, because what is left is the log's and the
// base's: when they meet ENOSPC all shards of the store end.
func TestSnapshotBelowTheFloor(t *testing.T) {
	from := openWith(t, alone(memFS()), aGroup(7, 0, 2))
	from.leads(0)
	for i := range 400 {
		from.put(i%2*2, fmt.Sprint("k", i), pattern(10_000, "v"))
	}
	from.checkpoint()
	snap, err := (&machine{from.groups.of[0].Load(), from.Store}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	d := &fakeDisk{FS: memFS()}
	d.avail.Store(1 << 30)
	cfg := alone(d)
	cfg.MinFreeBytes, cfg.noKeeper = 1<<20, true
	g := aGroup(7, 0, 2)
	g.Founders.Voters = nil
	n := openWith(t, cfg, g)
	m := &machine{n.groups.of[0].Load(), n.Store}
	got, err := m.Receive(t.Context(), snap.State(), &tightReader{Reader: snap, full: func() {
		d.avail.Store(1 << 10)
		n.disk.LookSpace()
	}})
	if err == nil {
		t.Errorf("the disk was below half of the floor behind 64 KiB, and 4 MB were taken; puts: %v", n.disk.Admits(true))
		_ = got.Close()
	}
}
