package linear

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmakv/rdmakv/client"
)

// ballastKeys of ballastSize bytes are four times the memory of the node.
const (
	ballastKeys  = 4096
	ballastSize  = 16 << 10
	ballastBatch = 16
)

func ballast(i int) client.Pair {
	return client.Pair{Key: fmt.Appendf(nil, "ballast %d", i), Value: Value{N: int64(i)}.Bytes(ballastSize)}
}

// startBallast writes and reads keys that no other client uses, many times what
// the memory holds, so that everything is evicted now and then. Each has one
// value for ever.
func (r *rig) startBallast(ctx context.Context) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(*seedFlag, 12))
		for n := 0; ctx.Err() == nil; n += ballastBatch {
			var pairs []client.Pair
			for i := range ballastBatch {
				pairs = append(pairs, ballast((n+i)%ballastKeys))
			}
			err := r.heavy.MultiPut(ctx, pairs)
			for range ballastBatch {
				if err == nil || errors.Is(err, ErrNothing) {
					err = r.readBallast(ctx, rng.IntN(min(n+1, ballastKeys)))
				}
			}
			if _, err = judge(Output{}, err); err != nil && !errors.Is(err, ErrNothing) {
				r.t.Errorf("seed %d: %v", *seedFlag, err)
				return
			}
			pause(ctx, time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *rig) readBallast(ctx context.Context, i int) error {
	p := ballast(i)
	b, err := r.heavy.Get(ctx, p.Key)
	if err == nil && !bytes.Equal(b, p.Value) {
		err = fmt.Errorf("%s has another value of %d bytes", p.Key, len(b))
	}
	return err
}

// watchedPrefix is what the keys of the workload begin with, and no others.
const watchedPrefix = "w"

// startWatch watches all keys of the workload from now on, until the context ends
// or the returned function is called. Now and then the watch ends and goes on
// where it was.
func (r *rig) startWatch(ctx context.Context, clock *Clock) func() {
	ctx, cancel := context.WithCancel(ctx)
	from, err := r.heavy.Position(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	since, _ := clock.Now()
	r.watched = NewWatched(since)
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(*seedFlag, 13))
		for ctx.Err() == nil {
			once, end := context.WithTimeout(ctx, time.Duration(rng.IntN(4000))*time.Millisecond)
			err := r.watchOnce(once, &from)
			end()
			if _, err = judge(Output{}, err); err != nil && !errors.Is(err, ErrNothing) {
				r.t.Errorf("watch, seed %d: %v", *seedFlag, err)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// watchOnce watches from a position on until the context ends, and leaves the
// position that it has reached in from.
func (r *rig) watchOnce(ctx context.Context, from *client.Position) error {
	for e, err := range r.heavy.Watch(ctx, []byte(watchedPrefix), client.WatchOptions{From: *from, Values: true}) {
		if err != nil {
			return err
		}
		*from = e.Position
		if e.Skipped {
			r.watched.Gap()
			continue
		}
		var object int
		var letter rune
		if _, err := fmt.Sscanf(string(e.Key), watchedPrefix+"{%d}%c", &object, &letter); err != nil {
			return fmt.Errorf("an event of the key %q: %w", e.Key, err)
		}
		out := WatchEvent{Key: int(letter - 'a'), Version: e.Version, HasVal: e.HasValue}
		switch e.Op {
		case client.EventDelete, client.EventExpire:
			out.Gone = true
		case client.EventPut:
			if e.HasValue {
				if out.Val, err = Parse(e.Value); err != nil {
					return fmt.Errorf("an event of the key %q: %w", e.Key, err)
				}
			}
		}
		r.watched.Add(object, out)
	}
	return nil
}

// done judges an object that is not used any more.
func (r *rig) done(c *Checker, o *Object) {
	if err := r.watched.Check(o); err != nil {
		path, saved := Save(outDir(), *fabricFlag+"-watch", *seedFlag, c.Slack, o)
		r.t.Errorf("seed %d: %v\n  history %s (%v)", *seedFlag, err, path, saved)
	}
	c.Add(o)
}
