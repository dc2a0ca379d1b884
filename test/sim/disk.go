package sim

import (
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is the file system as the server sees it: syncs of the log take their
// time, so that writes are ordered well before they are durable. Other calls
// take none, because elsewhere Pebble holds locks, and time does not pass in a
// bubble while a goroutine waits for a lock.
func (w *World) disk() vfs.FS {
	if w.sync == 0 {
		return w.fs
	}
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(w.seed, 2))
	seen := make(map[string]bool) // segments that were synced once
	return errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if !inLog(op.Path) {
				break
			}
			mu.Lock()
			if begun := seen[op.Path]; !begun {
				// The sync of a segment's header: the pipeline waits for it under a mutex.
				seen[op.Path] = true
				mu.Unlock()
				break
			}
			d := time.Duration(rng.Int64N(int64(w.sync)))
			mu.Unlock()
			time.Sleep(d)
		}
		return nil
	}))
}

// inLog says whether a file is of the store's log: a segment, or one that is to be one. A
// segment keeps, as an open file, the name under which it was opened.
func inLog(file string) bool { return path.Base(path.Dir(file)) == "log" }
