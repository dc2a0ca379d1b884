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

// TestGainedWaitsForNobody: who looks whether groups were gained does not wait while groups begin or end, which waits for the disk, and misses none:
// the next look finds it.
func TestGainedWaitsForNobody(t *testing.T) {
	n := open(t, alone(memFS()))
	if err := AddGroup(t.Context(), n.Store, aGroup(7, 0)); err != nil {
		t.Fatal(err)
	}
	n.leads(0)
	led := map[*member]bool{}
	n.groups.mu.Lock()
	looked := make(chan bool, 1)
	go func() { looked <- n.groups.gained(led) }()
	select {
	case any := <-looked:
		if any || len(led) > 0 {
			t.Errorf("gained %v, %d groups are noted, and nobody could look", any, len(led))
		}
	case <-time.After(testPatience):
		t.Error("it waits for groups that begin or end")
	}
	n.groups.mu.Unlock()
	if !n.groups.gained(led) || n.groups.gained(led) {
		t.Error("the next look does not find what was gained, or finds it twice")
	}
}
