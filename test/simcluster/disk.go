package simcluster

import (
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A slowDisk is the file system of one life of a node as its server sees it: syncs of the log take their time, and none of them ends while
// the disk hangs. Other calls take no time, because elsewhere Pebble and the log hold mutexes, and virtual time stands still while a
// goroutine waits for a mutex.
type slowDisk struct {
	most time.Duration // what a sync takes at most
	dead chan struct{} // closed when the node is killed: what its program waits for ends

	mu   sync.Mutex
	rng  *rand.Rand
	seen map[string]bool // log segments that were synced once
	hung time.Time       // it answers nothing before
}

// hang has the disk answer no sync for a while.
func (d *slowDisk) hang(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hung = time.Now().Add(t)
}

// wrap puts the disk in front of a file system.
func (d *slowDisk) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if path.Base(path.Dir(op.Path)) == "log" {
				select {
				case <-time.After(d.takes(op.Path)):
				case <-d.dead:
				}
			}
		}
		return nil
	}))
}

// takes is how long a sync of a log segment takes. The first sync of a segment, that of its header, takes no time: it is waited for
// under a mutex.
func (d *slowDisk) takes(segment string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.seen[segment] {
		d.seen[segment] = true
		return 0
	}
	wait := max(0, time.Until(d.hung))
	if d.most > 0 {
		wait += time.Duration(d.rng.Int64N(int64(d.most)))
	}
	return wait
}
