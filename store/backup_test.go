package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/store/internal/disk"
	"github.com/rdmakv/rdmakv/test/crashfs"
)

// restored opens a copy of a backup as a store of its own.
func restored(t *testing.T, fs *crashfs.Disk, dir string) *node {
	t.Helper()
	// It was made while its store served: that is no store that was killed.
	if in, err := Inspect(t.Context(), dir, InspectOptions{FS: fs}); err != nil || !in.Backup || in.CleanStop || in.ProblemCount > 0 {
		t.Errorf("the backup: %+v, %v", in, err)
	}
	id := []byte(readText(t, fs, dir+"/STORE"))
	to := crashfs.New()
	if ok, err := vfs.Clone(fs, to, dir, "/store"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := to.Remove("/store/STORE"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), testConfig(to)); !errors.Is(err, ErrForeignDir) {
		t.Fatalf("a copy that was not adopted opens: %v", err)
	}
	newID, err := Adopt("/store", InspectOptions{FS: to}, id)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Check(t.Context(), "/store", to)
	if err != nil || in.CleanStop || in.Backup || in.ID != newID {
		t.Fatalf("%+v, %v", in, err)
	}
	c := testConfig(to)
	c.PredecessorGone = true
	return open(t, c)
}

// TestBackup: a backup under load is one state. Writers put counters that rise;
// two keys of a batch are equal; what was acknowledged before is there.
func TestBackup(t *testing.T) {
	fs := crashfs.New()
	c := testConfig(fs)
	n := open(t, c)
	n.fill()
	stop := make(chan struct{})
	done := make(chan struct{})
	var acked [4]atomic.Int64
	go func() {
		defer close(done)
		for i := int64(1); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for k := range 4 {
				value := fmt.Appendf(nil, "%08d", i)
				w := &Write{Op: Op{Shard: uint16(k), Kind: OpBatch, Parts: []Part{
					{Key: fmt.Appendf(nil, "a-%d", k), Value: value}, {Key: fmt.Appendf(nil, "b-%d", k), Value: value}}}}
				if err := n.Do(context.Background(), w); err != nil {
					t.Error(err)
					return
				}
				acked[k].Store(i)
			}
		}
	}()
	for round := range 3 {
		waitFor(t, "writes", func() bool { return acked[3].Load() > int64(20*round) })
		var before [4]int64
		for k := range before {
			before[k] = acked[k].Load()
		}
		dir := fmt.Sprintf("/store/backup-%d", round)
		if err := n.Backup(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		if in, err := Check(t.Context(), dir, fs); err != nil || in.Keys != 8 || !in.Ledger {
			t.Fatalf("the backup: %+v, %v", in, err)
		}
		r := restored(t, fs, dir)
		if r.ID() == n.ID() || r.Stats().Epoch < n.Stats().Epoch+disk.EpochsPerRestore {
			t.Errorf("store %x in epoch %d out of store %x in epoch %d", r.ID(), r.Stats().Epoch, n.ID(), n.Stats().Epoch)
		}
		for k := range 4 {
			a, _ := r.get(k, fmt.Sprintf("a-%d", k))
			b, _ := r.get(k, fmt.Sprintf("b-%d", k))
			if a != b || a < fmt.Sprintf("%08d", before[k]) {
				t.Errorf("shard %d: %s and %s, %d was acknowledged before", k, a, b, before[k])
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
	if err := n.Backup(t.Context(), "/store/backup-0"); !errors.Is(err, ErrBackupDir) {
		t.Errorf("into a directory that is there: %v", err)
	}
}

// TestBackupHasPublished: a backup has what is published, and nothing that is not: it waits for
// what is on its way as long as its caller does, and does not hand it out before.
func TestBackupHasPublished(t *testing.T) {
	fs := newStalledFS()
	n := open(t, testConfig(fs))
	n.fill()
	n.put(1, "k", "old")
	release := fs.stall()
	defer release()
	done := make(chan struct{})
	if err := n.Submit(&Write{Op: Op{Shard: 1, Key: []byte("k"), Value: []byte("new")}, Done: func(*Write) { close(done) }}); err != nil {
		t.Fatal(err)
	}
	n.atSync()
	// What does not wait for its caller's patience may hang at a sync of its own.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	early := make(chan error, 1)
	go func() { early <- n.Backup(ctx, "/store/backup-1") }()
	select {
	case err := <-early:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a backup while a write is on its way: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("a backup does not wait for a write on its way, and hangs at its own syncs")
		release()
		<-early
	}
	if got, err := n.record(1, "k"); err == nil && got != "old" {
		t.Errorf("the base has %q, which is not published", got)
	}
	release()
	<-done
	if err := n.Backup(t.Context(), "/store/backup-2"); err != nil {
		t.Fatal(err)
	}
	n.put(1, "k", "newer")
	restored(t, fs.mem, "/store/backup-2").want(1, "k", "new")
}
