package store

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// stalledFS is a file system whose logs can be kept from being synced.
type stalledFS struct {
	*errorfs.FS
	mem     *vfs.MemFS
	mu      sync.Mutex
	stalled chan struct{} // nil: syncs go through
}

func newStalledFS() *stalledFS {
	s := &stalledFS{mem: vfs.NewCrashableMem()}
	s.FS = errorfs.Wrap(s.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if inLog(op.Path) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
			s.mu.Lock()
			c := s.stalled
			s.mu.Unlock()
			if c != nil {
				<-c
			}
		}
		return nil
	}))
	return s
}

// inLog says whether a file is one of the log: Pebble's, or the store's own. A segment is known
// by its directory, because it was opened under the name of a free file.
func inLog(name string) bool {
	dir, file := path.Split(name)
	return strings.HasSuffix(file, ".log") || path.Base(dir) == "log" && file != "LIFE"
}

// stall keeps syncs from ending until the returned function is called.
func (s *stalledFS) stall() (release func()) {
	c := make(chan struct{})
	s.mu.Lock()
	s.stalled = c
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.stalled = nil
		s.mu.Unlock()
		close(c)
	})
}

// inPebble waits until Pebble shows a value, durable or not. With the store's own log it waits
// until a write that nobody is shown has its place there.
func (n *node) inPebble(shard int, key, value string) {
	if n.journal != nil {
		waitFor(n.t, "a place in the log for "+value, func() bool {
			s := n.journal.Log().Stats()
			return s.End > s.Passed
		})
		return
	}
	waitFor(n.t, "Pebble to show "+value, func() bool {
		got, err := n.record(shard, key)
		return err == nil && got == value
	})
}

// TestFillWaitsForFlight: the fill ends while a put and a delete are in Pebble
// and not durable. The keys they concern were durable before, so nobody may be
// told that they are absent: neither by SEND nor one-sidedly.
func TestFillWaitsForFlight(t *testing.T) {
	fs := newStalledFS()
	n := open(t, testConfig(fs))
	n.put(0, "put", "old")
	n.put(1, "deleted", "old")
	n.put(2, "quiet", "old")
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c := testConfig(fs)
	c.holdFill = make(chan struct{})
	n = open(t, c)
	release := fs.stall()
	defer release()
	done := make(chan struct{}, 2)
	for _, w := range []*Write{
		{Op: Op{Shard: 0, Key: []byte("put"), Value: []byte("new")}},
		{Op: Op{Shard: 1, Key: []byte("deleted"), Kind: OpDelete}},
	} {
		w.Done = func(*Write) { done <- struct{}{} }
		if err := n.Submit(w); err != nil {
			t.Fatal(err)
		}
	}
	// Both, for each may be a batch of its own: a snapshot without the delete
	// would rightly bring the old value back until the delete is published.
	n.inPebble(0, "put", "new")
	waitFor(t, "Pebble to show the delete", func() bool {
		_, err := n.record(1, "deleted")
		return errors.Is(err, ErrNotFound)
	})
	close(c.holdFill)
	waitFor(t, "the fill of the shards without writes", func() bool { n.lease(); return n.Stats().ShardsFilled >= 2 })
	r := n.reader()
	for shard, key := range []string{"put", "deleted"} {
		r.wantAsk(shard, key)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if v, err := n.Get(ctx, uint16(shard), []byte(key), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get(%s) = %q, %v before anything is durable", key, v.Data, err)
		}
		cancel()
	}
	r.want(2, "quiet", "old")
	release()
	<-done
	<-done
	n.fill()
	r.want(0, "put", "new")
	r.wantAbsent(1, "deleted")
}
