package ckpt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/store/internal/base"
	"github.com/rdmakv/rdmakv/store/internal/checkpoint"
	"github.com/rdmakv/rdmakv/store/internal/tables"
	"github.com/rdmakv/rdmakv/store/log"
)

// When a round begins:
//
//	half of the log's bound is not in the base    a start reads it, and nothing frees it
//	500,000 writes, or DirtyBytes, are newer      they take memory
//	10 s after the oldest of them                 a store at rest has none
//	somebody found no room in the log             and a segment would become free
//	somebody waits for the base (Now)

const (
	lookDirty = 100 * time.Millisecond // while something is newer than the base
	lookIdle  = 500 * time.Millisecond // else: a look at the log's figures
	lookSoon  = time.Millisecond       // a frame is about to pass
	firstRest = 250 * time.Millisecond // after a round that has failed
	mostRest  = 10 * time.Second
	// firstBytes bounds the memory that the first writes of a shard take. It does not count as
	// dirty memory: with many shards and little memory rounds would follow each other, each
	// for a write or two in every shard.
	firstBytes = 16 << 10
)

// Run keeps the base close behind the log until the store ends, or is fenced.
func (k *Keeper) Run() {
	ctx, cancel := context.WithCancel(k.c.Life.Ctx)
	defer cancel()
	k.c.Life.Go(func() {
		select {
		case <-k.c.Life.Fence.Down:
			cancel()
		case <-ctx.Done():
		}
	})
	if at := k.Place().Frame; at != 0 {
		k.c.Log.Release(k.c.Stream, at) // the log does not keep it over a start
	}
	rest := time.Duration(0)
	for ctx.Err() == nil {
		if k.unheld() {
			k.forget()
		}
		due, wait := k.look()
		if !due {
			_ = k.c.Sleep(ctx, k.wake, wait)
			continue
		}
		reach := k.reach()
		err := k.catchUp(ctx)
		if err == nil {
			if rest = 0; k.reach() == reach {
				// It waits for somebody who is about to publish or to pass a frame.
				_ = k.c.Sleep(ctx, nil, lookSoon)
			}
			continue
		}
		if ctx.Err() != nil || errors.Is(err, log.ErrClosed) {
			return
		}
		if fatal := fatal(err); fatal != nil {
			k.c.Life.Fence.Fail(fatal)
			return
		}
		rest = min(max(2*rest, firstRest), mostRest)
		k.c.Life.Fence.Report(slog.LevelWarn, "a checkpoint failed", "err", err, "again_in", rest)
		// Nothing wakes it: who finds no room would have it try without pause.
		_ = k.c.Sleep(ctx, nil, rest)
	}
}

// unheld says whether a hold has ended because of which files of values were kept.
func (k *Keeper) unheld() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.freed
}

// catchUp makes rounds until the base has what had passed when the last of them began.
func (k *Keeper) catchUp(ctx context.Context) error {
	for {
		began := k.c.Now()
		k.mu.Lock()
		k.wanted = false
		k.mu.Unlock()
		more, err := k.round(ctx, true)
		if err != nil {
			return err
		}
		// What is still newer than the base has been published since.
		if !k.since.IsZero() {
			k.since = began
		}
		if !more {
			return nil
		}
	}
}

// look says whether a round is due, or when to look again.
func (k *Keeper) look() (due bool, wait time.Duration) {
	now, s, lags := k.c.Now(), k.c.Log.Stats(), k.lags()
	k.mu.Lock()
	k.growth.note(now, int64(s.Written+s.Padding))
	place, from, wanted, soon := k.place, k.useful(), k.wanted, false
	for _, r := range k.requests {
		due = due || r.at <= s.Passed
		soon = true
	}
	k.mu.Unlock()
	switch {
	case s.Passed <= place.At && !lags:
		// Nothing of what is published has passed yet, if there is anything.
		due = false
	case behind(&s, from, k.c.Segment)+k.waiting() >= k.c.LogBytes/2:
		due = true
	case wanted && s.Passed.Segment() > from.Segment():
		due = true // else no segment would become free
	}
	if s.Passed != k.seen || !k.since.IsZero() {
		k.seen = s.Passed
		writes, bytes := k.dirty()
		switch {
		case writes == 0:
			k.since = time.Time{}
		case k.since.IsZero():
			k.since = now
		}
		bytes -= int64(len(k.c.Shards)) * firstBytes
		old := writes > 0 && now.Sub(k.since) >= k.c.Every
		due = due || (s.Passed > place.At || lags) && (old || writes >= k.c.DirtyWrites || bytes >= k.c.DirtyBytes)
	}
	switch {
	case soon:
		return due, lookSoon
	case wanted || !k.since.IsZero():
		return due, lookDirty
	}
	return due, lookIdle
}

// Last brings everything that has passed into the base, without pace. It is for a stop, when
// nothing is written any more: after an error the log has what the base has not.
func (k *Keeper) Last(ctx context.Context) error {
	to := k.c.Log.Stats().Passed
	for k.Place().At < to || k.lags() {
		reach := k.reach()
		if _, err := k.round(ctx, false); err != nil {
			if fatal := fatal(err); fatal != nil {
				k.c.Life.Fence.Fail(fatal)
			}
			return err
		}
		if k.reach() == reach {
			return nil // what is behind it is no record
		}
	}
	return nil
}

// fatal returns why the store cannot go on behind an error of a round, or nil if the round
// can be tried again.
func fatal(err error) error {
	var order *tables.OrderError
	switch {
	case errors.Is(err, tables.ErrFence):
		return fmt.Errorf("checkpoint: %w", err)
	case errors.Is(err, base.ErrCorrupt):
		return fmt.Errorf("checkpoint: %w: check the disk, and keep the directory", err)
	case errors.Is(err, checkpoint.ErrRecord):
		return err // it says what to do
	case errors.Is(err, log.ErrDamaged):
		return fmt.Errorf("checkpoint: %w: check the disk, and keep the directory: the next start says what is lost", err)
	case errors.Is(err, log.ErrFailed):
		return fmt.Errorf("checkpoint: %w", err)
	case errors.As(err, &order):
		return fmt.Errorf("checkpoint: %w: the program has an error: keep the directory and report it", err)
	}
	return nil
}
