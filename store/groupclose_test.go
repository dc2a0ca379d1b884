package store

import (
	"errors"
	"testing"
	"time"
)

// TestCloseOfGroupsOnHangingDisk: Close of a store that was fenced, and whose disk hangs, returns (close.go: giveUp). With a group it waits
// in the engine, which waits for the disk.
func TestCloseOfGroupsOnHangingDisk(t *testing.T) {
	for _, groups := range [][]Group{nil, {aGroup(7, 0)}} {
		fs := newStalledFS()
		cfg := alone(fs)
		cfg.OnFatal = func(error) {}
		n := open(t, cfg)
		for _, g := range groups {
			if err := AddGroup(t.Context(), n.Store, g); err != nil {
				t.Fatal(err)
			}
			n.leads(0)
		}
		n.put(0, "k", "v")
		release := fs.stall()
		if err := n.Submit(&Write{Op: Op{Shard: 0, Key: []byte("k"), Value: []byte("w")}, Done: func(*Write) {}}); err != nil {
			t.Fatal(err)
		}
		n.atSync()
		n.fence.Fail(errors.New("the disk"))
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		select {
		case err := <-closed:
			t.Logf("%d groups: %v", len(groups), err)
		case <-time.After(8 * time.Second):
			t.Errorf("%d groups: Close has not returned in 8 s", len(groups))
		}
		release()
		// What Close has left to itself ends now, and the log can be closed.
		<-n.life.Done()
		n.groups.mu.Lock()
		_ = n.journal.Close(false)
		n.groups.mu.Unlock()
	}
}
