package journal

import (
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/dirty"
	"github.com/rdmakv/rdmakv/store/internal/logged"
	"github.com/rdmakv/rdmakv/store/layout"
	"github.com/rdmakv/rdmakv/store/log"
)

// replay reads the log. Each write behind the base's position is dirty, as it was when it was
// published, and its result answers retries. Writes before that position are in the base,
// with their results. Facts are the log's own matter: it keeps the newest of each.
//
// A write that was in the log and not published when the process ended is published by this:
// nobody was told of it, and nobody was told that it is not there.
func (j *Journal) replay() error {
	newest := make([]layout.Version, j.c.Shards)
	err := j.log.Replay(func(rec *log.Record) error {
		if rec.Stream != Stream || rec.Kind != log.Write || rec.Position < j.c.Place.At || logged.IsPiece(rec.Body) {
			return nil
		}
		if err := j.replayWrite(rec, newest); errors.Is(err, base.ErrCorrupt) {
			return err
		} else if err != nil {
			return &checkpoint.RecordError{At: rec.Position, Err: err}
		}
		return nil
	})
	if err == nil && j.c.Values != nil {
		j.c.Values.Forget(1, 1) // to what is left of a write that was never logged leads nothing
	}
	return err
}

// replayWrite takes in one write.
func (j *Journal) replayWrite(rec *log.Record, newest []layout.Version) error {
	w, err := logged.Parse(rec.Body)
	if err != nil {
		return err
	}
	if int(w.Shard) >= j.c.Shards {
		return fmt.Errorf("a write of shard %d, there are %d: %w", w.Shard, j.c.Shards, logged.ErrMalformed)
	}
	if w.Version <= newest[w.Shard] || w.Version <= j.c.Place.Newest {
		return fmt.Errorf("a write of version %v behind one of %v: %w", w.Version, max(newest[w.Shard], j.c.Place.Newest), logged.ErrMalformed)
	}
	if err := j.foundBytes(&w, rec.Position); err != nil {
		return err
	}
	set, part, last := &j.Sets[w.Shard], uint32(0), newest[w.Shard]
	for e := range w.Effects {
		if !e.Noop {
			if e.Version <= last {
				return fmt.Errorf("a key of version %v behind one of %v: %w", e.Version, last, logged.ErrMalformed)
			}
			last = e.Version
			set.Note(layout.HashKey(j.c.Seed, e.Key), e.Key, entryOf(&e, rec.Position, part))
		}
		part++
	}
	if slot, result, ok := w.Result(); ok {
		j.c.Results.Load(w.Shard, slot, result)
	}
	newest[w.Shard] = w.Version
	j.Newest = max(j.Newest, uint64(w.Version))
	return nil
}

// entryOf is what a set knows of an effect.
func entryOf(e *base.Effect, at log.Position, part uint32) dirty.Entry {
	return dirty.Entry{Version: e.Version, Gone: e.Kind == base.OpDelete, At: at, Part: part}
}
