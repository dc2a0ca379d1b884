package store

import (
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rdmakv/rdmakv/test/crashfs"
)

// stalledFS is a file system whose logs can be kept from being synced: that of Pebble and
// that of the store.
type stalledFS struct {
	*errorfs.FS
	mem     *crashfs.Disk
	mu      sync.Mutex
	stalled chan struct{} // nil: syncs go through
	held    int           // syncs of segments of the store's own log that wait
}

func newStalledFS() *stalledFS {
	s := &stalledFS{mem: crashfs.New()}
	s.FS = errorfs.Wrap(s.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if inLog(op.Path) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
			s.mu.Lock()
			c := s.stalled
			if c != nil && !strings.HasSuffix(op.Path, ".log") && !strings.HasSuffix(op.Path, ".new") {
				s.held++
			}
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
		s.stalled, s.held = nil, 0
		s.mu.Unlock()
		close(c)
	})
}

// atSync waits until a write that nobody is shown is in the file of the log, behind
// a sync that is stalled.
func (n *node) atSync() {
	fs, stalls := n.cfg.FS.(*stalledFS)
	waitFor(n.t, "a sync of the log", func() bool {
		if stalls {
			fs.mu.Lock()
			defer fs.mu.Unlock()
			if fs.held == 0 {
				return false
			}
		}
		st := n.journal.Stats()
		return st.End > st.Passed
	})
}

// TestFillWaitsForFlight: the fill ends while a put and a delete are in the log, and not
// durable. The keys they concern were durable before, so nobody may be
// told that they are absent: neither by SEND nor one-sidedly. Time is virtual, so that after
// a second of it the fill has done all that it does before they are durable.
func TestFillWaitsForFlight(t *testing.T) { virtual(fillWaitsForFlight)(t) }

func fillWaitsForFlight(t *testing.T) {
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
	n.atSync()
	close(c.holdFill)
	waitFor(t, "the fill of the shards without writes", func() bool { n.lease(); return n.Stats().ShardsFilled >= 2 })
	r := n.reader()
	waitFor(t, "that of shard 2", func() bool { n.lease(); _, got, _, _ := r.get(2, "quiet"); return got == "old" })
	time.Sleep(time.Second)
	n.lease()
	for shard, key := range []string{"put", "deleted"} {
		if _, got, found, ask := r.get(shard, key); !ask && (!found || got != "old") {
			t.Errorf("one-sided get of %q = %q, found %v before anything is durable", key, got, found)
		}
		n.want(shard, key, "old")
	}
	r.want(2, "quiet", "old")
	release()
	<-done
	<-done
	n.fill()
	r.want(0, "put", "new")
	r.wantAbsent(1, "deleted")
}
