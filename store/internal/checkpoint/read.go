package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/rdmakv/rdmakv/store/log"
)

// errFull ends a scan before a record for which there is no room in the range.
var errFull = errors.New("checkpoint: the range is full")

// read makes the range of what stands between the base's position and another, which is
// no later than what has passed.
func (c *Config) read(ctx context.Context, to, passed log.Position) (r *Range, place Place, more bool, err error) {
	r = NewRange(c.Stream, c.Facts, c.Bound)
	p := pace{c: c, began: c.Now(), next: paceStep}
	place = Place{At: c.From.At, Newest: c.From.Newest, Epoch: c.Epoch}
	// A frame that ends behind to is read whole, for its sum, so the scan goes on to what
	// has passed, and the visit stops it.
	end, err := c.Log.Scan(c.From.Frame, passed, func(rec *log.Record) error {
		switch {
		case rec.Position < c.From.At:
			return nil // of the frame in which the base's position stands
		case rec.Position >= to || r.Full():
			place.At, more = rec.Position, rec.Position < to
			return errFull
		}
		if err := p.read(ctx, len(rec.Body)); err != nil {
			return err
		}
		if rec.Stream != c.Stream {
			return nil
		}
		return r.Add(rec)
	})
	switch {
	case errors.Is(err, errFull):
		place.Frame = end
	case err != nil:
		return nil, Place{}, false, err
	default:
		place.At, place.Frame = end, end
	}
	place.Newest = max(place.Newest, r.Newest())
	r.key = append(r.key[:0], PositionKey()...)
	r.set(0, 0, place.encode())
	return r, place, more, nil
}

// A pace keeps a reader of the log below a rate. It alone looks at a clock.
type pace struct {
	c     *Config
	began time.Time
	bytes int64
	next  int64 // bytes at which the clock is looked at again
}

const (
	defaultReadRate = 200 << 20
	// paceStep is after how many bytes the clock is looked at, and ctx.
	paceStep = 256 << 10
)

// read counts bytes that were read, and waits if they came too soon. What was read is
// counted without heads; the disk reads a little more.
func (p *pace) read(ctx context.Context, n int) error {
	p.bytes += int64(n)
	if p.bytes < p.next {
		return nil
	}
	p.next = p.bytes + paceStep
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.c.ReadRate < 0 {
		return nil
	}
	due := time.Duration(float64(p.bytes) / float64(p.c.ReadRate) * float64(time.Second))
	if ahead := due - p.c.Now().Sub(p.began); ahead > 0 {
		return p.c.Sleep(ctx, ahead)
	}
	return nil
}

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
