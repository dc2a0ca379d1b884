package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Stats says what a batch was.
type Stats struct {
	Keys    int
	Tables  int
	Bytes   int64         // of the tables' files
	Waited  time.Duration // for L0
	Ingest  time.Duration
	Written time.Duration // waited for the rate
}

// pollL0 is how often Commit looks whether L0 has become lower.
const pollL0 = 10 * time.Millisecond

// nudgeL0 is how often Pebble is made to look for a compaction while Commit waits for one.
const nudgeL0 = time.Second

// Commit brings the batch into the base by one ingest. After nil the base has
// all of it, also after a crash. After an error it has nothing of it, and the
// batch can be made again; an error that Is ErrFence alone leaves open which.
// The batch is over in either case.
func (t *Tables) Commit(ctx context.Context) (Stats, error) {
	if t.over {
		return Stats{}, ErrOver
	}
	t.pace.under(ctx)
	if t.err == nil && t.open != nil {
		_ = t.finish() // t.err keeps it
	}
	if t.err == nil && len(t.paths)+len(t.links) > 0 {
		t.err = t.enter(ctx)
	}
	err := t.err
	t.stats.Written = t.pace.waited()
	if !errors.Is(err, ErrFence) {
		// A file that stays is the next Begin's to remove: it changes nothing.
		_ = t.Abort()
	}
	t.over = true
	return t.stats, err
}

// Ready ends what is left to do before the ingest: the last table is finished, and L0 is low. A Commit behind it does not
// wait, unless others ingest meanwhile. An error is Commit's, too.
func (t *Tables) Ready(ctx context.Context) error {
	if t.over {
		return ErrOver
	}
	t.pace.under(ctx)
	if t.err == nil && t.open != nil {
		_ = t.finish() // t.err keeps it
	}
	if t.err != nil {
		return t.err
	}
	return t.waitL0(ctx)
}

// Abort gives the batch up and removes its files. It does nothing after Commit.
func (t *Tables) Abort() error {
	if t.over {
		return nil
	}
	t.over = true
	if t.open != nil {
		// A table without its end is not worth the disk's time.
		t.pace.under(aborted)
		_ = t.open.Close()
		t.open = nil
	}
	return remove(t.cfg.FS, append(t.paths, t.links...))
}

// enter waits for L0 and ingests.
func (t *Tables) enter(ctx context.Context) error {
	begun := t.cfg.Now()
	if err := t.waitL0(ctx); err != nil {
		return err
	}
	entered := t.cfg.Now()
	t.stats.Waited = entered.Sub(begun)
	// The ingest is not given up with ctx: what it would have done is known only
	// when it returns. It ends, or Pebble calls Fatalf.
	if err := call(t.cfg.Down, func() error { return t.db.Ingest(context.WithoutCancel(ctx), slices.Concat(t.paths, t.links)) }); err != nil {
		return t.ingestError(err)
	}
	t.stats.Ingest = t.cfg.Now().Sub(entered)
	return empty(t.db, t.cfg.Down)
}

// waitL0 waits until L0 is low. Each ingest can add a sublevel, which every get
// looks at; Pebble slows down no ingest for it.
//
// Pebble looks for a compaction when something has changed. When one has failed (the disk was
// full), it leaves the keys alone for 30 s, and does not look again by itself; then the next
// change would be the ingest that waits here, for ever. So while it waits a snapshot is taken
// and given back, behind which Pebble looks.
func (t *Tables) waitL0(ctx context.Context) error {
	nudged := t.cfg.Now()
	for {
		var n int
		if err := call(t.cfg.Down, func() error {
			n = int(t.db.Metrics().Levels[0].Sublevels)
			return nil
		}); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return &WaitError{Sublevels: n, Err: err}
		}
		if n < t.cfg.Sublevels {
			return nil
		}
		if now := t.cfg.Now(); now.Sub(nudged) >= nudgeL0 {
			nudged = now
			if err := call(t.cfg.Down, func() error { return t.db.NewSnapshot().Close() }); err != nil {
				return err
			}
		}
		if err := t.cfg.Sleep(ctx, pollL0); err != nil {
			return &WaitError{Sublevels: n, Err: err}
		}
	}
}

// ingestError is what Pebble said to an ingest. A fence stays one.
func (t *Tables) ingestError(err error) error {
	if errors.Is(err, ErrFence) {
		return err
	}
	return &FileError{Op: "ingest", File: t.cfg.Dir, Err: err}
}

// call calls into Pebble, which answers some errors by a panic, and some by
// Fatalf, which does not return: the goroutine stays behind, with Pebble's locks
// held, so that every later call would hang. Then the process has to end.
func call(fatal <-chan struct{}, f func() error) error {
	if down(fatal) {
		return errDown
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- &FenceError{Cause: fmt.Sprintf("pebble panicked: %v", r)}
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-fatal:
		return errDown
	}
}

// everything is a range with every key of a base. Its end is longer than any
// key that begins with bytes 0xff.
var everything = []pebble.KeyRange{{Start: []byte{}, End: bytes.Repeat([]byte{0xff}, 1<<10)}}

// aborted is a context that has ended.
var aborted = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// empty returns an error when a memtable of the base has anything. A base whose
// log is off loses that in a crash, and what was ingested later stays: it would
// be at no position. Pebble has no figure for it; a snapshot that is to live on
// files alone does so at once if no memtable has a key of its range, and asks to
// wait for a flush otherwise. The wait has ended before it begins.
func empty(db *pebble.DB, fatal <-chan struct{}) error {
	return call(fatal, func() error {
		s := db.NewEventuallyFileOnlySnapshot(everything)
		defer s.Close()
		if err := s.WaitForFileOnlySnapshot(aborted, 0); err != nil {
			return &FenceError{Cause: "a memtable of the base is not empty"}
		}
		return nil
	})
}
