package server

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// A heldTables is a file system on which no table is begun while hold is not nil: checkpoints
// come to nothing, and the log fills.
type heldTables struct {
	vfs.FS
	mu   sync.Mutex
	hold chan struct{}
}

func (f *heldTables) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".table") {
		f.mu.Lock()
		hold := f.hold
		f.mu.Unlock()
		if hold != nil {
			<-hold
		}
	}
	return f.FS.Create(name, c)
}

// stall holds tables back until the function that it returns is called.
func (f *heldTables) stall() (goOn func()) {
	c := make(chan struct{})
	f.mu.Lock()
	f.hold = c
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.hold = nil
		f.mu.Unlock()
		close(c)
	})
}

// TestLogFillsUp: while checkpoints come to nothing puts are slowed down, those of a session that
// ends are forgotten, and when the log is full puts are refused as overloaded; gets and deletes
// go on. When checkpoints go on, so do the puts that wait and those that come.
func TestLogFillsUp(t *testing.T) {
	fs := &heldTables{FS: vfs.NewMem()}
	srv := startServer(t, func(c *Config) { c.FS, c.LogBytes = fs, 2*store.MinLogBytes })
	sp := srv.main
	const size = 256 << 10 // so that a few of them are faster than any checkpoint, on the slowest machine
	p, hasty := dial(t, srv, peerOptions{sink: size}), dial(t, srv, peerOptions{sink: size})
	sum := checksum(make([]byte, size))
	large := func(p *peer, id uint64, key string) []byte {
		return wire.AppendPutLarge(nil, id, wire.PutLarge{
			Key: []byte(key), ValueLen: size, Checksum: sum, RKey: p.mr.RKey(), Addr: p.mr.Addr() + (peerReceives+1)*peerSize,
		})
	}
	if err := p.put("first", "value"); err != nil {
		t.Fatal(err)
	}
	goOn := fs.stall()
	defer goOn()
	var key string
	full, left := false, false
	// The log is full for a moment, too, while the file of its next segment is being made.
	for i := 0; !full || !left; i++ {
		if i > 1000 {
			t.Fatalf("%d rounds, and the log is full %v, and puts are slowed down %v", i, full, left)
		}
		// Together, so that they come faster than checkpoints could take them in.
		ids := make([]uint64, 7)
		for j := range ids {
			ids[j], key = p.id(), fmt.Sprint("key", i, ".", j)
			p.send(large(p, ids[j], key))
		}
		if sp.Counters.Slowed.Load() > 0 && !left {
			left = true // while puts are slowed down
			hasty.send(large(hasty, hasty.id(), "hasty"))
			hasty.close()
		}
		for _, id := range ids {
			h, _, err := p.await(id)
			if err != nil || h.Status != wire.StatusOK && h.Status != wire.StatusOverloaded {
				t.Fatalf("%v, %v", h, err)
			}
			full = full || h.Status == wire.StatusOverloaded
		}
	}
	slowed := sp.Counters.Slowed.Load()
	eventually(t, "the other session is gone", func() bool { return len(sp.Sessions.List()) == 1 })
	if r, err := p.get("first", 100); err != nil || string(r.Value) != "value" {
		t.Errorf("a get: %+v, %v", r, err)
	}
	if _, err := p.call(func(id uint64) []byte { return wire.AppendDelete(nil, id, wire.Delete{Key: []byte("first")}) }); err != nil {
		t.Errorf("a delete: %v", err)
	}
	st, err := srv.Stats()
	if err != nil || st.Slowed != slowed {
		t.Errorf("statistics have %d slowed puts of %d, %v", st.Slowed, slowed, err)
	}
	goOn()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, err := p.call(func(id uint64) []byte { return large(p, id, key) })
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("puts are refused for ever: %v", err)
		}
	}
	eventually(t, "no put waits", func() bool { return sp.Handlers.Slowed() == 0 })
	if used, waiting := sp.Staging.InUse(); used != 0 || waiting != 0 {
		t.Errorf("staging: %d bytes in use, %d wait", used, waiting)
	}
}
