package document

import (
	"fmt"
	"time"

	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// How the file follows what is published:
//
//	applied ──poke──▶ keep: waits for Config.Pause ──▶ NAME.new ──▶ NAME ──▶ Engine.Trim
//	applied ──poke──┘ (comes along)
//
// A document of 1 MiB costs more to write than an entry does. So entries that come within a pause share a write, and the file is
// written at most once in a pause. A write that fails is tried again behind a pause that is twice as long, up to longPause; until one succeeds the
// log keeps the entries.

// longPause bounds the pause behind a write that failed.
const longPause = 10 * time.Second

// The files beside the file: what is written until it takes the file's place (package wholefile), and what has come from another replica.
const (
	freshSuffix    = ".new"
	receivedSuffix = ".received"
)

// poke says that the file is older than what is published.
func (r *Replica) poke() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// keep writes the file until the replica is stopped.
func (r *Replica) keep() {
	pause := r.c.Pause
	t := time.NewTimer(pause)
	t.Stop()
	defer t.Stop()
	for {
		select {
		case <-r.dirty:
		case <-r.ended:
			return
		}
		t.Reset(pause)
		select {
		case <-t.C:
		case <-r.ended:
			return
		}
		if err := r.save(); err != nil {
			pause = min(2*pause, max(longPause, r.c.Pause))
			r.c.Logger.Warn("the file of a document cannot be written, its log is kept", "file", r.path(), "again after", pause, "err", err)
			r.poke()
			continue
		}
		pause = r.c.Pause
		// An error says that the replica has ended: the next one trims.
		_ = r.c.Engine.Trim(r.c.Group, r.durable.Load().Applied)
	}
}

// save makes what is published durable.
func (r *Replica) save() error {
	r.disk.Lock()
	defer r.disk.Unlock()
	v := r.now.Load()
	if v.state.Applied == r.durable.Load().Applied {
		return nil
	}
	if err := wholefile.Replace(r.c.FS, r.c.Dir, r.c.File, r.file(v)); err != nil {
		err = fmt.Errorf("document: %w", err)
		r.failed.Store(&err)
		return err
	}
	r.failed.Store(nil)
	r.durable.Store(&v.state)
	return nil
}
