package server

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// stuckLink lets everything through until stop is called: from then on nothing of
// what the server sends arrives, so the client serves no READ.
func stuckLink(t *testing.T, srv *Server) (addr string, stop func()) {
	t.Helper()
	var stuck atomic.Bool
	return relay(t, srv, anything, func(int) bool { return !stuck.Load() }), func() { stuck.Store(true) }
}

// TestStalledPutGivesWay: a put whose READs make no progress gives its staging
// memory back as soon as somebody has waited for it a while, long before it would
// be cut off by itself. One for which nobody waits keeps it.
func TestStalledPutGivesWay(t *testing.T) {
	srv := startServer(t, func(c *Config) { c.StagingBytes, c.SendTimeout = minStaging, 10*time.Second })
	via, stop := stuckLink(t, srv)
	stalled := dial(t, srv, peerOptions{via: via})
	honest := dial(t, srv, peerOptions{})
	stop()
	stalled.send(wire.AppendPutLarge(nil, stalled.id(), wire.PutLarge{
		Key: []byte("never"), ValueLen: 33 << 20, RKey: stalled.mr.RKey(), Addr: stalled.mr.Addr(),
	}))
	eventually(t, "it has all of the memory", func() bool { used, _ := srv.main.Staging.InUse(); return used == minStaging })
	value := honest.sink()[:1<<20]
	begun := time.Now()
	if err := honest.putLarge([]byte("k"), len(value), xxh3.Hash(value)); err != nil {
		t.Fatal(err)
	}
	t.Logf("the put took %v", time.Since(begun))
	ended(t, srv, base.CauseSlow, 1)
	if n := srv.bounds.Hits[base.BoundStaging].Load(); n != 1 {
		t.Errorf("%d stalled puts gave way, want 1", n)
	}
}
